package lint_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// budget is the time that API servers wait in these tests.
const budget = 14 * time.Second

// found are the problems of documents, but those about hosts, each as code, place and message.
func found(t *testing.T, documents ...string) []string {
	t.Helper()
	objects, problems := configtest.Decode("", []byte(strings.Join(documents, "\n---\n")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, problems := config.Compile("1", objects)
	problems = append(problems, lint.Options{MutateBudget: budget}.Inspect(t.Context(), snapshot, objects)...)
	var out []string
	for _, p := range problems {
		if p.Code != "no-host" {
			out = append(out, p.Code+": "+p.String())
		}
	}
	return out
}

// expect holds the findings against patterns: a finding must contain the texts between stars, in that order.
func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("found %d, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i, pattern := range want {
		rest := got[i]
		for part := range strings.SplitSeq(pattern, "*") {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("found %s\nwant  %s", got[i], pattern)
				break
			}
			rest = after
		}
	}
}

// mutatingPolicy is a MutatingAdmissionPolicy on Deployments with its binding.
func mutatingPolicy(name string) string {
	return `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: ` + name + `}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[]'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: ` + name + `}
spec: {policyName: ` + name + `}`
}

// hook is a hook, with the fields that more replaces.
func hook(name string, more ...string) string {
	fields := []string{
		"admissionReviewVersions: [v1]", "sideEffects: None", "clientConfig: {url: 'https://a.example.com'}",
		"rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]",
	}
	for _, m := range more {
		key, _, _ := strings.Cut(m, ":")
		for i, f := range fields {
			if strings.HasPrefix(f, key+":") {
				fields[i] = ""
			}
		}
	}
	text := "- name: " + name + ".example.com\n"
	for _, f := range append(fields, more...) {
		if f != "" {
			text += "  " + strings.ReplaceAll(f, "\n", "\n  ") + "\n"
		}
	}
	return text
}

func configuration(kind, name string, hooks ...string) string {
	return fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1\nkind: %sWebhookConfiguration\nmetadata: {name: %s}\nwebhooks:\n%s",
		kind, name, strings.Join(hooks, ""))
}

func route(name, spec string) string {
	return fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: %s}\nspec: {%s}", name, spec)
}

func clusterNamed(name string) string {
	return fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s}\nspec: {identities: [a]}", name)
}

// rule is a rule with one resource.
func rule(operation, group, resource, more string) string {
	quoted := func(list string) string { return `"` + strings.ReplaceAll(list, ", ", `", "`) + `"` }
	return fmt.Sprintf("rules: [{operations: [%s], apiGroups: [%s], apiVersions: [v1], resources: [%s]%s}]",
		quoted(operation), quoted(group), quoted(resource), more)
}

