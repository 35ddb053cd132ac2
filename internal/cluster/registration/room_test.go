package registration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// wordsOf are n words, joined as rule reads them.
func wordsOf(prefix string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return strings.Join(all, ",")
}

// naming is a rule of so many groups, versions and resources for one operation and scope.
func naming(groups, versions, resources int) string {
	return fmt.Sprintf("CREATE:%s:%s:%s:Namespaced", wordsOf("g", groups), wordsOf("v", versions), wordsOf("r", resources))
}

// TestAPlanIsExactWithinTheLimitsOfTheConfiguration: for a configuration that config accepts, entries have the rules of the hooks.
func TestAPlanIsExactWithinTheLimitsOfTheConfiguration(t *testing.T) {
	s := hooks(t, hook{name: "a", kind: "validating", policy: "Fail", exact: true, rules: naming(100, 1, 100)})
	r := plan(t, s, options())
	if got := r.Validating.Webhooks[0].Rules; len(got) != 1 || len(got[0].APIGroups) != 100 || len(got[0].Resources) != 100 || got[0].APIVersions[0] != "v0" {
		t.Errorf("%d rules", len(got))
	}
	if len(r.Findings) > 0 {
		t.Error(r.Findings)
	}
}

// TestAPlanOfMoreThanThereMayBeHasWildcards: the planner does not rely on the limits that the configuration was checked against.
func TestAPlanOfMoreThanThereMayBeHasWildcards(t *testing.T) {
	for name, tc := range map[string]struct {
		rules []string
		want  string
	}{
		"300 of each: groups and versions": {[]string{naming(300, 300, 300)}, "CREATE:*:*:" + wordsOf("r", 300) + ":Namespaced"},
		"versions are enough":              {[]string{naming(10, 10_000, 10)}, "CREATE:" + wordsOf("g", 10) + ":*:" + wordsOf("r", 10) + ":Namespaced"},
		"versions and groups are enough":   {[]string{naming(2_000, 10, 10)}, "CREATE:*:*:" + wordsOf("r", 10) + ":Namespaced"},
		"resources":                        {[]string{naming(1, 1, 20_000)}, "CREATE:*:*:*:Namespaced"},
		"resources that a wildcard does not cover": {
			[]string{strings.Replace(naming(3, 3, 20_000), "r7,", "leases,leases/status,events/x,r7,", 1)},
			"CREATE:*:*:*/*:Namespaced CREATE:*:*:events/*,leases/*:Namespaced",
		},
		"two that fit, one beside the other": {[]string{naming(1, 10_000, 1), naming(1, 10_000, 1)}, "CREATE:g0:" + wordsOf("v", 10_000) + ":r0:Namespaced"},
		"a small one stays as it is": {
			[]string{"CREATE:apps:v1:things/sub:Namespaced", naming(1, 1, 20_000)}, "CREATE:*:*:*:Namespaced CREATE:apps:v1:things/sub:Namespaced",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := hooks(t, hook{name: "a", kind: "validating", policy: "Fail", exact: true, rules: strings.Join(tc.rules, " ")})
			r := plan(t, s, options())
			got := words(r.Validating.Webhooks[0].Rules)
			want := strings.Fields(tc.want)
			for i := range want {
				r := rule(want[i])
				slices.Sort(r.APIGroups)
				slices.Sort(r.APIVersions)
				slices.Sort(r.Resources)
				want[i] = words([]admissionregistrationv1.RuleWithOperations{r})[0]
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("rules %.300q, want %.300q", got, want)
			}
		})
	}
}

