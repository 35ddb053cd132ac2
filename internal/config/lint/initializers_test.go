package lint_test

import (
	"fmt"
	"strings"
	"testing"
)

// initializers is an InitializerConfiguration whose initializers fail closed and act on a resource of a group.
func initializers(name, group, resource string, names ...string) string {
	text := fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1alpha1\nkind: InitializerConfiguration\nmetadata: {name: %s}\ninitializers:\n", name)
	for _, n := range names {
		text += fmt.Sprintf("- name: %s.example.com\n  failurePolicy: Fail\n  rules: [{apiGroups: ['%s'], apiVersions: ['*'], resources: ['%s']}]\n", n, group, resource)
	}
	return text
}

func TestInitializersThatNeedTooMuchTimeTogether(t *testing.T) {
	three := initializers("init", "apps", "deployments", "a", "b", "c") // 5s each
	open := strings.Replace(three, "failurePolicy: Fail", "failurePolicy: Ignore", 1)
	for name, tc := range map[string]struct {
		documents []string
		want      []string
	}{
		"initializers alone exceed the budget": {
			[]string{three},
			[]string{`timeout-budget: InitializerConfiguration "init": initializers[2]: CREATE of deployments.apps in namespace sample may have to wait 15s *` +
				`(a.example.com 5s, b.example.com 5s, c.example.com 5s)*spec.timeout of a HookRoute`},
		},
		"initializers that fail open are left out when the time is short": {[]string{open}, nil},
		"a mutating hook behind initializers exceeds it": {
			[]string{open, configuration("Mutating", "m", hook("x", "timeoutSeconds: 5"))},
			[]string{`timeout-budget: MutatingWebhookConfiguration "m": webhooks[0].timeoutSeconds: *wait 15s*b.example.com 5s, c.example.com 5s, x.example.com 5s*`},
		},
		"of two that act at the same time, the slower one counts": {
			[]string{three, "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: r}\nspec: {configuration: init, stage: initialize, hosts: [h], stream: {}, parallel: true}\n"}, nil,
		},
		"a shorter timeout by a route": {
			[]string{three, "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: r}\nspec: {configuration: init, stage: initialize, hosts: [h], timeout: 4s}\n"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var closed []string
			for _, d := range tc.documents {
				closed = append(closed, strings.TrimSpace(d))
			}
			got := found(t, closed...)
			expect(t, got, tc.want...)
		})
	}
}

func TestAFailClosedInitializerIsADangerAsAHookIs(t *testing.T) {
	expect(t, found(t, initializers("init", "", "pods", "a")), `danger-kube-system: InitializerConfiguration "init": initializers[0].failurePolicy: *a.example.com*CREATE pods kube-system/a-1*`)
	expect(t, found(t, initializers("init", "coordination.k8s.io", "leases", "a")), `danger-leases: *initializers[0].failurePolicy: *CREATE leases kube-system/kube-scheduler*`)
	open := strings.ReplaceAll(initializers("init", "", "pods", "a"), "Fail", "Ignore")
	expect(t, found(t, open))
}

func TestAnInitializerThatFailsOpenIsNoDangerOfOthers(t *testing.T) {
	const cluster = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: east}\nspec: {identities: [east], namespaces: {static: {kube-system: {}}}"
	leavesOut := configuration("Mutating", "m", hook("x", "rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]",
		"namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}"))
	open := strings.ReplaceAll(initializers("init", "", "pods", "a"), "Fail", "Ignore")
	expect(t, found(t, leavesOut, cluster+"}"))
	expect(t, found(t, leavesOut, open, cluster+"}"))
	closed := initializers("init", "", "pods", "a")
	expect(t, found(t, closed, cluster+"}"), `danger-kube-system: InitializerConfiguration "init": *spec.bypass.namespaces of each Cluster*`)
	expect(t, found(t, closed, cluster+", bypass: {namespaces: [kube-system]}}"))
}

func TestAConditionKeepsAWriteOutOnlyIfInitializersHaveItToo(t *testing.T) {
	leavesOut := configuration("Mutating", "m", hook("x",
		"rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]",
		"matchConditions: [{name: namespaces, expression: \"request.namespace != 'kube-system'\"}]"))
	expect(t, found(t, leavesOut))
	open := strings.ReplaceAll(initializers("init", "apps", "deployments", "a"), "Fail", "Ignore")
	expect(t, found(t, leavesOut, open), `danger-kube-system: MutatingWebhookConfiguration "m"*`)
}

func TestWildcardsOfInitializersDoNotCoverSecrets(t *testing.T) {
	open := strings.ReplaceAll(initializers("init", "*", "*", "a"), "Fail", "Ignore")
	expect(t, found(t, open), `wildcard: InitializerConfiguration "init": initializers[0].rules[0].resources: *not called for leases and events and secrets*`)
	core := strings.ReplaceAll(initializers("init", "apps", "*", "a"), "Fail", "Ignore")
	expect(t, found(t, core))
}

func TestInitializersOfOneName(t *testing.T) {
	open := strings.ReplaceAll(initializers("one", "apps", "deployments", "a")+"---\n"+initializers("two", "apps", "deployments", "a"), "Fail", "Ignore")
	expect(t, found(t, open), `same-name: InitializerConfiguration "two": initializers[0].name: *InitializerConfiguration/one*`)
}

func TestHostsThatRunInAClusterThatIsNotDeclared(t *testing.T) {
	open := strings.ReplaceAll(initializers("one", "apps", "deployments", "a"), "Fail", "Ignore")
	expect(t, found(t, open, clusterNamed("a"), route("r", "configuration: one, stage: initialize, hosts: [h], hostClusters: [a]")))
	expect(t, found(t, open, clusterNamed("a"), route("r", "configuration: one, stage: initialize, hosts: [h], hostClusters: [a, b]")),
		`no-cluster: HookRoute "r": spec.hostClusters: there is no Cluster document for b, so that no Pod of a host is left alone there: mend*`)
	policy := configuration("Validating", "p", hook("p"))
	expect(t, found(t, policy, clusterNamed("a"), route("r", "configuration: p, hostClusters: [a]")),
		`no-effect: HookRoute "r": spec.hostClusters: *is no initializer*`)
}
