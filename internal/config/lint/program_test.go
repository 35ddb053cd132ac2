package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestAnExpressionIsEvaluatedForSoManyCalls has expressions that are false after as many calls as are made, and after more.
func TestAnExpressionIsEvaluatedForSoManyCalls(t *testing.T) {
	s := situation{operation: admissionregistrationv1.Create, resource: "pods"}
	variables, err := s.variables()
	if err != nil {
		t.Fatal(err)
	}
	isFalse := func(expression string) bool {
		t.Helper()
		p := new(constants).program(expression)
		if p == nil {
			t.Fatalf("%s cannot be read", expression)
		}
		value, err := p.evaluate(variables)
		if err != nil {
			t.Errorf("%.60s fails: %v", expression, err)
		}
		return value == types.False
	}
	// Each item takes three calls: the comparison, and two of the loop.
	items := func(n int) string { return "[" + strings.Repeat("0,", n-1) + "0].exists(x, x > 0)" }
	if !isFalse(items(maxConstantCost/3)) || isFalse(items(maxConstantCost/3+1)) {
		t.Errorf("%d calls are not the bound", maxConstantCost)
	}
	const digits = "[0,1,2,3,4,5,6,7,8,9]"
	loops := "x9 < 0"
	for i := range 10 {
		loops = fmt.Sprintf("%s.exists(x%d, %s)", digits, i, loops)
	}
	for name, expression := range map[string]string{
		"ten billion loops":      strings.ReplaceAll(loops, "x9 < 0", "x0 < 0"),
		"without a call in them": strings.ReplaceAll(loops, "x9 < 0", "false"),
		"a text that doubles":    "['aaaaaaaaaaaaaaaa'].exists(s, " + strings.Repeat("[s + s].exists(s, ", 20) + "s == ''" + strings.Repeat(")", 21),
	} {
		if isFalse(expression) {
			t.Errorf("%s is evaluated to its end", name)
		}
	}
}