func TestHooksThatNoRequestMatches(t *testing.T) {
	const at = `never-matches: ValidatingWebhookConfiguration "p": webhooks[0]`
	for name, tt := range map[string]struct{ hook, want string }{
		"nothing is wrong":  {rule("CREATE", "apps", "deployments", ""), ""},
		"no rules":          {"rules: []", at + ".rules: there are no rules*name operations"},
		"a kind":            {rule("CREATE", "example.com", "Widget", ""), at + `.rules[0].resources[0]: *"Widget"*lower case and in the plural*: widget`},
		"another group":     {rule("CREATE", "", "deployments", ""), at + ".rules[0].resources[0]: *write apiGroups: [apps]"},
		"its own kind":      {rule("CREATE", "admissionregistration.k8s.io", "validatingwebhookconfigurations", ""), at + ".rules[0].resources[0]: *hooks never see it"},
		"connect to Pods":   {rule("CONNECT", "", "pods", ""), at + `.rules[0].resources[0]: *"pods": the API has CREATE, UPDATE, DELETE of it, and the rule is for CONNECT`},
		"connect to exec":   {rule("CONNECT", "", "pods/exec", ""), ""},
		"connect to any":    {rule("CONNECT", "", "pods/*", ""), ""},
		"connect elsewhere": {rule("CONNECT", "example.com", "widgets", ""), ""},
		"update or connect": {
			rule("UPDATE, CONNECT", "", "pods", ""), at + ".rules[0].operations[1]: the hook is never called for CONNECT: the API has it of no resource",
		},
		"the group of a subresource's kind": {rule("UPDATE", "autoscaling", "deployments/scale", ""), at + `.rules[0].resources[0]: *"deployments/scale": it is in the group apps: write apiGroups: [apps]`},
		"that of evictions":                 {rule("CREATE", "policy", "pods/eviction", ""), at + `.rules[0].resources[0]: *it is in the core group: write apiGroups: [""]`},
		"an update of an eviction":          {rule("UPDATE", "", "pods/eviction", ""), at + `.rules[0].resources[0]: *the API has CREATE of it, and the rule is for UPDATE`},
		"a creation of exec":                {rule("CREATE, UPDATE", "", "pods/exec", ""), at + `.rules[0].resources[0]: *the API has CONNECT of it`},
		"logs, which are read":              {rule("*", "", "pods/log", ""), at + `.rules[0].resources[0]: *the API has no operation of it`},
		"a status that is created":          {rule("CREATE, DELETE", "apps", "deployments/status", ""), at + `.rules[0].resources[0]: *the API has UPDATE of it`},
		"a subresource that there is not":   {rule("*", "", "pods/scale", ""), at + `.rules[0].resources[0]: *there is no such subresource, but attach, binding,`},
		"a subresource of any":              {rule("*", "apps", "*/exec", ""), at + `.rules[0].resources[0]: *there is no such subresource`},
		"the singular":                      {rule("CREATE", "", "pod", ""), at + `.rules[0].resources[0]: *write pods`},
		"the singular in ies":               {rule("CREATE", "networking.k8s.io", "networkpolicy", ""), at + `.rules[0].resources[0]: *write networkpolicies`},
		"a kind of Kubernetes":              {rule("CREATE", "networking.k8s.io", "Ingress", ""), at + `.rules[0].resources[0]: *ingresses`},
		"a version in the group":            {rule("CREATE", "apps/v1", "deployments", ""), at + `.rules[0].apiGroups[0]: *write apiGroups: [apps], apiVersions: [v1]`},
		"a version for the group":           {rule("CREATE", "v1", "pods", ""), at + `.rules[0].apiGroups[0]: *it is a version: write apiGroups: [""]`},
		"the core group by a name":          {rule("CREATE", "core", "pods", ""), at + `.rules[0].apiGroups[0]: *write apiGroups: [""]`},
		"Deployments of no namespace":       {rule("CREATE", "apps", "deployments", ", scope: Cluster"), at + ".rules[0].resources[0]: *write scope: Namespaced"},
		"what is in no namespace, in one":   {rule("CREATE", "rbac.authorization.k8s.io", "clusterroles", ", scope: Namespaced"), at + ".rules[0].resources[0]: *write scope: Cluster"},
		"of two groups, one has it":         {rule("CREATE", ", apps", "deployments", ""), ""},
		"of two groups, neither has it":     {rule("CREATE", ", batch", "deployments", ""), at + `.rules[0].resources[0]: *it is in the group apps`},
		"a group of which nothing is known": {rule("CREATE", ", example.com", "deployments", ""), ""},
		"a group without what a wildcard names": {
			rule("UPDATE", "apps, batch", "*/scale", ""), at + `.rules[0].apiGroups[1]: the hook is never called for the group "batch": no request for */scale in it`,
		},
		"a group that a wildcard has":           {rule("UPDATE", "apps, batch", "*/scale, */status", ""), ""},
		"a group that the scope leaves out":     {rule("CREATE", "apps, rbac.authorization.k8s.io", "*", ", scope: Cluster"), at + `.rules[0].apiGroups[0]: *"apps"`},
		"the singular, in any group":            {rule("CREATE", "*", "pod", ""), at + `.rules[0].resources[0]: *never called for "pod", unless an API of others has it: *write pods`},
		"an eviction, updated in any group":     {rule("UPDATE", "*", "pods/eviction", ""), at + `.rules[0].resources[0]: *unless an API of others has it: the API has CREATE of it`},
		"no such subresource in any group":      {rule("UPDATE", "*", "pods/scale", ""), at + `.rules[0].resources[0]: *unless an API of others has it: there is no such subresource`},
		"Pods of no namespace, in any group":    {rule("CREATE", "*", "pods", ", scope: Cluster"), at + `.rules[0].resources[0]: *write scope: Namespaced`},
		"an operation that no group has":        {rule("UPDATE, CONNECT", "*", "pods", ""), at + ".rules[0].operations[1]: *never called for CONNECT"},
		"a subresource of any, in any group":    {rule("CREATE", "*", "*/approval", ""), ""},
		"a resource of others, in any group":    {rule("CREATE", "*", "widgets", ""), ""},
		"a resource of a later release":         {rule("CREATE", "storage.k8s.io", "tapes", ""), ""},
		"labels of what is sent to connect":     {rule("CONNECT", "", "pods/exec", "") + "\nobjectSelector: {matchLabels: {a: b}}", at + `.rules[0].resources[0]: *objects that are sent to connect have no labels`},
		"labels that may be absent, to connect": {rule("CONNECT", "", "pods/exec", "") + "\nobjectSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}", at + `.rules[0].resources[0]: *objects that are sent to connect have no labels`},
		"labels of an eviction":                 {rule("CREATE", "", "pods/eviction", "") + "\nobjectSelector: {matchLabels: {a: b}}", at + `.rules[0].resources[0]: the hook is hardly ever called for "pods/eviction": the objectSelector sees`},
		"labels that an eviction may lack":      {rule("CREATE", "", "pods/eviction", "") + "\nobjectSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}", ""},
		"labels of Pods, and of what connects":  {rule("*", "", "pods, pods/exec", "") + "\nobjectSelector: {matchLabels: {a: b}}", at + `.rules[0].resources[1]: *objects that are sent to connect have no labels`},
		"Pods of no namespace":                  {rule("CREATE", "", "pods", ", scope: Cluster"), at + ".rules[0].resources[0]: *write scope: Namespaced"},
		"nodes in namespaces":                   {rule("CREATE", "", "nodes", ", scope: Namespaced"), at + ".rules[0].resources[0]: *write scope: Cluster"},
		"custom resources":                      {rule("CREATE", "example.com", "nodes", ", scope: Namespaced"), ""},
		"an objectSelector that contradicts itself": {
			"objectSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}", at + ".objectSelector: *exclude each other*never called;",
		},
		"a namespaceSelector that contradicts itself": {
			"namespaceSelector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: In, values: [c]}]}",
			at + ".namespaceSelector: *exclude each other*never called for an object in a namespace",
		},
		"present and absent": {
			"objectSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}", at + ".objectSelector: ",
		},
		"absent, and not with a value": {
			"objectSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}, {key: a, operator: DoesNotExist}]}", "",
		},
		"one value is left": {
			"objectSelector: {matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: a, operator: NotIn, values: [b]}]}", "",
		},
		"a condition that is false":           {`matchConditions: [{name: never, expression: "false"}]`, at + ".matchConditions[0].expression: it is false whatever the request"},
		"one that computes it":                {`matchConditions: [{name: never, expression: "request.name == 'a' && !(true || false)"}]`, at + ".matchConditions[0].expression: "},
		"one that says it in numbers":         {`matchConditions: [{name: never, expression: "1 > 2"}]`, at + ".matchConditions[0].expression: "},
		"one that is true":                    {`matchConditions: [{name: always, expression: "true || false"}]`, ""},
		"one that depends":                    {`matchConditions: [{name: dep, expression: "has(object.spec) && object.spec.replicas > 1"}]`, ""},
		"one with functions of Kubernetes":    {`matchConditions: [{name: fn, expression: "'a-b'.find('[0-9]') == 'b' && request.name == 'x'"}]`, ""},
		"one of which some parts are unknown": {`matchConditions: [{name: u, expression: "!(request.resource.resource in ['leases'])"}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := found(t, configuration("Validating", "p", hook("p", tt.hook, "failurePolicy: Ignore")))
			if tt.want == "" {
				expect(t, got)
				return
			}
			expect(t, got, tt.want)
		})
	}
}

func TestAFindingNamesTheFieldAsItIsWritten(t *testing.T) {
	expect(t, found(t, `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: old}
externalAdmissionHooks:
- name: old.example.com
  clientConfig: {service: {namespace: a, name: b}}`),
		`never-matches: ExternalAdmissionHookConfiguration "old": externalAdmissionHooks[0].rules: there are no rules`)
}

func TestRoutesForClustersThatNobodyDeclares(t *testing.T) {
	policy := configuration("Validating", "p", hook("p"))
	expect(t, found(t, policy, clusterNamed("a"), route("r", "configuration: p, clusters: [a]")))
	expect(t, found(t, policy, clusterNamed("a"), route("r", "configuration: p, clusters: [b, a]")),
		`no-cluster: HookRoute "r": spec.clusters: there is no Cluster document for b, so that the hook is not called for them`)
	expect(t, found(t, policy, clusterNamed("a"), route("r", "configuration: p, clusters: [b, c, d, e, f, g]")),
		`no-cluster: *for b, c, d, e, f and 1 more, so that the hook is never called: mend the names`)
}

func TestRoutesThatSayNothing(t *testing.T) {
	policy := configuration("Validating", "p", hook("p"))
	expect(t, found(t, policy, route("r", "configuration: q")), `route-unused: HookRoute "r": spec.configuration: `)
	expect(t, found(t, policy, route("r", "configuration: p, hook: q.example.com")), `route-unused: HookRoute "r": spec.hook: `)
	expect(t, found(t, policy, route("r", "configuration: p"), route("s", "configuration: p, hook: p.example.com")),
		`route-overridden: HookRoute "r": every hook that it names has a more precise HookRoute`)
}

func TestHooksOfOneName(t *testing.T) {
	validating := func(name, hooks string) string { return configuration("Validating", name, hooks) }
	expect(t, found(t, validating("a", hook("x")), configuration("Mutating", "a", hook("x", "timeoutSeconds: 1"))))
	expect(t, found(t, validating("a", hook("x")), validating("b", hook("x"))),
		`same-name: ValidatingWebhookConfiguration "b": webhooks[0].name: "x.example.com" is the name of ValidatingWebhookConfiguration/a webhooks[0] too`)
	beta := strings.Replace(validating("a", hook("x")+hook("y")+hook("x")), "k8s.io/v1", "k8s.io/v1beta1", 1)
	expect(t, found(t, beta), `same-name: *webhooks[2].name: *webhooks[0] too`)
	east, west := route("a", "configuration: a, clusters: [east]"), route("b", "configuration: b, clusters: [west]")
	both := []string{validating("a", hook("x")), validating("b", hook("x")), clusterNamed("east"), clusterNamed("west")}
	expect(t, found(t, append(both, east, west)...))
	expect(t, found(t, append(both, west)...), `same-name: *"b": webhooks[0].name: *ValidatingWebhookConfiguration/a webhooks[0] too`)
	expect(t, found(t, append(both, east, strings.Replace(west, "[west]", "[west, east]", 1))...), `same-name: *"b": webhooks[0].name: `)
}

func TestMutatingHooksThatNeedTooMuchTimeTogether(t *testing.T) {
	mutating := func(name string, hooks ...string) string { return configuration("Mutating", name, hooks...) }
	pods := rule("CREATE", "apps", "deployments", "")
	for name, tt := range map[string]struct {
		documents []string
		want      string
	}{
		"as much as there is": {[]string{mutating("a", hook("x", "timeoutSeconds: 7"), hook("y", "timeoutSeconds: 7"))}, ""},
		"a second too much": {
			[]string{mutating("a", hook("x", "timeoutSeconds: 7")), mutating("b", hook("y", "timeoutSeconds: 8"), hook("z", "timeoutSeconds: 1"))},
			`timeout-budget: MutatingWebhookConfiguration "b": webhooks[0].timeoutSeconds: CREATE of deployments.apps in namespace sample may have to wait ` +
				`16s *(x.example.com 7s, y.example.com 8s, z.example.com 1s), and API servers wait 14s*spec.timeout of a HookRoute`,
		},
		"one that fails open does not count": {
			[]string{mutating("a", hook("x", "timeoutSeconds: 10"), hook("y", "timeoutSeconds: 10", "failurePolicy: Ignore"))}, "",
		},
		"one in shadow neither": {
			[]string{mutating("a", hook("x", "timeoutSeconds: 10"), hook("y", "timeoutSeconds: 10")), route("r", "configuration: a, hook: y.example.com, shadow: true")}, "",
		},
		"validating ones are called at the same time": {[]string{configuration("Validating", "a", hook("x"), hook("y"))}, ""},
		"a route gives less":                          {[]string{mutating("a", hook("x"), hook("y")), route("r", "configuration: a, timeout: 500ms")}, ""},
		"one that is called again counts twice": {
			[]string{mutating("a", hook("x", "timeoutSeconds: 8", "reinvocationPolicy: IfNeeded"))}, `timeout-budget: *webhooks[0].timeoutSeconds: *wait 16s`,
		},
		"of other resources": {[]string{mutating("a", hook("x"), hook("y", rule("CREATE", "apps", "daemonsets", "")))}, ""},
		"for everything": {
			[]string{mutating("a", hook("x"), hook("y", `rules: [{operations: [CREATE], apiGroups: ["apps"], apiVersions: ["*"], resources: ["*/*"]}]`, "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}", "matchConditions: [{name: c, expression: \"request.resource.group == 'apps'\"}]"))},
			`timeout-budget: *CREATE of deployments.apps in namespace sample may have to wait 20s`,
		},
		"of other namespaces": {
			[]string{mutating("a", hook("x", "namespaceSelector: {matchLabels: {team: a}}"), hook("y", "namespaceSelector: {matchLabels: {team: b}}"))}, "",
		},
		"of the same namespaces": {
			[]string{mutating("a", hook("x", "namespaceSelector: {matchLabels: {team: a}}"), hook("y", "namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}"))},
			`timeout-budget: *in namespace sample with labels {"team":"a"}*`,
		},
		"of objects that ask for it": {
			[]string{mutating("a", hook("x", "objectSelector: {matchLabels: {inject: 'yes'}}"), hook("y", pods))}, `timeout-budget: *deployments.apps with labels {"inject":"yes"} in namespace`,
		},
		"of one cluster": {
			[]string{mutating("a", hook("x")), mutating("b", hook("y")), clusterNamed("east"), route("r", "configuration: b, clusters: [east]")},
			`timeout-budget: *of cluster east may have to wait 20s`,
		},
		"policies are not called": {
			[]string{mutating("a", hook("x")), mutatingPolicy("p"), mutatingPolicy("q")}, "",
		},
		"of two clusters": {
			[]string{mutating("a", hook("x")), mutating("b", hook("y")), clusterNamed("east"), clusterNamed("west"),
				route("r", "configuration: b, clusters: [east]"), route("s", "configuration: a, clusters: [west]")}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.want == "" {
				expect(t, found(t, tt.documents...))
				return
			}
			expect(t, found(t, tt.documents...), tt.want)
		})
	}
}

func TestDangersAreAmongTheProblems(t *testing.T) {
	expect(t, found(t, configuration("Validating", "a", hook("x", rule("CREATE", "", "nodes", "")))),
		`danger-nodes: ValidatingWebhookConfiguration "a": webhooks[0].failurePolicy: hook "x.example.com" fails closed`)
}

func TestAPanicIsAFinding(t *testing.T) {
	objects, problems := configtest.Decode("", []byte(configuration("Mutating", "a", hook("x"), hook("y", rule("CREATE", "", "nodes", "")))))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := config.Compile("1", objects)
	panics := func() lint.Authorities { panic("asked") }
	problems = lint.Options{MutateBudget: budget, Authorities: panics}.Inspect(t.Context(), snapshot, objects)
	if err := problems.Err(); err != nil {
		t.Error(err)
	}
	codes := []string{}
	for _, p := range problems {
		codes = append(codes, p.Code)
	}
	if diff := cmp.Diff([]string{"danger-nodes", "internal"}, codes); diff != "" {
		t.Errorf("codes (-want +got):\n%s\n%v", diff, problems)
	}
}
