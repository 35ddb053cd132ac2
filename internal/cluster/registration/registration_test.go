package registration_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// text is a registration with its findings.
func text(t *testing.T, r *registration.Registration) string {
	t.Helper()
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString("# " + f.String() + "\n")
	}
	for _, object := range []any{r.Mutating, r.Validating} {
		data, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n" + string(data))
	}
	return b.String()
}

func TestPlanOfRealisticConfigurations(t *testing.T) {
	for _, name := range []string{"usual", "wildcards", "reinvocation", "selectors"} {
		t.Run(name, func(t *testing.T) {
			input, err := os.ReadFile("testdata/" + name + ".input.yaml")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".golden.yaml", text(t, plan(t, snapshot(t, strings.Split(string(input), "\n---\n")...), options())))
		})
	}
}

// hook is a configuration with one webhook, in YAML.
type hook struct {
	kind, name, policy, effects, reinvocation string
	exact                                     bool   // matchPolicy
	namespace                                 string // the only namespace that is selected; empty for all
	namespaces, objects                       string // selectors, as kubectl reads them; empty for all
	rules                                     string // as rule reads them
	timeout                                   int
	conditions                                []string // expressions of matchConditions
}

// matchConditions have names that no two of them share.
func (h hook) matchConditions() []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	for i, expression := range h.conditions {
		all = append(all, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: expression})
	}
	return all
}

func (h hook) document() *match.Object {
	policy := admissionregistrationv1.Fail
	if h.policy == "Ignore" {
		policy = admissionregistrationv1.Ignore
	}
	effects := admissionregistrationv1.SideEffectClassNone
	if h.effects != "" {
		effects = admissionregistrationv1.SideEffectClass(h.effects)
	}
	seconds := int32(max(h.timeout, 1))
	matching := admissionregistrationv1.Equivalent
	if h.exact {
		matching = admissionregistrationv1.Exact
	}
	var rules []admissionregistrationv1.RuleWithOperations
	for _, r := range strings.Fields(h.rules) {
		rules = append(rules, rule(r))
	}
	selector := &metav1.LabelSelector{}
	if h.namespace != "" {
		selector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": h.namespace}
	}
	if h.namespaces != "" {
		selector = parsed(h.namespaces)
	}
	objects := parsed(h.objects)
	object := &match.Object{Initializes: h.kind == "initializing"}
	if object.Initializes { // such a document says no more than this
		selector, objects, matching = &metav1.LabelSelector{}, &metav1.LabelSelector{}, admissionregistrationv1.Exact
		for i := range rules {
			rules[i].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
		}
	}
	if h.kind == "mutating" || object.Initializes {
		again, conditions := admissionregistrationv1.ReinvocationPolicyType(h.reinvocation), h.matchConditions()
		if object.Initializes {
			again, conditions = admissionregistrationv1.NeverReinvocationPolicy, nil
		}
		object.Mutating = &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: h.name + ".example.com", Rules: rules, FailurePolicy: &policy, SideEffects: &effects, TimeoutSeconds: &seconds, NamespaceSelector: selector,
			MatchPolicy:        &matching,
			ReinvocationPolicy: &again,
			ObjectSelector:     objects,
			MatchConditions:    conditions,
		}}}
		object.Mutating.Name = h.name
		return object
	}
	object.Validating = &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: h.name + ".example.com", Rules: rules, FailurePolicy: &policy, SideEffects: &effects, TimeoutSeconds: &seconds, NamespaceSelector: selector,
		MatchPolicy: &matching, MatchConditions: h.matchConditions(), ObjectSelector: objects,
	}}}
	object.Validating.Name = h.name
	return object
}

// parsed is a selector as kubectl reads it.
func parsed(text string) *metav1.LabelSelector {
	s, err := metav1.ParseToLabelSelector(text)
	if err != nil {
		panic(err)
	}
	return s
}

