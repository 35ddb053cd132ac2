package system

main := {
	"apiVersion": "admission.k8s.io/v1",
	"kind": "AdmissionReview",
	"response": {
		"uid": input.request.uid,
		"allowed": count(deny) == 0,
		"status": {"message": concat("; ", deny)},
	},
}

deployment := input.request.object

pod := deployment.spec.template.spec

containers := array.concat(pod.containers, object.get(pod, "initContainers", []))

tagged(image) if {
	regex.match(`:[^/]+$`, image)
	not endswith(image, ":latest")
}

deny contains msg if {
	some c in containers
	not tagged(c.image)
	msg := sprintf("image %s has no tag other than latest", [c.image])
}

deny contains "set the label team" if not deployment.metadata.labels.team

deny contains msg if {
	some c in containers
	c.securityContext.privileged
	msg := sprintf("container %s is privileged", [c.name])
}

deny contains "at most 10 replicas" if deployment.spec.replicas > 10
