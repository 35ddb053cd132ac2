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
