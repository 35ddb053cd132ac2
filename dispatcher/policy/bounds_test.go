package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// TestTheVerdictOfAPolicyHasABound has each of many bindings take all actions for each of many validations that are false.
func TestTheVerdictOfAPolicyHasABound(t *testing.T) {
	for _, test := range []struct{ validations, bindings, denials, warnings int }{{2, 3, 2, 6}, {64, 1, 64, 64}, {65, 1, 64, 64}, {100, 100, 64, 64}} {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		for i := range test.validations {
			p.Spec.Validations = append(p.Spec.Validations, admissionregistrationv1.Validation{Expression: "false", Message: fmt.Sprint("m", i)})
		}
		var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
		for i := range test.bindings {
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)}}
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{
				admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit,
			}
			bindings = append(bindings, b)
		}

		v, err := policy.NewCompiler().Compile(p).Bind(bindings).Judge(t.Context(), match.NewAttributes(benchRequest(), match.Unknown{}), nil, nil)

		if err != nil {
			t.Fatal(err)
		}
		audited := strings.Count(v.GetAuditAnnotations()[policy.AuditFailure], `"binding"`)
		if n := len(v.GetStatus().GetDetails().GetCauses()); n != test.denials || len(v.GetWarnings()) != test.warnings || audited != test.warnings {
			t.Errorf("%d validations, %d bindings: %d denials, %d warnings, %d audited", test.validations, test.bindings, n, len(v.GetWarnings()), audited)
		}
	}
}

// unnoticed is a context whose time ends when it is asked for the second time, and whose timer has had no processor yet.
type unnoticed struct {
	context.Context

	asked *int
}

func (u unnoticed) Deadline() (time.Time, bool) {
	if *u.asked++; *u.asked == 1 {
		return time.Time{}, false
	}
	return time.Now(), true
}

// meter sums up units.
type meter struct {
	spent int64
	full  bool // reserves nothing
}

func (m *meter) Spend(_ context.Context, units int64) error {
	m.spent += units
	return nil
}

func (m *meter) Reserve(int64) bool { return !m.full }

// TestTheEndOfItsTimeEndsAPolicy has comprehensions in each other, whose inner one the evaluation of cel-go ends and whose outer one it does not. Some are
// evaluated without a count of their costs.
func TestTheEndOfItsTimeEndsAPolicy(t *testing.T) {
	const counted = "lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))"
	uncounted := fmt.Sprintf("[%s].all(a, [%[1]s].all(b, a + b >= 0))", strings.Repeat("1, ", 59)+"1")
	for _, of := range []struct {
		nested   string
		counting bool
		variable bool
	}{{counted, true, false}, {counted, true, true}, {uncounted, false, false}, {uncounted, false, true}} {
		nested, variable := of.nested, of.variable
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: nested}}
		if variable {
			p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "x", Expression: nested}}
			p.Spec.Validations[0].Expression = "variables.x"
		}
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		spent := &meter{}

		v, err := policy.NewCompiler().Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding}).Judge(
			policy.WithReview(unnoticed{t.Context(), new(int)}, spent), match.NewAttributes(benchRequest(), match.Unknown{}), nil, nil)

		if err == nil || v.GetAllowed() || !strings.Contains(v.GetStatus().GetMessage(), "interrupted") {
			t.Errorf("variable %t: %v %v", variable, v, err)
		}
		if spent.spent > 10_000 || (spent.spent > 0) != of.counting {
			t.Errorf("variable %t: it was evaluated for %d units after the end, counted: %t", variable, spent.spent, of.counting)
		}
	}
}

// TestTheLimitsOfCostsEndAPolicy has expressions whose costs are counted for long lists alone, and end as in Kubernetes.
func TestTheLimitsOfCostsEndAPolicy(t *testing.T) {
	const nested = "object.list.all(a, object.list.all(b, a == b || b == 1))"
	for _, test := range []struct {
		name       string
		expression string
		items      int
		full       bool // the bounds of the policies of the review
		counted    bool
		message    string
	}{
		{"short lists", nested, 30, false, false, ""},
		{"short lists, after policies with high bounds", nested, 30, true, true, ""},
		{"lists above the limit of an expression", "object.list.all(a, object.list.all(b, b == 1))", 500, false, true, "operation cancelled: actual cost limit exceeded"},
		{"lists above the limit of a policy", nested, 600, false, true, "operation cancelled: actual cost limit exceeded"},
		{"a function that is not known", "object.list.sum() > 0", 3, false, true, ""},
	} {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: test.expression}}
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		request := benchRequest()
		request.Object.Raw = fmt.Appendf(nil, `{"list":[%s1]}`, strings.Repeat("1,", test.items-1))
		spent := &meter{full: test.full}

		v, err := policy.NewCompiler().Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding}).Judge(
			policy.WithReview(t.Context(), spent), match.NewAttributes(request, match.Unknown{}), nil, nil)

		if (err == nil) != v.GetAllowed() || v.GetAllowed() != (test.message == "") || !strings.Contains(v.GetStatus().GetMessage(), test.message) {
			t.Errorf("%s: %v %v, want %q", test.name, v, err, test.message)
		}
		if (spent.spent > 0) != test.counted {
			t.Errorf("%s: %d units counted", test.name, spent.spent)
		}
	}
}
