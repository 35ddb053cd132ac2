package lint_test

import "testing"

// TestAPolicyThatDiffersByClusterIsOneDocument has a policy with a hook for each of two clusters.
func TestAPolicyThatDiffersByClusterIsOneDocument(t *testing.T) {
	policy := func(spec string) string {
		return "apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  resources: [pods]\n  validations: [{expression: 'true', message: m}]\n  " + spec
	}
	clusters := []string{clusterNamed("a"), clusterNamed("b")}
	for spec, want := range map[string][]string{
		"modeByCluster: {a: enforce, b: enforce}":                                                                       {`danger-kube-system: *"p": spec.failurePolicy: *spec.exclude.namespaces*`},
		"modeByCluster: {a: warn, b: shadow}":                                                                           nil,
		"exclude: {namespaces: [kube-system]}\n  modeByCluster: {a: enforce, b: enforce}":                               nil,
		"clusters: [a, z]\n  parameters: [{name: x, byCluster: {a: 1, z: 2}}]":                                          {`no-cluster: *"p": spec.clusters: *for z, *`},
		"exclude: {namespaces: [kube-system], labels: [x]}\n  mode: enforce\n  modeByCluster: {a: enforce, b: enforce}": nil,
	} {
		t.Run(spec, func(t *testing.T) { expect(t, found(t, append(clusters, policy(spec))...), want...) })
	}
}

// TestTheDangersOfAPolicyAreThoseOfItsBindings if these leave namespaces out together, as the entries do.
func TestTheDangersOfAPolicyAreThoseOfItsBindings(t *testing.T) {
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "true"}]
`
	binding := func(name, resources string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: " + name +
			"}\nspec: {policyName: p, validationActions: [Deny], matchResources: {" + resources + "}}\n"
	}
	const others = "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}"
	const danger = `danger-kube-system: *"p": spec.failurePolicy: *kube-system/*`
	for name, of := range map[string]struct{ bindings, want []string }{
		"the binding leaves kube-system out":     {[]string{binding("a", others)}, nil},
		"both bindings leave it out":             {[]string{binding("a", others), binding("b", others)}, nil},
		"one of two does not":                    {[]string{binding("a", others), binding("b", "")}, []string{danger}},
		"its rules alone, which entries lack":    {[]string{binding("a", `resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]`)}, []string{danger}},
		"the binding is for all":                 {[]string{binding("a", "")}, []string{danger}},
		"a label of namespaces, kube-system too": {[]string{binding("a", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}")}, []string{danger}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, found(t, append([]string{policy}, of.bindings...)...), of.want...) })
	}
}
