package cluster

import (
	"strings"
	"testing"
)

// TestClusterRegisterNamesThePermissionsOfParams has policies with params of a built-in kind, and of a custom kind without a document.
func TestClusterRegisterNamesThePermissionsOfParams(t *testing.T) {
	policy := func(name, kind, routes string) string {
		return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: ` + name + `}
spec:
  paramKind: {` + kind + `}
  matchConstraints:
    namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: params.metadata.name != object.metadata.name}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: ` + name + `}
spec: {policyName: ` + name + `, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}
---
` + routes
	}
	dir := configuration(t, map[string]string{"mesh.yaml": registeredMesh, "hooks.yaml": registeredHooks, "policies.yaml": policy("few", "apiVersion: v1, kind: ConfigMap", "") +
		policy("small", "apiVersion: v1, kind: ConfigMap", "") + policy("cheap", "apiVersion: example.com/v1, kind: Policy", "") +
		policy("elsewhere", "apiVersion: v1, kind: Secret", `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: elsewhere}
spec: {configuration: ValidatingAdmissionPolicy/elsewhere, clusters: [prod-2]}
`)})

	r := register(t, "prod-1", "--config", dir, "--url", "https://mesh.example.com:8443")

	var got []string
	for line := range strings.Lines(r.Notes) {
		if strings.Contains(line, "params") {
			got = append(got, line)
		}
	}
	const rest = ", verbs: [list]}, if it has none: without it the bindings fail, by failurePolicy\n"
	const who = `give the identity of the mesh in cluster "prod-1" a ClusterRole with the rule {apiGroups: `
	want := []string{
		"info: params of ValidatingAdmissionPolicy/cheap: " + who + `["example.com"], resources: [policies]` + rest,
		"info: params of ValidatingAdmissionPolicy/few and 1 more: " + who + `[""], resources: [configmaps]` + rest,
	}
	if r.Code != 0 || strings.Join(got, "") != strings.Join(want, "") {
		t.Errorf("exit code %d, notes:\n%s", r.Code, r.Notes)
	}
}
