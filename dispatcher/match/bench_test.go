package match_test

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// manyHooks are hooks of which 8 cover createPod; the others name other operations, groups, resources and
// subresources, and clusters.
func manyHooks(tb testing.TB, others int) *match.Snapshot {
	tb.Helper()
	var in match.Input
	add := func(scope, name string, rules []admissionregistrationv1.RuleWithOperations) {
		o := validating(scope, name, "hook.io")
		o.Validating.Webhooks[0].Rules = rules
		o.Validating.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}
		in.Objects = append(in.Objects, o)
	}
	for i := range 8 {
		add("", fmt.Sprintf("pods-%d", i), [][]admissionregistrationv1.RuleWithOperations{
			rule("CREATE", "", "v1", "pods"), rule("*", "*", "*", "*/*"), rule("*", "", "*", "pods/*"), rule("*", "*", "*", "*"),
		}[i%4])
	}
	for i := range others {
		scope, rules := "", [][]admissionregistrationv1.RuleWithOperations{
			rule("UPDATE", "*", "*", "*/*"), rule("CREATE", "", "v1", "pods/exec"), rule("*", "*", "*", "*/status"),
			rule("*", "example.com", "*", "*/*"), rule("*", fmt.Sprintf("g%d.io", i), "v1", "widgets"), rule("*", "*", "*", fmt.Sprintf("r%d", i)),
			everything(),
		}[i%7]
		if i%7 == 6 {
			scope = fmt.Sprintf("cluster-%d", i)
		}
		add(scope, fmt.Sprintf("other-%d", i), rules)
	}
	return compile(tb, in)
}

// BenchmarkCandidates shows that hooks which do not match cost nothing; "ratio" compares with the 8 that match alone.
func BenchmarkCandidates(b *testing.B) {
	perOp := map[int]float64{}
	for _, others := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("8 of %d", 8+others), func(b *testing.B) {
			snapshot, req := manyHooks(b, others), createPod()
			b.ReportAllocs()
			for b.Loop() {
				if got := snapshot.Candidates("c", validate, match.NewAttributes(req, match.Unknown{})); len(got) != 8 {
					b.Fatalf("%d candidates", len(got))
				}
			}
			perOp[others] = float64(b.Elapsed()) / float64(b.N)
			if perOp[0] > 0 {
				b.ReportMetric(perOp[others]/perOp[0], "ratio")
			}
		})
	}
}

// BenchmarkEquivalents is the same with matchPolicy Equivalent, for a resource that is served in one way, and for a resource that is served in four
// ways of two groups. No other hook can be reached by them.
func BenchmarkEquivalents(b *testing.B) {
	perOp := map[string]float64{}
	for _, tc := range []struct {
		name   string
		others int
		asked  conversion.ResourceKind
		ways   []conversion.ResourceKind
	}{
		{"one way", 0, *pods("v1"), nil}, {"one way", 10_000, *pods("v1"), nil},
		{"four ways", 0, deployments()[3], deployments()}, {"four ways", 10_000, deployments()[3], deployments()},
	} {
		b.Run(fmt.Sprintf("%s, 8 of %d", tc.name, 8+tc.others), func(b *testing.B) {
			snapshot, req := equivalentHooks(b, tc.others), requestBy(tc.asked)
			cluster := &laboratory{ways: tc.ways}
			b.ReportAllocs()
			for b.Loop() {
				if got := snapshot.Candidates("c", validate, match.NewAttributes(req, cluster)); len(got) != 8 {
					b.Fatalf("%d candidates", len(got))
				}
			}
			took := float64(b.Elapsed()) / float64(b.N)
			if tc.others == 0 {
				perOp[tc.name] = took
			}
			b.ReportMetric(took/perOp[tc.name], "ratio")
		})
	}
}

// equivalentHooks are hooks of which 8 are for pods and 8 for deployments of any version, half of them named by another
// group. The others name both groups too, half of them exactly.
func equivalentHooks(tb testing.TB, others int) *match.Snapshot {
	tb.Helper()
	var in match.Input
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	add := func(name string, policy *admissionregistrationv1.MatchPolicyType, rules []admissionregistrationv1.RuleWithOperations) {
		o := validating("", name, "hook.io")
		o.Validating.Webhooks[0].Rules, o.Validating.Webhooks[0].MatchPolicy = rules, policy
		in.Objects = append(in.Objects, o)
	}
	for i := range 8 {
		add(fmt.Sprintf("pods-%d", i), &equivalent, rule("*", "", "v1", "pods"))
		group, version := []string{"apps", "extensions"}[i%2], []string{"v1", "v1beta1"}[i%2]
		add(fmt.Sprintf("deployments-%d", i), &equivalent, rule("*", group, version, "deployments"))
	}
	for i := range others {
		policy, group := []*admissionregistrationv1.MatchPolicyType{&exact, &equivalent}[i%2], []string{"apps", "extensions"}[i/2%2]
		resource := "deployments/scale"
		if i%2 == 0 && group == "extensions" {
			resource = "deployments" // exactly, so that a request by another way must not even see it
		}
		add(fmt.Sprintf("other-%d", i), policy, rule("*", group, "v1beta1", resource))
	}
	return compile(tb, in)
}

