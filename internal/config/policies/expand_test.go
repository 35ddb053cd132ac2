package policies_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // registers conversions and defaults
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/config/policies"
)

// compile reads the Policies of a YAML file.
func compile(t *testing.T, text string) []config.Object {
	t.Helper()
	objects, problems := config.NewDecoder(apiserver.Validator{}).Decode("policy.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return objects
}

// decodePolicy reads the one Policy with a spec.
func decodePolicy(spec string) ([]config.Object, config.Problems) {
	text := "apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n" + indent(spec)
	return config.NewDecoder(apiserver.Validator{}).Decode("policy.yaml", []byte(text))
}

// expand expands the one Policy with a spec, and checks that kube-apiserver accepts its expansion as it is.
func expand(t *testing.T, spec, cluster string) *policies.Expansion {
	t.Helper()
	documents, problems := decodePolicy(spec)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	e := documents[0].Expandable.Expand(cluster)
	if e != nil {
		checkAccepted(t, e)
	}
	return e
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

// checkAccepted has kube-apiserver's code default and validate an expansion, and the mesh read it.
func checkAccepted(t *testing.T, e *policies.Expansion) {
	t.Helper()
	documents := documentsOf(e)
	var file []byte
	for _, document := range documents {
		raw, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		file = append(append(file, raw...), '\n')
	}
	if objects, problems := config.NewDecoder(apiserver.Validator{}).Decode("expansion.json", file); len(objects) != len(documents) || len(problems) > 0 {
		t.Errorf("the mesh reads %d objects, with %v", len(objects), problems)
	}
	for _, document := range documents {
		defaulted := document.DeepCopyObject()
		legacyscheme.Scheme.Default(defaulted)
		if diff := cmp.Diff(document, defaulted); diff != "" {
			t.Errorf("defaults are missing (-expansion +defaulted):\n%s", diff)
		}
		internal, err := legacyscheme.Scheme.ConvertToVersion(document, admissionregistration.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		var errs field.ErrorList
		switch d := internal.(type) {
		case *admissionregistration.ValidatingAdmissionPolicy:
			errs = validation.ValidateValidatingAdmissionPolicy(d)
		case *admissionregistration.ValidatingAdmissionPolicyBinding:
			errs = validation.ValidateValidatingAdmissionPolicyBinding(d)
		case *admissionregistration.MutatingAdmissionPolicy:
			errs = validation.ValidateMutatingAdmissionPolicy(d)
		case *admissionregistration.MutatingAdmissionPolicyBinding:
			errs = validation.ValidateMutatingAdmissionPolicyBinding(d)
		default:
			t.Fatalf("%T", internal)
		}
		if err := errs.ToAggregate(); err != nil {
			t.Errorf("kube-apiserver refuses the expansion: %v", err)
		}
	}
}

// documentsOf are the documents of an expansion.
func documentsOf(e *policies.Expansion) []runtime.Object {
	switch {
	case e.MutatingBinding != nil:
		return []runtime.Object{e.MutatingPolicy, e.MutatingBinding}
	case e.MutatingPolicy != nil:
		return []runtime.Object{e.MutatingPolicy}
	}
	return []runtime.Object{e.Policy, e.Binding}
}

// pod is a spec of a Pod in the object of a kind, in a namespace, and with labels.
func object(kind, namespace, labels, podSpec string) string {
	top := fmt.Sprintf("metadata: {name: x, namespace: %s, labels: {%s}}\n", namespace, labels)
	template := fmt.Sprintf("template: {metadata: {labels: {app: x}}, spec: {restartPolicy: %s, %s}}", map[bool]string{true: "Never", false: "Always"}[kind == "Job" || kind == "CronJob"], podSpec)
	switch kind {
	case "Pod":
		return "apiVersion: v1\nkind: Pod\n" + top + "spec: {" + podSpec + "}"
	case "Job":
		return "apiVersion: batch/v1\nkind: Job\n" + top + "spec: {" + template + "}"
	case "CronJob":
		return "apiVersion: batch/v1\nkind: CronJob\n" + top + "spec: {schedule: '* * * * *', jobTemplate: {spec: {" + template + "}}}"
	case "ReplicationController":
		return "apiVersion: v1\nkind: ReplicationController\n" + top + "spec: {" + template + "}"
	}
	return "apiVersion: apps/v1\nkind: " + kind + "\n" + top + "spec: {selector: {matchLabels: {app: x}}, " + template + "}"
}

// image is the Pod spec of a container with an image.
func image(text string) string { return fmt.Sprintf("containers: [{name: a, image: %q}]", text) }

const noLatest = `
resources: [pods]
podControllers: true
mode: enforce
validations:
- expression: images.all(image, image.tag != 'latest')
  message: give each image a tag
  field: spec.containers
`

// TestAPolicyOnNewPodsNamesNoSubresources: an API server has no CREATE of pods/ephemeralcontainers.
func TestAPolicyOnNewPodsNamesNoSubresources(t *testing.T) {
	for operations, want := range map[string][]string{
		"[CREATE]":         {"pods"},
		"[CREATE, UPDATE]": {"pods", "pods/ephemeralcontainers", "pods/resize"},
	} {
		e := expand(t, "resources: [pods]\noperations: "+operations+"\nvalidations: [{expression: 'true', message: never}]", "")
		if diff := cmp.Diff(want, e.Policy.Spec.MatchConstraints.ResourceRules[0].Resources); diff != "" {
			t.Errorf("%s (-want +got):\n%s", operations, diff)
		}
	}
}

func TestAPolicyOnPodsSeesThePodsOfControllers(t *testing.T) {
	const denied = "denied: spec.containers: give each image a tag"
	e := expand(t, noLatest, "")
	withExpression := expand(t, noLatest+"  messageExpression: \"'give each image a ' + 'tag' // for the client\"\n", "")
	for _, kind := range []string{"Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"} {
		path := map[string]string{"Pod": "", "CronJob": "spec.jobTemplate.spec.template."}
		within, known := path[kind]
		if !known {
			within = "spec.template."
		}
		denied := "denied: " + within + "spec.containers: give each image a tag"
		for text, want := range map[string]string{"nginx": denied, "nginx:latest": denied, "nginx:1": "allowed"} {
			for _, e := range []*policies.Expansion{e, withExpression} {
				if got := judge(t, e, request{object: object(kind, "default", "", image(text))}); got != want {
					t.Errorf("%s with %s: %s, want %s", kind, text, got, want)
				}
			}
		}
	}
	if got := judge(t, e, request{object: object("ReplicationController", "default", "", image("nginx"))}); got != "allowed" {
		t.Errorf("a ReplicationController, which podControllers does not name: %s", got)
	}
	alone := expand(t, strings.Replace(noLatest, "podControllers: true", "", 1), "")
	if got := judge(t, alone, request{object: object("Pod", "default", "", image("nginx"))}); got != denied {
		t.Errorf("a Pod without podControllers: %s", got)
	}
	if got := judge(t, alone, request{object: object("Deployment", "default", "", image("nginx"))}); got != "allowed" {
		t.Errorf("a Deployment without podControllers: %s", got)
	}
}

// TestAPolicyDoesAsItSays judges single requests.
func TestAPolicyDoesAsItSays(t *testing.T) {
	const (
		exclusions = noLatest + `
exclude:
  namespaces: [kube-system]
  users: ["system:serviceaccount:ci:deployer"]
  groups: [ops]
  labels: [legacy, team=infra]
`
		modes = noLatest + `
modeByCluster: {trial: shadow, next: warn}
`
		registries = `
resources: [pods]
clusters: [a, b]
mode: enforce
parameters:
- name: registries
  default: [a.example.com]
  byCluster: {b: [b.example.com, "docker.io"]}
- {name: most, default: 1.5}
validations:
- expression: images.all(image, image.registry in parameters.registries) && parameters.most > 1
  message: unknown registry
  messageExpression: "'registries are ' + parameters.registries.join(', ') // for the client"
  field: image
`
		replicas = `
resources: [deployments]
operations: [CREATE, UPDATE, DELETE]
mode: enforce
validations:
- {expression: object == null || object.spec.replicas < 3, message: too many replicas, reason: Forbidden}
- {expression: "'team' in labels && allContainers.size() < 3 && !has(annotations.old)", message: no team}
`
		fields = `
resources: [pods]
mode: enforce
validations: [{expression: object.spec.nodeName == 'a', message: not there}]
`
		variables = `
resources: [pods]
podControllers: true
mode: enforce
parameters: [{name: tags, default: [latest]}]
variables:
- {name: tags, expression: "images.map(image, image.tag)"}
- {name: bad, expression: "variables.tags.filter(tag, tag in parameters.tags)"}
validations:
- expression: variables.bad == []
  message: bad tags
  messageExpression: "'not ' + variables.bad.join(', ')"
  field: spec.containers
`
		denied = "denied: spec.containers: give each image a tag"
	)
	latest := image("nginx")
	pod := object("Pod", "default", "", latest)
	deployment := func(labels string, replicas int) string {
		return strings.Replace(object("Deployment", "default", labels, latest), "spec: {", fmt.Sprintf("spec: {replicas: %d, ", replicas), 1)
	}
	for _, tc := range []struct {
		name, spec, cluster string
		request             request
		want                string
	}{
		{"An update is judged.", noLatest, "", request{operation: admission.Update, object: pod, old: object("Pod", "default", "", image("nginx:1"))}, denied},
		{"A deletion is not.", noLatest, "", request{operation: admission.Delete, old: pod}, "allowed"},
		{"The update of an object that is being deleted passes.", noLatest, "", request{
			operation: admission.Update, old: pod,
			object: strings.Replace(pod, "name: x,", "name: x, deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 0,", 1),
		}, "allowed"},
		{"An init container is a container.", noLatest, "", request{
			object: object("Pod", "default", "", image("nginx:1")+", initContainers: [{name: b, image: busybox}]"),
		}, denied},
		{"An ephemeral container comes by a subresource.", noLatest, "", request{
			operation: admission.Update, subresource: "ephemeralcontainers", old: object("Pod", "default", "", image("nginx:1")),
			object: object("Pod", "default", "", image("nginx:1")+", ephemeralContainers: [{name: b, image: busybox}]"),
		}, denied},
		{"A container is changed by the subresource resize.", noLatest, "", request{operation: admission.Update, subresource: "resize", object: pod, old: pod}, denied},
		{"The status of a Pod is not judged.", noLatest, "", request{operation: admission.Update, subresource: "status", object: pod, old: pod}, "allowed"},
		{"The image of a volume is an image.", noLatest, "", request{
			object: object("Pod", "default", "", image("nginx:1")+", volumes: [{name: v, image: {reference: data}}]"),
		}, denied},
		{"A digest needs no tag.", noLatest, "", request{object: object("Pod", "default", "", image("nginx@sha256:"+strings.Repeat("a", 64)))}, "allowed"},

		{"Exclusions leave all others.", exclusions, "", request{object: pod, user: "ann", groups: []string{"dev"}}, denied},
		{"A request without a user is not excluded.", exclusions, "", request{object: pod}, denied},
		{"A namespace is excluded.", exclusions, "", request{object: object("Pod", "kube-system", "", latest)}, "allowed"},
		{"A user is excluded.", exclusions, "", request{object: pod, user: "system:serviceaccount:ci:deployer"}, "allowed"},
		{"The members of a group are excluded.", exclusions, "", request{object: pod, user: "ann", groups: []string{"dev", "ops"}}, "allowed"},
		{"A label with any value is excluded.", exclusions, "", request{object: object("Pod", "default", "legacy: 'no'", latest)}, "allowed"},
		{"A label with its value is excluded.", exclusions, "", request{object: object("Deployment", "default", "team: infra", latest)}, "allowed"},
		{"A label with another value is not excluded.", exclusions, "", request{object: object("Pod", "default", "team: web", latest)}, denied},
		{"An update that adds the label is not excluded.", exclusions, "", request{
			operation: admission.Update, old: pod, object: object("Pod", "default", "legacy: ''", latest),
		}, denied},

		{"The mode of a cluster that is not named.", modes, "", request{object: pod}, denied},
		{"The mode of another one.", modes, "other", request{object: pod}, denied},
		{"A cluster in shadow.", modes, "trial", request{object: pod}, "recorded: spec.containers: give each image a tag"},
		{"A cluster that warns.", modes, "next", request{object: pod}, "warned: spec.containers: give each image a tag"},
		{"Without a mode it is in shadow.", strings.Replace(noLatest, "mode: enforce", "", 1), "", request{object: pod}, "recorded: spec.containers: give each image a tag"},

		{"A default of a parameter.", registries, "a", request{object: pod}, "denied: image: registries are a.example.com"},
		{"A value of another cluster.", registries, "b", request{object: pod}, "allowed"},
		{"The registry has a port.", registries, "b", request{
			object: object("Pod", "default", "", image("b.example.com:5000/x")),
		}, "denied: image: registries are b.example.com, docker.io"},

		{"Variables of a Pod.", variables, "", request{object: pod}, "denied: spec.containers: not latest"},
		{"Variables of a Pod template.", variables, "", request{object: deployment("", 2)}, "denied: spec.template.spec.containers: not latest"},
		{"Variables that make it hold.", variables, "", request{object: object("CronJob", "default", "", image("nginx:1"))}, "allowed"},

		{"A validation with a reason.", replicas, "", request{object: deployment("team: a", 4)}, "denied: too many replicas"},
		{"The second validation.", replicas, "", request{object: deployment("", 2)}, "denied: no team"},
		{"Both hold.", replicas, "", request{object: deployment("team: a", 2)}, "allowed"},
		{"The library is about the object that is deleted.", replicas, "", request{operation: admission.Delete, old: deployment("", 2)}, "denied: no team"},
		{"Both hold for it.", replicas, "", request{operation: admission.Delete, old: deployment("team: a", 9)}, "allowed"},

		{"An expression that fails denies.", fields, "", request{object: pod}, "denied: expression 'object.spec.nodeName == 'a'' resulted in error: no such key: nodeName"},
		{"But not with failurePolicy Ignore.", fields + "failurePolicy: Ignore\n", "", request{object: pod}, "allowed"},
		{"And not in shadow.", strings.Replace(fields, "mode: enforce", "mode: shadow", 1), "", request{object: pod}, "recorded: expression 'object.spec.nodeName == 'a'' resulted in error: no such key: nodeName"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := judge(t, expand(t, tc.spec, tc.cluster), tc.request); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
	if e := expand(t, registries, ""); e != nil {
		t.Error("the policy is in force in a cluster that it does not name")
	}
}

func TestValuesOfParametersAreLiteralsOfCEL(t *testing.T) {
	e := expand(t, `
resources: [pods]
parameters:
- {name: a, default: [1, 1.5, -2]}
- {name: b, default: "\"\n\\ü\x01"}
- {name: c, default: [true]}
- {name: d, default: 3}
validations: [{expression: parameters.d > 2, message: m}]
`, "")
	const want = `{"a": dyn([1e+00, 1.5e+00, -2e+00]), "b": dyn("\"\n\\ü\x01"), "c": dyn([true]), "d": dyn(3)}`
	if got := e.Policy.Spec.Variables[0].Expression; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
