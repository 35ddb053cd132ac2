package policy_test

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// TestARefusalIsAFailureUnlessAValidationIsFalse has policies that refuse a Pod, with one binding that denies.
func TestARefusalIsAFailureUnlessAValidationIsFalse(t *testing.T) {
	const fails = "object.missing == 1"
	for name, of := range map[string]struct {
		validations []string
		ignore      bool
		refused     bool
		failure     string // at its end
	}{
		"all are true":                         {[]string{"true"}, false, false, ""},
		"one is false":                         {[]string{"true", "false"}, false, true, ""},
		"one fails":                            {[]string{"true", fails}, false, true, "no such key: missing"},
		"one fails, and one is false":          {[]string{fails, "false"}, false, true, ""},
		"one fails, which is ignored":          {[]string{fails}, true, false, "no such key: missing"},
		"one fails, and one is false, ignored": {[]string{fails, "false"}, true, true, ""},
		"64 fail, and one is false":            {append(strings.Split(strings.Repeat(fails+",", 64), ",")[:64], "false"), false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			for _, expression := range of.validations {
				p.Spec.Validations = append(p.Spec.Validations, admissionregistrationv1.Validation{Expression: expression})
			}
			if of.ignore {
				ignore := admissionregistrationv1.Ignore
				p.Spec.FailurePolicy = &ignore
			}
			binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}

			v, err := policy.NewCompiler().Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding}).Judge(
				policy.WithReview(t.Context(), nil), match.NewAttributes(benchRequest(), match.Unknown{}), nil, nil)

			said := ""
			if err != nil {
				said = err.Error()
			}
			if v.GetAllowed() == of.refused || !strings.HasSuffix(said, of.failure) || (said == "") != (of.failure == "") {
				t.Errorf("refused %t, failure %q; want %t, %q", !v.GetAllowed(), said, of.refused, of.failure)
			}
		})
	}
}