// rule reads "operations:groups:versions:resources:scope", with "," between words; scope may be left out.
func rule(s string) admissionregistrationv1.RuleWithOperations {
	words := append(strings.Split(s, ":"), "*")
	scope := admissionregistrationv1.ScopeType(words[4])
	r := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
		APIGroups: strings.Split(words[1], ","), APIVersions: strings.Split(words[2], ","), Resources: strings.Split(words[3], ","), Scope: &scope,
	}}
	for _, o := range strings.Split(words[0], ",") {
		r.Operations = append(r.Operations, admissionregistrationv1.OperationType(o))
	}
	return r
}

// words writes rules as rule reads them.
func words(rules []admissionregistrationv1.RuleWithOperations) []string {
	var all []string
	for _, r := range rules {
		var ops []string
		for _, o := range r.Operations {
			ops = append(ops, string(o))
		}
		all = append(all, strings.Join([]string{
			strings.Join(ops, ","), strings.Join(r.APIGroups, ","), strings.Join(r.APIVersions, ","), strings.Join(r.Resources, ","), string(*r.Scope),
		}, ":"))
	}
	return all
}

func hooks(t *testing.T, list ...hook) *match.Snapshot {
	t.Helper()
	var in match.Input
	for _, h := range list {
		in.Objects = append(in.Objects, *h.document())
	}
	return compile(t, in)
}

// entries are the rules of every entry, and its conditions, by name.
func entries(r *registration.Registration) map[string][]string {
	all := map[string][]string{}
	for _, w := range r.Mutating.Webhooks {
		all[w.Name] = words(w.Rules)
		for _, c := range w.MatchConditions {
			all[w.Name] = append(all[w.Name], c.Name)
		}
	}
	for _, w := range r.Validating.Webhooks {
		all[w.Name] = words(w.Rules)
		for _, c := range w.MatchConditions {
			all[w.Name] = append(all[w.Name], c.Name)
		}
	}
	return all
}

