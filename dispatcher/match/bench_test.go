package match_test

import (
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	snapshot, findings := match.Compile(in)
	if len(findings) > 0 {
		tb.Fatalf("findings: %v", findings)
	}
	return snapshot
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
					if d := h.Matches(b.Context(), a); !d.Match {
						b.Fatalf("%+v", d)
					}
				}
			}
		})
	}
}

// BenchmarkCompile is what a change of the configuration costs.
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

func TestARequestThatNoHookWantsAllocatesNothing(t *testing.T) {
	o := validating("", "a", "hook.io")
	o.Validating.Webhooks[0].Rules = rule("*", "apps", "v1", "deployments", "*/status")
	snapshot, a := compile(t, match.Input{Objects: []match.Object{o}}), match.NewAttributes(createPod(), match.Unknown{})
	if n := testing.AllocsPerRun(100, func() { snapshot.Candidates("c", validate, a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
