package config

import (
	"strings"
	"testing"
)

// TestADocumentOfAnotherEngineIsNamed has a document of each kind as its authors write it.
func TestADocumentOfAnotherEngineIsNamed(t *testing.T) {
	const (
		validating = "write a Policy of portcullis.dev/v1 or a ValidatingAdmissionPolicy"
		mutating   = "write a MutatingAdmissionPolicy, "
		kyverno    = "belongs to Kyverno and is not judged here: " + validating +
			" or a MutatingAdmissionPolicy, or keep it in Kyverno, whose webhook the mesh can call (docs/coming-from.md#kyverno)"
		kubewarden = "belongs to Kubewarden and is not judged here: " + validating +
			" or a MutatingAdmissionPolicy, or keep it in Kubewarden, whose webhook the mesh can call (docs/coming-from.md#kubewarden)"
		gatekeeper = "belongs to Gatekeeper and is not judged here: "
		webhook    = "or keep it in Gatekeeper, whose webhook the mesh can call (docs/coming-from.md#gatekeeper)"
	)
	for _, test := range []struct{ document, want string }{
		{`apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: require-labels}
spec:
  rules:
  - name: check-team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {failureAction: Enforce, message: "label 'team' is required", pattern: {metadata: {labels: {team: "?*"}}}}
`, `f.yaml:1: ClusterPolicy "require-labels": apiVersion: ClusterPolicy of kyverno.io/v1 ` + kyverno},
		{`apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: add-labels, namespace: shop}
spec:
  rules:
  - name: add
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {foo: bar}}}}
`, "Policy of kyverno.io/v1 " + kyverno},
		{`apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: check-labels}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{message: label, expression: "'env' in object.metadata.?labels.orValue([])"}]
`, "ValidatingPolicy of policies.kyverno.io/v1 " + kyverno},
		{`apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8srequiredlabels}
spec:
  crd: {spec: {names: {kind: K8sRequiredLabels}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package k8srequiredlabels
      violation[{"msg": msg}] { not input.review.object.metadata.labels.team; msg := "team" }
`, "ConstraintTemplate of templates.gatekeeper.sh/v1 " + gatekeeper + validating + ", " + webhook},
		{`apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: all-must-have-owner}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [Namespace]}]}
  parameters: {labels: [{key: owner}]}
`, "K8sRequiredLabels of constraints.gatekeeper.sh/v1beta1 " + gatekeeper + validating + ", " + webhook},
		{`apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: always-pull}
spec:
  applyTo: [{groups: [""], kinds: [Pod], versions: [v1]}]
  location: "spec.containers[name:*].imagePullPolicy"
  parameters: {assign: {value: Always}}
`, "Assign of mutations.gatekeeper.sh/v1 " + gatekeeper + mutating + webhook},
		{`{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "policies.kubewarden.io/v1", "kind": "ClusterAdmissionPolicy", "metadata": {"name": "privileged-pods"}, "spec": {
    "module": "registry://ghcr.io/kubewarden/policies/pod-privileged:v1.0.0", "mutating": false,
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]}}]}
`, `f.yaml:2: ClusterAdmissionPolicy "privileged-pods": items[0].apiVersion: ClusterAdmissionPolicy of policies.kubewarden.io/v1 ` + kubewarden},
		{`apiVersion: policies.kubewarden.io/v1
kind: AdmissionPolicy
metadata: {name: no-host-network, namespace: shop}
spec: {module: "registry://ghcr.io/kubewarden/policies/host-namespaces-psp:v1.0.0", mutating: false}
`, "AdmissionPolicy of policies.kubewarden.io/v1 " + kubewarden},
		{`# no privileged Pods

package kubernetes.admission

deny contains msg if { input.request.kind.kind == "Pod"; msg := "no" }
`, "a module in Rego belongs to Open Policy Agent and is not judged here: " + validating +
			", or keep it in Open Policy Agent, whose webhook the mesh can call (docs/coming-from.md#open-policy-agent)"},
		{"\x1f\x8b\x08\x00\x00\x00", "the file is a gzip archive, which is not read: unpack it; of Open Policy Agent's bundles nothing is judged here"},
		{
			"apiVersion: example.notkyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\n",
			"ClusterPolicy of example.notkyverno.io/v1 is not read: it is a manifest, ",
		},
		{"package foo: bar\n", "Required value: docs/configuration-reference.md has the kinds that are read"},
	} {
		objects, problems := decode("f.yaml", []byte(test.document))

		if err := problems.Err(); len(objects) != 0 || len(problems) != 1 || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d objects and %q, want one error %q", len(objects), lines(problems), test.want)
		}
	}
	if _, problems := decode("conf.d/policy.rego", nil); len(problems) != 1 || !strings.Contains(problems[0].Message, "a file .rego belongs to Open Policy Agent") {
		t.Errorf("a file in Rego: %q", lines(problems))
	}
}