func TestRulesOfEntries(t *testing.T) {
	tests := map[string]struct {
		hooks []hook
		want  map[string][]string
	}{
		"without hooks there is no entry": {want: map[string][]string{}},
		"one hook gives its own rule": {
			hooks: []hook{{name: "a", rules: "CREATE,UPDATE::v1:pods"}},
			want:  map[string][]string{"fail-closed.validate.portcullis": {"CREATE,UPDATE::v1:pods:*"}},
		},
		"equal rules come once, and rules that differ in one word are joined": {
			hooks: []hook{
				{name: "a", rules: "CREATE::v1:pods UPDATE::v1:pods CREATE::v1:pods"},
				{name: "b", rules: "UPDATE,CREATE::v1:services,pods CREATE:apps:v1:deployments"},
			},
			want: map[string][]string{"fail-closed.validate.portcullis": {
				"CREATE,UPDATE::v1:pods,services:*", "CREATE:apps:v1:deployments:*",
			}},
		},
		"rules that differ in two words are not joined, for that would cover more": {
			hooks: []hook{{name: "a", rules: "CREATE::v1:pods UPDATE::v1:services"}},
			want:  map[string][]string{"fail-closed.validate.portcullis": {"CREATE::v1:pods:*", "UPDATE::v1:services:*"}},
		},
		"a word beside its wildcard is left out, since Kubernetes refuses both together": {
			hooks: []hook{{name: "a", rules: "CREATE::v1:pods,pods/exec"}, {name: "b", rules: "CREATE::v1:pods/*"}},
			want:  map[string][]string{"fail-closed.validate.portcullis": {"CREATE::v1:pods/*:*"}},
		},
		"scopes are joined like other words": {
			hooks: []hook{{name: "a", rules: "CREATE:x.io:v1:things:Cluster"}, {name: "b", rules: "CREATE:x.io:v1:things:Namespaced"}},
			want:  map[string][]string{"fail-closed.validate.portcullis": {"CREATE:x.io:v1:things:*"}},
		},
		"the wildcard of operations is what it stands for": {
			hooks: []hook{{name: "a", rules: "*::v1:pods"}},
			want:  map[string][]string{"fail-closed.validate.portcullis": {"CREATE,UPDATE,DELETE,CONNECT::v1:pods:*"}},
		},
		"validating hooks of both policies have an entry each": {
			hooks: []hook{{name: "a", rules: "CREATE::v1:pods"}, {name: "b", policy: "Ignore", rules: "CREATE::v1:pods,services"}},
			want: map[string][]string{
				"fail-closed.validate.portcullis": {"CREATE::v1:pods:*"},
				"fail-open.validate.portcullis":   {"CREATE::v1:pods,services:*"},
			},
		},
		"mutating hooks share no request between the entries": {
			hooks: []hook{
				{kind: "mutating", name: "a", rules: "CREATE::v1:pods"},
				{kind: "mutating", name: "b", policy: "Ignore", rules: "CREATE,UPDATE::v1:pods,services"},
			},
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"CREATE::v1:pods:*"},
				"fail-open.mutate.portcullis":   {"UPDATE::v1:pods:*", "CREATE,UPDATE::v1:services:*"},
			},
		},
		"what rules cannot tell apart is told apart by a condition": {
			hooks: []hook{
				{kind: "mutating", name: "a", rules: "CREATE:apps:v1:deployments"},
				{kind: "mutating", name: "b", policy: "Ignore", rules: "CREATE:apps:*:deployments"},
			},
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"CREATE:apps:v1:deployments:*"},
				"fail-open.mutate.portcullis":   {"CREATE:apps:*:deployments:*", "not-fail-closed"},
			},
		},
		"reinvocation has entries for the hooks that ask for it": {
			hooks: []hook{
				{kind: "mutating", name: "a", rules: "CREATE::v1:pods"},
				{kind: "mutating", name: "b", policy: "Ignore", reinvocation: "IfNeeded", rules: "CREATE::v1:pods"},
			},
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"CREATE::v1:pods:*"},
				"fail-open.reinvoke.portcullis": {"CREATE::v1:pods:*"},
			},
		},
		"what a cluster must be able to write is left out by name": {
			hooks: []hook{{name: "a", rules: "CREATE,UPDATE:authentication.k8s.io,apps:v1:tokenreviews,deployments"}},
			want: map[string][]string{"fail-closed.validate.portcullis": {
				"CREATE,UPDATE:apps:v1:deployments,tokenreviews:*", "CREATE,UPDATE:authentication.k8s.io:v1:deployments:*",
			}},
		},
		"and by a condition where a wildcard covers it": {
			hooks: []hook{{name: "a", rules: "CREATE:*:*:tokenreviews,pods"}, {name: "b", policy: "Ignore", rules: "CREATE:authorization.k8s.io:v1:*"}},
			want: map[string][]string{
				"fail-closed.validate.portcullis": {"CREATE:*:*:pods,tokenreviews:*", "not-identity-reviews"},
				"fail-open.validate.portcullis":   {"CREATE:authorization.k8s.io:v1:*:*", "not-access-reviews"},
			},
		},
		"wildcards leave out leases and events": {
			hooks: []hook{{name: "a", rules: "CREATE:coordination.k8s.io,:v1:*"}},
			want:  map[string][]string{"fail-closed.validate.portcullis": {"CREATE:,coordination.k8s.io:v1:*:*", "not-leases", "not-events"}},
		},
		"which a hook may name": {
			hooks: []hook{{name: "a", rules: "UPDATE:coordination.k8s.io:v1:leases"}, {name: "b", policy: "Ignore", rules: "CREATE:*:v1:events,pods"}},
			want: map[string][]string{
				"fail-closed.validate.portcullis": {"UPDATE:coordination.k8s.io:v1:leases:*"}, "fail-open.validate.portcullis": {"CREATE:*:v1:events,pods:*"},
			},
		},
		"also beside a wildcard": {
			hooks: []hook{{name: "a", rules: "CREATE:*:v1:*"}, {name: "b", rules: "UPDATE:coordination.k8s.io:v1:leases"}},
			want: map[string][]string{
				"fail-closed.validate.portcullis": {"CREATE:*:v1:*:*", "UPDATE:coordination.k8s.io:v1:leases:*", "not-leases", "not-events",
					"not-identity-reviews", "not-access-reviews", "not-admission-configurations"},
			},
		},
		"a hook for nothing else gives no entry": {
			hooks: []hook{{name: "a", rules: "*:authentication.k8s.io:v1:tokenreviews"}},
			want:  map[string][]string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := entries(plan(t, hooks(t, tt.hooks...), options()))
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestsInSeveralVersionsBelongToOneEntry(t *testing.T) {
	both := func(closed, open hook) []hook {
		closed.kind, closed.name, open.kind, open.name, open.policy = "mutating", "a", "mutating", "b", "Ignore"
		return []hook{closed, open}
	}
	const deployments = "apps/v1,apps/v1beta2,extensions/v1beta1 deployments"
	tests := map[string]struct {
		known []string
		hooks []hook
		want  map[string][]string
	}{
		"hooks of both policies name different versions: the whole chain runs in one entry, and nothing is converted for it": {
			known: []string{deployments},
			hooks: both(hook{rules: "CREATE:apps:v1:deployments"}, hook{rules: "CREATE:extensions:v1beta1:deployments"}),
			want: map[string][]string{"fail-closed.mutate.portcullis": {
				"Equivalent", "CREATE:apps:v1:deployments:*", "CREATE:extensions:v1beta1:deployments:*",
			}},
		},
		"a fail-closed hook that takes one version alone leaves the others to the fail-open one": {
			known: []string{deployments},
			hooks: both(hook{rules: "CREATE:apps:v1:deployments", exact: true}, hook{rules: "CREATE:extensions:v1beta1:deployments"}),
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"Equivalent", "CREATE:apps:v1:deployments:*", "not-other-versions"},
				"fail-open.mutate.portcullis":   {"Equivalent", "CREATE:extensions:v1beta1:deployments:*", "not-fail-closed"},
			},
		},
		"hooks that take one version alone need no condition": {
			known: []string{deployments},
			hooks: both(hook{rules: "CREATE:apps:v1:deployments", exact: true}, hook{rules: "CREATE:extensions:v1beta1:deployments", exact: true}),
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"Exact", "CREATE:apps:v1:deployments:*"},
				"fail-open.mutate.portcullis":   {"Exact", "CREATE:extensions:v1beta1:deployments:*"},
			},
		},
		"what an exact hook names comes as it is, and other versions do not come for its sake": {
			known: []string{deployments, "policy/v1,policy/v1beta1 poddisruptionbudgets"},
			hooks: []hook{
				{name: "a", rules: "CREATE:apps:v1:deployments"},
				{name: "b", rules: "CREATE:apps:v1beta2:deployments CREATE:policy:v1:poddisruptionbudgets", exact: true},
			},
			want: map[string][]string{"fail-closed.validate.portcullis": {
				"Equivalent", "CREATE:apps:v1,v1beta2:deployments:*", "CREATE:policy:v1:poddisruptionbudgets:*", "not-other-versions",
			}},
		},
		"subresources have equivalents of their own": {
			known: []string{"apps/v1 deployments", "apps/v1,extensions/v1beta1 deployments/scale"},
			hooks: both(hook{rules: "UPDATE:apps:v1:deployments/scale"}, hook{rules: "UPDATE:extensions:v1beta1:deployments,deployments/scale"}),
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"Equivalent", "UPDATE:apps:v1:deployments/scale:*", "UPDATE:extensions:v1beta1:deployments/scale:*"},
				"fail-open.mutate.portcullis":   {"Equivalent", "UPDATE:extensions:v1beta1:deployments:*"},
			},
		},
		"of a resource that nobody knows, the versions that hooks name are the same": {
			hooks: both(hook{rules: "CREATE:example.com:v1:widgets"}, hook{rules: "CREATE:example.com:v2:widgets"}),
			want:  map[string][]string{"fail-closed.mutate.portcullis": {"Equivalent", "CREATE:example.com:v1,v2:widgets:*"}},
		},
		"a version that the cluster is known not to serve is another resource": {
			known: []string{"policy/v1 poddisruptionbudgets"},
			hooks: both(hook{rules: "CREATE:policy:v1beta1:poddisruptionbudgets"}, hook{rules: "CREATE:policy:v1:poddisruptionbudgets"}),
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"Equivalent", "CREATE:policy:v1beta1:poddisruptionbudgets:*"},
				"fail-open.mutate.portcullis":   {"Equivalent", "CREATE:policy:v1:poddisruptionbudgets:*"},
			},
		},
		"a wildcard stands for the versions of its group, and what is the same elsewhere comes with them": {
			known: []string{deployments},
			hooks: both(hook{rules: "CREATE:extensions:v1beta1:deployments"}, hook{rules: "CREATE:apps:*:deployments"}),
			want: map[string][]string{
				"fail-closed.mutate.portcullis": {"Equivalent", "CREATE:apps:v1,v1beta2:deployments:*", "CREATE:extensions:v1beta1:deployments:*"},
				"fail-open.mutate.portcullis":   {"Equivalent", "CREATE:apps:*:deployments:*", "not-fail-closed"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Equivalents = familiesOf(tt.known...)
			r := plan(t, hooks(t, tt.hooks...), o)
			got := entries(r)
			for _, w := range r.Mutating.Webhooks {
				got[w.Name] = append([]string{string(*w.MatchPolicy)}, got[w.Name]...)
			}
			for _, w := range r.Validating.Webhooks {
				got[w.Name] = append([]string{string(*w.MatchPolicy)}, got[w.Name]...)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHooksThatMeetInAnotherVersionShareTheirTime(t *testing.T) {
	o := options()
	o.Equivalents = familiesOf("apps/v1,extensions/v1beta1 deployments")
	r := plan(t, hooks(t,
		hook{kind: "mutating", name: "a", timeout: 3, rules: "CREATE:apps:v1:deployments"},
		hook{kind: "mutating", name: "b", timeout: 4, rules: "CREATE:extensions:v1beta1:deployments"},
	), o)
	if got := *r.Mutating.Webhooks[0].TimeoutSeconds; got != 8 {
		t.Errorf("timeoutSeconds %d, want 8", got)
	}
}

func TestOrderOfMutatingEntriesIsTheChainAndThenItsReinvocation(t *testing.T) {
	r := plan(t, hooks(t,
		hook{kind: "mutating", name: "a", reinvocation: "IfNeeded", rules: "CREATE::v1:pods"},
		hook{kind: "mutating", name: "b", reinvocation: "IfNeeded", policy: "Ignore", rules: "CREATE::v1:services"},
	), options())
	var got []string
	for _, w := range r.Mutating.Webhooks {
		got = append(got, w.Name+" "+string(*w.ReinvocationPolicy)+" "+path.Dir(*w.ClientConfig.URL))
	}
	const base = "https:/portcullis.example.com:8443/v1/clusters/prod-1/"
	want := []string{
		"fail-closed.mutate.portcullis Never " + base + "mutate/fail-closed",
		"fail-open.mutate.portcullis Never " + base + "mutate/fail-open",
		"fail-closed.reinvoke.portcullis IfNeeded " + base + "reinvoke/fail-closed",
		"fail-open.reinvoke.portcullis IfNeeded " + base + "reinvoke/fail-open",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// The mesh bounds each hook itself, and the entry has a second more than the hooks need.
func TestTimeouts(t *testing.T) {
	tests := map[string]struct {
		hooks []hook
		want  map[string]int32
		cut   []string // entries with a finding
	}{
		"validating hooks run at the same time, so the slowest counts": {
			hooks: []hook{{name: "a", timeout: 3, rules: "CREATE::v1:pods"}, {name: "b", timeout: 7, rules: "CREATE::v1:pods"}},
			want:  map[string]int32{"fail-closed.validate.portcullis": 8},
		},
		"mutating hooks run one after the other": {
			hooks: []hook{
				{kind: "mutating", name: "a", timeout: 3, rules: "CREATE::v1:pods"},
				{kind: "mutating", name: "b", timeout: 4, policy: "Ignore", rules: "CREATE::v1:*"},
			},
			want: map[string]int32{"fail-closed.mutate.portcullis": 8, "fail-open.mutate.portcullis": 5},
		},
		"initializers run one after the other, before mutating hooks": {
			hooks: []hook{
				{kind: "initializing", name: "a", timeout: 2, rules: "CREATE::v1:pods"},
				{kind: "initializing", name: "b", timeout: 3, policy: "Ignore", rules: "CREATE::v1:*"},
				{kind: "mutating", name: "c", timeout: 4, policy: "Ignore", rules: "CREATE,UPDATE::v1:pods"},
			},
			want: map[string]int32{"fail-closed.mutate.portcullis": 10, "fail-open.mutate.portcullis": 8},
		},
		"mutating hooks that never meet do not add up": {
			hooks: []hook{
				{kind: "mutating", name: "a", timeout: 5, rules: "CREATE::v1:pods"},
				{kind: "mutating", name: "b", timeout: 6, rules: "CREATE::v1:services"},
			},
			want: map[string]int32{"fail-closed.mutate.portcullis": 7},
		},
		"a hook that may be reinvoked counts twice in the chain and once in its reinvocation": {
			hooks: []hook{
				{kind: "mutating", name: "a", timeout: 3, reinvocation: "IfNeeded", rules: "CREATE::v1:pods"},
				{kind: "mutating", name: "b", timeout: 4, rules: "CREATE::v1:pods"},
			},
			want: map[string]int32{"fail-closed.mutate.portcullis": 11, "fail-closed.reinvoke.portcullis": 4},
		},
		"what does not fit the time of a write is cut, and said": {
			hooks: []hook{
				{kind: "mutating", name: "a", timeout: 10, reinvocation: "IfNeeded", rules: "CREATE::v1:pods"},
				{name: "b", timeout: 30, rules: "CREATE::v1:pods"},
			},
			want: map[string]int32{
				"fail-closed.mutate.portcullis": 13, "fail-closed.reinvoke.portcullis": 5, "fail-closed.validate.portcullis": 11,
			},
			cut: []string{"entry mutate/fail-closed", "entry reinvoke/fail-closed", "entry validate/fail-closed"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := plan(t, hooks(t, tt.hooks...), options())
			got := map[string]int32{}
			for _, w := range r.Mutating.Webhooks {
				got[w.Name] = *w.TimeoutSeconds
			}
			for _, w := range r.Validating.Webhooks {
				got[w.Name] = *w.TimeoutSeconds
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("timeouts (-want +got):\n%s", diff)
			}
			var cut []string
			for _, f := range r.Findings {
				if f.Code == registration.CodeTimeout {
					cut = append(cut, f.Path)
				}
			}
			if diff := cmp.Diff(tt.cut, cut); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTimeoutsBelowASecondAreRoundedUp(t *testing.T) {
	in := match.Input{
		Objects: []match.Object{*hook{name: "a", timeout: 10, rules: "CREATE::v1:pods"}.document()},
		Routes:  []match.RouteBinding{{Configuration: "a", Route: match.Route{Stream: true, Hosts: []string{"h"}, Timeout: 1250 * time.Millisecond}}},
	}
	if got := *plan(t, compile(t, in), options()).Validating.Webhooks[0].TimeoutSeconds; got != 3 {
		t.Errorf("timeoutSeconds %d, want 3", got)
	}
}

func TestSideEffectsAreDeclaredByAllHooksTogether(t *testing.T) {
	none := hook{name: "a", rules: "CREATE::v1:pods"}
	some := hook{name: "b", effects: "NoneOnDryRun", rules: "CREATE::v1:pods"}
	for want, list := range map[admissionregistrationv1.SideEffectClass][]hook{"None": {none}, "NoneOnDryRun": {none, some}} {
		if got := *plan(t, hooks(t, list...), options()).Validating.Webhooks[0].SideEffects; got != want {
			t.Errorf("side effects of %d hooks: %s, want %s", len(list), got, want)
		}
	}
}

func TestFindings(t *testing.T) {
	none := func(o *registration.Options) { o.OwnNamespace = "" }
	tests := map[string]struct {
		hook    hook
		options func(*registration.Options)
		want    []string
	}{
		"a fail-open hook with names is harmless":        {hook: hook{policy: "Ignore", rules: "CREATE::v1:pods"}},
		"every resource of a group is a wildcard":        {hook: hook{policy: "Ignore", rules: "CREATE:apps:v1:*"}, want: []string{"wildcard"}},
		"a resource of every group is a wildcard":        {hook: hook{policy: "Ignore", rules: "CREATE:*:v1:pods"}, want: []string{"wildcard"}},
		"a subresource of everything is a wildcard":      {hook: hook{policy: "Ignore", rules: "UPDATE:apps:v1:*/scale"}, want: []string{"wildcard"}},
		"all subresources of a resource are no wildcard": {hook: hook{policy: "Ignore", rules: "UPDATE:apps:*:deployments/*"}},
		"leases may be named":                            {hook: hook{policy: "Ignore", rules: "UPDATE:coordination.k8s.io:v1:leases"}},
		"token reviews are named in vain":                {hook: hook{policy: "Ignore", rules: "CREATE:authentication.k8s.io:v1:tokenreviews"}, want: []string{"never-matches"}},
		"no namespace is the mesh's own":                 {hook: hook{rules: "CREATE::v1:namespaces:Cluster"}, options: none, want: []string{"danger-own-namespace"}},
		"that does not matter to hooks that fail open":   {hook: hook{policy: "Ignore", rules: "CREATE::v1:pods"}, options: none},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			if tt.options != nil {
				tt.options(&o)
			}
			tt.hook.name = "a"
			r := plan(t, hooks(t, tt.hook), o)
			var got []string
			for _, f := range r.Findings {
				got = append(got, f.Code)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("codes (-want +got):\n%s\n%v", diff, r.Findings)
			}
		})
	}
}

func TestHooksThatTheClusterDoesNotReachAreLeftOut(t *testing.T) {
	elsewhere := *hook{name: "elsewhere", rules: "CREATE::v1:services"}.document()
	elsewhere.Scope = "prod-2"
	in := match.Input{
		Objects: []match.Object{elsewhere, *hook{name: "routed", rules: "CREATE::v1:secrets"}.document(), *hook{name: "here", rules: "CREATE::v1:pods"}.document()},
		Routes:  []match.RouteBinding{{Configuration: "routed", Route: match.Route{Stream: true, Hosts: []string{"h"}, Clusters: []string{"prod-2"}}}},
	}
	got := entries(plan(t, compile(t, in), options()))
	if diff := cmp.Diff(map[string][]string{"fail-closed.validate.portcullis": {"CREATE::v1:pods:*"}}, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestEqualHooksGiveEqualText(t *testing.T) {
	a, b := hook{name: "a", rules: "CREATE,UPDATE::v1:pods,services CREATE:*:*:*"}, hook{name: "b", rules: "UPDATE:apps:v1:*"}
	first := text(t, plan(t, hooks(t, a, b), options()))
	for range 20 {
		if again := text(t, plan(t, hooks(t, b, a), options())); again != first {
			t.Fatalf("not stable:\n%s", cmp.Diff(first, again))
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	tests := map[string]struct {
		change func(*registration.Options)
		want   string
	}{
		"a URL is needed":                    {func(o *registration.Options) { o.URL = "" }, "say where"},
		"plain HTTP is no way to the bridge": {func(o *registration.Options) { o.URL = "http://mesh" }, "must be https"},
		"a host is needed":                   {func(o *registration.Options) { o.URL = "https://:8443" }, "must be https:// and a host"},
		"Kubernetes takes no query":          {func(o *registration.Options) { o.URL = "https://mesh/?a=b" }, "no user, query or fragment"},
		"Kubernetes takes no user":           {func(o *registration.Options) { o.URL = "https://a:b@mesh" }, "no user, query or fragment"},
		"the URL must parse":                 {func(o *registration.Options) { o.URL = "https://me sh" }, "url: "},
		"the name becomes one of an object":  {func(o *registration.Options) { o.Name = "Mesh" }, `name "Mesh"`},
		"a key is no authority": {func(o *registration.Options) {
			o.CABundle = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		}, `a PEM block is "PRIVATE KEY"`},
		"a bundle is PEM":                     {func(o *registration.Options) { o.CABundle = []byte("MIIB") }, "no certificate in it"},
		"the own namespace is a name":         {func(o *registration.Options) { o.OwnNamespace = "a,b" }, `own namespace "a,b"`},
		"a timeout is whole seconds":          {func(o *registration.Options) { o.Timeouts.Mutate = 1500 * time.Millisecond }, "whole seconds"},
		"an entry has at most 30 s":           {func(o *registration.Options) { o.Timeouts.Mutate = 30 * time.Second }, "whole seconds from 1s to 29s"},
		"all timeouts together fit one write": {func(o *registration.Options) { o.Timeouts.Reinvoke = 5 * time.Second }, "36s together; an API server gives a write 34s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			tt.change(&o)
			if _, err := registration.Plan(hooks(t), "prod-1", o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
	if _, err := registration.Plan(hooks(t), "a/b", options()); err == nil || !strings.Contains(err.Error(), `cluster "a/b"`) {
		t.Errorf("a cluster named a/b: %v", err)
	}
}

// authority is a CA certificate in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	ca, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca.CA().CertPEM
}

func TestNamesAndPathsFollowTheOptions(t *testing.T) {
	o := options()
	o.Name, o.URL, o.CABundle = "mesh-eu", "https://mesh/eu/", authority(t)
	w := plan(t, hooks(t, hook{name: "a", rules: "CREATE::v1:pods"}), o).Validating.Webhooks[0]
	if want := "https://mesh/eu/v1/clusters/prod-1/validate/fail-closed/2."; !strings.HasPrefix(*w.ClientConfig.URL, want) {
		t.Errorf("url %s, want %s", *w.ClientConfig.URL, want)
	}
	if w.Name != "fail-closed.validate.mesh-eu" || !slices.Equal(w.ClientConfig.CABundle, o.CABundle) {
		t.Errorf("name %s, bundle %q", w.Name, w.ClientConfig.CABundle)
	}
}

// The API server brings an Event of core/v1 to a hook that names events.k8s.io/v1: they are the same objects.
func TestWhatAHookNamesComesInEachGroupThatIsTheSame(t *testing.T) {
	for _, exact := range []bool{false, true} {
		r := plan(t, hooks(t, hook{name: "a", exact: exact, rules: "CREATE:*:v1:*"}, hook{name: "b", exact: exact, rules: "CREATE:events.k8s.io:v1:events"}), options())
		var but string
		for _, c := range r.Validating.Webhooks[0].MatchConditions {
			if c.Name == "not-events" {
				_, but, _ = strings.Cut(c.Expression, `["events"] && !(`)
			}
		}
		if but == "" || strings.Contains(but, `""`) == exact || strings.Contains(but, "request.resource.version") != exact {
			t.Errorf("exact %v: of events come %s", exact, but)
		}
	}
}