// TestTheWorkOfAPlanGrowsWithTheConfigurationAndHasABound counts the atoms of a plan. Fail-open hooks of each match policy name versions
// that are the same, which makes the largest plans.
func TestTheWorkOfAPlanGrowsWithTheConfigurationAndHasABound(t *testing.T) {
	of := func(n int, rules string) *match.Snapshot {
		var list []hook
		for i := range n {
			list = append(list, hook{
				name: fmt.Sprintf("h%d", i), kind: []string{"mutating", "validating"}[i%2], policy: []string{"Fail", "Ignore"}[i/2%2], exact: i%3 == 0, rules: rules,
			})
		}
		return hooks(t, list...)
	}
	// In proportion to the hooks.
	few, _ := registration.Atoms(of(12, "*:a,b:v1,v2:things,things/status:*"), "prod-1", options())
	many, most := registration.Atoms(of(120, "*:a,b:v1,v2:things,things/status:*"), "prod-1", options())
	if many > 10*few || most != config.MaxCombinations {
		t.Errorf("12 hooks: %d atoms; 120: %d, at most %d of a rule", few, many, most)
	}
	// Whatever the lists say: the first ones fit, and the others do not.
	const bound = 10 * config.MaxTotalCombinations
	for _, k := range []int{5, 40, 300} {
		for _, n := range []int{1, 20} {
			for _, rules := range []string{naming(k, k, k), naming(1, k*k, k), naming(k*k, 1, k), naming(k, k, 1) + " *:*:*:*:*"} {
				if atoms, most := registration.Atoms(of(n, rules), "prod-1", options()); atoms > bound {
					t.Errorf("%d hooks with lists of %d: %d atoms, with %d of a rule", n, k, atoms, most)
				}
			}
		}
	}
	// A cluster says that it serves everything in many versions.
	var served families
	for i := range 200 {
		served = append(served, ways(fmt.Sprintf("%s r%d", wordsOf("g0/v", 200), i)))
	}
	o := options()
	o.Equivalents = served
	if atoms, _ := registration.Atoms(of(40, naming(2, 100, 20)), "prod-1", o); atoms > bound {
		t.Errorf("%d atoms of hooks with versions that a cluster serves", atoms)
	}
}

// TestWiderPlansLoseNoRequestAndShareNone plans random hooks with less room than they need.
func TestWiderPlansLoseNoRequestAndShareNone(t *testing.T) {
	wide := 0
	for seed := range uint64(citest.Rounds(30, 300, 3000)) {
		g := generator{rand.New(rand.NewPCG(seed, 9))}
		s := compile(t, match.Input{Objects: g.objects(), Bypasses: map[string]*match.Bypass{"prod-1": g.bypass()}})
		r, err := registration.PlanWithin(s, "prod-1", options(), []int{0, 2, 7, 20}[seed%4])
		if err != nil {
			t.Fatal(err)
		}
		accepted(t, r)
		if slices.ContainsFunc(r.Findings, func(f match.Finding) bool { return f.Code == registration.CodeWildcards }) {
			wide++
		}
		entries := compile(t, match.Input{Objects: []match.Object{{Mutating: r.Mutating}, {Validating: r.Validating}}})
		for range 40 {
			w := world{t: t, hooks: s, entries: entries, request: g.request()}
			w.checkWider()
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, text(t, r))
		}
	}
	if wide == 0 {
		t.Error("no plan was wider than its hooks")
	}
}

// checkWider checks entries that may bring more: a request that hooks want comes once, by a fail-closed entry if they fail closed.
func (w world) checkWider() {
	if excluded(w.request) || w.request.GetNamespace() == "portcullis-system" {
		return
	}
	if name, _ := w.exempt(); name != "" {
		return
	}
	always := alwaysFailsOpen(w.hooks.Bypass("prod-1"), w.request)
	covering := w.hooks.Candidates("prod-1", mutate, match.NewAttributes(w.request, namespaces{}))
	if matching := w.matching(w.hooks, mutate); len(matching) > 0 {
		by := slices.DeleteFunc(w.matching(w.entries, mutate), func(h *match.Hook) bool { return strings.Contains(h.ID.Name, ".reinvoke.") })
		if len(by) != 1 || !always && slices.ContainsFunc(covering, failsClosed) && !by[0].FailsClosed() {
			w.t.Errorf("mutating entries %v, for hooks %v\n%v", names(by), names(matching), w.request)
		}
	}
	by := names(w.matching(w.entries, validate))
	for _, h := range w.matching(w.hooks, validate) {
		want := match.EntryFailOpen
		if h.FailsClosed() {
			if want = match.EntryFailClosed; always {
				want = match.EntryAlwaysFailOpen
			}
		}
		if !slices.Contains(by, want+".validate.portcullis") {
			w.t.Errorf("validating entries %v, for hook %s\n%v", by, h.ID.Name, w.request)
		}
	}
}

func names(hooks []*match.Hook) (all []string) {
	for _, h := range hooks {
		all = append(all, h.ID.Name)
	}
	return all
}
