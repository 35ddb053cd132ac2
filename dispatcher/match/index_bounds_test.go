package match

import (
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// many are n words.
func many(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return all
}

// filed is a configuration with rules, each in a hook of its own, that clusters see.
func filed(t *testing.T, clusters []string, rules ...admissionregistrationv1.RuleWithOperations) *Snapshot {
	t.Helper()
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	equivalent, again := admissionregistrationv1.Equivalent, admissionregistrationv1.IfNeededReinvocationPolicy
	for i, r := range rules {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: fmt.Sprintf("h%d.io", i), Rules: []admissionregistrationv1.RuleWithOperations{r}, MatchPolicy: &equivalent, ReinvocationPolicy: &again,
		})
	}
	s, _ := Compile(Input{
		Objects: []Object{{Mutating: c}}, Routes: []RouteBinding{{Name: "r", Configuration: "a", Route: Route{Clusters: clusters, Stream: true}}},
	})
	if len(s.hooks) != len(rules) {
		t.Fatalf("%d hooks", len(s.hooks))
	}
	return s
}

func naming(operations []admissionregistrationv1.OperationType, groups, resources []string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"v1"}, Resources: resources},
	}
}

// TestTheIndexHasABoundAndFindsWhatItFoundWithoutIt files rules that name more than the index has room for.
func TestTheIndexHasABoundAndFindsWhatItFoundWithoutIt(t *testing.T) {
	create, every := []admissionregistrationv1.OperationType{"CREATE"}, []admissionregistrationv1.OperationType{"*"}
	repeat := func(n int, r admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
		return slices.Repeat([]admissionregistrationv1.RuleWithOperations{r}, n)
	}
	for name, tc := range map[string]struct {
		clusters []string
		rules    []admissionregistrationv1.RuleWithOperations
		most     int // entries
		shapes   int // of the rules that were filed for CREATE
	}{
		"a rule that fits":                                {nil, repeat(1, naming(create, many("g", 64), many("r", 128))), maxRuleEntries, 1},
		"a rule with one group more has every group":      {nil, repeat(1, naming(create, many("g", 65), many("r", 128))), 2 * 128, 1},
		"operations count":                                {nil, repeat(1, naming(every, many("g", 64), many("r", 128))), 10 * 128, 1},
		"clusters count":                                  {many("c", 1000), repeat(1, naming(every, many("g", 2), many("r", 2))), 10_000, 1},
		"more clusters than a rule has entries":           {many("c", 100_000), repeat(1, naming(every, many("g", 2), many("r", 2))), 10, 1},
		"many rules that fit alone":                       {nil, repeat(500, naming(create, many("g", 32), many("r", 32))), maxEntries, 1},
		"many rules for many clusters":                    {many("c", 100), repeat(2000, naming(every, many("g", 4), many("r", 4))), maxEntries, 1},
		"more rules than there are entries: each has few": {many("c", 100), repeat(30_000, naming(every, []string{"g0"}, []string{"r0"})), 300_000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := filed(t, tc.clusters, tc.rules...)
			if s.index.entries > tc.most {
				t.Errorf("%d entries, and at most %d", s.index.entries, tc.most)
			}
			cluster := ""
			if len(tc.clusters) > 0 {
				cluster = tc.clusters[len(tc.clusters)-1]
			}
			for _, want := range []struct {
				cluster, group, resource string
				hooks                    int
			}{
				{cluster, "g0", "r0", len(tc.rules)}, {cluster, "g1000000", "r0", 0}, {cluster, "g0", "r1000000", 0},
				{"another", "g0", "r0", map[bool]int{true: len(tc.rules)}[cluster == ""]},
			} {
				a := NewAttributes(&admissionv1.AdmissionRequest{
					Operation: "CREATE", Name: "n", Kind: &admissionv1.GroupVersionKind{Group: want.group, Version: "v1", Kind: "R"},
					Resource: &admissionv1.GroupVersionResource{Group: want.group, Version: "v1", Resource: want.resource},
				}, Unknown{})
				for _, stage := range []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_REINVOKE} {
					if got := s.Candidates(want.cluster, stage, a); len(got) != want.hooks {
						t.Errorf("%d candidates for %+v, and %d want it", len(got), want, want.hooks)
					}
				}
			}
		})
	}
}

func TestTheIndexGrowsInProportionToTheConfiguration(t *testing.T) {
	rule := naming([]admissionregistrationv1.OperationType{"CREATE", "UPDATE"}, many("g", 3), many("r", 3))
	few, more := filed(t, nil, slices.Repeat([]admissionregistrationv1.RuleWithOperations{rule}, 10)...), filed(t, nil,
		slices.Repeat([]admissionregistrationv1.RuleWithOperations{rule}, 1000)...)
	if few.index.entries != 10*36 || more.index.entries != 1000*36 {
		t.Errorf("10 hooks have %d entries, 1,000 have %d", few.index.entries, more.index.entries)
	}
}

func TestCombinations(t *testing.T) {
	scope := func(s admissionregistrationv1.ScopeType) *admissionregistrationv1.ScopeType { return &s }
	of := func(s *admissionregistrationv1.ScopeType, operations []admissionregistrationv1.OperationType, groups, versions, resources int) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{Operations: operations, Rule: admissionregistrationv1.Rule{
			APIGroups: make([]string, groups), APIVersions: make([]string, versions), Resources: make([]string, resources), Scope: s,
		}}
	}
	create := []admissionregistrationv1.OperationType{"CREATE"}
	huge := of(nil, create, 2_000_000, 2_000_000, 2_000_000)
	for name, tc := range map[string]struct {
		rules []admissionregistrationv1.RuleWithOperations
		want  int
	}{
		"no rule":                       {nil, 0},
		"one word of each":              {[]admissionregistrationv1.RuleWithOperations{of(scope("Cluster"), create, 1, 1, 1)}, 1},
		"no scope is both":              {[]admissionregistrationv1.RuleWithOperations{of(nil, create, 1, 1, 1)}, 2},
		"every scope is both":           {[]admissionregistrationv1.RuleWithOperations{of(scope("*"), create, 1, 1, 1)}, 2},
		"every operation is four":       {[]admissionregistrationv1.RuleWithOperations{of(scope("Namespaced"), []admissionregistrationv1.OperationType{"*"}, 2, 3, 5)}, 120},
		"rules are added up":            {[]admissionregistrationv1.RuleWithOperations{of(nil, create, 2, 2, 2), of(nil, create, 3, 1, 1)}, 22},
		"an empty list names nothing":   {[]admissionregistrationv1.RuleWithOperations{of(nil, create, 0, 9, 9)}, 0},
		"it ends where numbers are big": {[]admissionregistrationv1.RuleWithOperations{huge, huge}, 1 << 40},
	} {
		if got := Combinations(tc.rules); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