// BenchmarkMatches is the whole of matching for one review: candidates, and 8 hooks with an objectSelector.
func BenchmarkMatches(b *testing.B) {
	for _, size := range []int{2 << 10, 17 << 10} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			snapshot, req := manyHooks(b, 0), createPod()
			padding := make([]byte, size)
			for i := range padding {
				padding[i] = 'x'
			}
			req.Object = &admissionv1.Object{Raw: fmt.Appendf(nil,
				`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"env":"dev"}},"spec":{"x":%q}}`, padding)}
			b.ReportAllocs()
			for b.Loop() {
				a := match.NewAttributes(req, match.Unknown{})
				for _, h := range snapshot.Candidates("c", validate, a) {
					if d := h.ShouldCall(b.Context(), a); !d.Match {
						b.Fatalf("%+v", d)
					}
				}
			}
		})
	}
}

// BenchmarkConditions measures a condition that reads the request, and a condition that reads the object, on a Pod of 20 kB; "ratio" compares with
// the request alone.
func BenchmarkConditions(b *testing.B) {
	perOp := map[string]float64{}
	for _, expression := range []string{`request.namespace != "kube-system"`, `has(object.metadata)`} {
		b.Run(expression, func(b *testing.B) {
			hook, req := compileOne(b, conditional(expression)), createPod()
			req.Object = &admissionv1.Object{Raw: podOf(85)}
			b.SetBytes(int64(len(req.GetObject().GetRaw())))
			b.ReportAllocs()
			for b.Loop() {
				if d := hook.ShouldCall(b.Context(), match.NewAttributes(req, match.Unknown{})); !d.Match {
					b.Fatalf("%+v", d)
				}
			}
			perOp[expression] = float64(b.Elapsed()) / float64(b.N)
			b.ReportMetric(perOp[expression]/perOp[`request.namespace != "kube-system"`], "ratio")
		})
	}
}

// BenchmarkConditionsOfHooks measures the conditions of 8 hooks for one review.
func BenchmarkConditionsOfHooks(b *testing.B) {
	hook, req := compileOne(b, conditional(`request.namespace != "kube-system"`)), createPod()
	req.Object = &admissionv1.Object{Raw: podOf(85)}
	b.ReportAllocs()
	for b.Loop() {
		a := match.NewAttributes(req, match.Unknown{})
		for range 8 {
			if d := hook.ShouldCall(b.Context(), a); !d.Match {
				b.Fatalf("%+v", d)
			}
		}
	}
}

// BenchmarkCompile measures a change of the configuration.
func BenchmarkCompile(b *testing.B) {
	in := match.Input{}
	for i := range 1000 {
		in.Objects = append(in.Objects, validating("", fmt.Sprintf("c-%d", i), "hook.io"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if snapshot, _ := match.Compile(in); len(snapshot.Hooks()) != 1000 {
			b.Fatal("hooks are missing")
		}
	}
}

// TestEquivalentsAllocateNothing: neither the look-up nor the search, where they lead to nobody.
func TestEquivalentsAllocateNothing(t *testing.T) {
	o := validating("", "a", "hook.io")
	equivalent := admissionregistrationv1.Equivalent
	o.Validating.Webhooks[0].MatchPolicy, o.Validating.Webhooks[0].Rules = &equivalent, rule("*", "extensions", "v9", "deployments/status")
	snapshot, req, c := compile(t, match.Input{Objects: []match.Object{o}}), requestBy(deployments()[1]), &laboratory{ways: deployments()}
	attributes := testing.AllocsPerRun(100, func() { match.NewAttributes(req, c) })
	all := testing.AllocsPerRun(100, func() { snapshot.Candidates("c", validate, match.NewAttributes(req, c)) })
	if all > attributes || c.lookups == 0 {
		t.Errorf("%v allocations more, after %d look-ups", all-attributes, c.lookups)
	}
}

func TestARequestThatNoHookWantsAllocatesNothing(t *testing.T) {
	o := validating("", "a", "hook.io")
	o.Validating.Webhooks[0].Rules = rule("*", "apps", "v1", "deployments", "*/status")
	snapshot, a := compile(t, match.Input{Objects: []match.Object{o}}), match.NewAttributes(createPod(), match.Unknown{})
	if n := testing.AllocsPerRun(100, func() { snapshot.Candidates("c", validate, a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
