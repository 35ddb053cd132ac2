package lint_test

import (
	"strings"
	"testing"
)

// TestParamsOfTheConfigurationThatNoPolicyFinds has policies, bindings and params that do not fit together.
func TestParamsOfTheConfigurationThatNoPolicyFinds(t *testing.T) {
	policy := func(kind string) string {
		return `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  paramKind: ` + kind + `
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: "params.spec.most > 1"}]
  failurePolicy: Ignore
`
	}
	binding := func(ref string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\n" +
			"spec: {policyName: p, validationActions: [Warn], paramRef: {" + ref + "}}\n"
	}
	const limit = "{apiVersion: example.com/v1, kind: Limit}"
	const params = `apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: limits}
spec:
  objects:
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: x, namespace: ns}}
`
	for name, of := range map[string]struct {
		policy, ref string
		want        []string
	}{
		"found by name":           {limit, "name: x, parameterNotFoundAction: Deny", nil},
		"found in its namespace":  {limit, "name: x, namespace: ns, parameterNotFoundAction: Deny", nil},
		"in another namespace":    {limit, "name: x, namespace: other, parameterNotFoundAction: Deny", []string{`params-missing: *"b": spec.paramRef: *Limit "x"*`}},
		"of another name":         {limit, "name: z, parameterNotFoundAction: Deny", []string{`params-missing: *"b": spec.paramRef: *Limit "z"*`}},
		"missing, and allowed":    {limit, "name: z, parameterNotFoundAction: Allow", nil},
		"selected":                {limit, "selector: {}, parameterNotFoundAction: Deny", nil},
		"of another version":      {"{apiVersion: example.com/v2, kind: Limit}", "name: z, parameterNotFoundAction: Deny", []string{`params: *`, `params-unused: *"limits": spec.objects[0]: *example.com/v2*write the objects so`}},
		"of a kind that none has": {"{apiVersion: example.com/v1, kind: Other}", "name: z, parameterNotFoundAction: Deny", []string{`params: *`, `params-unused: *"limits": spec.objects[0]: *kind Limit of example.com/v1*remove the objects`}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, found(t, clusterNamed("a"), policy(of.policy), binding(of.ref), params), of.want...)
		})
	}
	t.Run("an unknown cluster", func(t *testing.T) {
		expect(t, found(t, policy(limit), binding("name: x, parameterNotFoundAction: Deny"), strings.Replace(params, "objects:", "clusters: [a]\n  objects:", 1)), `params: *`, `no-cluster: *"limits": spec.clusters: *for a, *`)
	})
}
