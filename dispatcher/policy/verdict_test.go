package policy_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// TestARefusalIsAFailureUnlessAValidationIsFalse has policies about a Pod, with one binding, which denies unless it has other actions.
func TestARefusalIsAFailureUnlessAValidationIsFalse(t *testing.T) {
	const fails = "object.missing == 1"
	const warn, audit, missing = admissionregistrationv1.Warn, admissionregistrationv1.Audit, "no such key: missing"
	type actions = []admissionregistrationv1.ValidationAction
	for name, of := range map[string]struct {
		validations []string
		ignore      bool
		refused     bool
		failure     string // at its end
		actions     actions
		acted       bool
	}{
		"all are true":                         {[]string{"true"}, false, false, "", nil, false},
		"one is false":                         {[]string{"true", "false"}, false, true, "", nil, false},
		"one fails":                            {[]string{"true", fails}, false, true, missing, nil, false},
		"one fails, and one is false":          {[]string{fails, "false"}, false, true, "", nil, false},
		"one fails, which is ignored":          {[]string{fails}, true, false, missing, nil, false},
		"one fails, and one is false, ignored": {[]string{fails, "false"}, true, true, "", nil, false},
		"64 fail, and one is false":            {append(strings.Split(strings.Repeat(fails+",", 64), ",")[:64], "false"), false, true, "", nil, false},
		"a warning about a false one":          {[]string{"false"}, false, false, "", actions{warn}, false},
		"a warning about a failure":            {[]string{"true", fails}, false, false, missing, actions{warn}, true},
		"a warning about a failure, ignored":   {[]string{fails}, true, false, missing, actions{warn}, false},
		"warnings about both":                  {[]string{"false", fails}, false, false, missing, actions{warn}, true},
		"an audited failure":                   {[]string{fails}, false, false, missing, actions{audit}, true},
		"70 audited failures with warnings":    {strings.Split(strings.Repeat(fails+",", 70), ",")[:70], false, false, missing, actions{warn, audit}, true},
		"a failure that denies and warns":      {[]string{fails}, false, true, missing, actions{admissionregistrationv1.Deny, warn}, false},
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
			if binding.Spec.ValidationActions = of.actions; of.actions == nil {
				binding.Spec.ValidationActions = actions{admissionregistrationv1.Deny}
			}

			v, err := policy.NewCompiler().Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding}).Judge(
				policy.WithReview(t.Context(), nil), match.NewAttributes(benchRequest(), match.Unknown{}), nil, nil)

			said := ""
			if err != nil {
				said = err.Error()
			}
			if v.GetAllowed() == of.refused || !strings.HasSuffix(said, of.failure) || (said == "") != (of.failure == "") {
				t.Errorf("refused %t, failure %q; want %t, %q", !v.GetAllowed(), said, of.refused, of.failure)
			}
			why := "" // the last one is false
			if of.refused && of.failure == "" {
				why = fmt.Sprintf("validations[%d] false", len(of.validations)-1)
			}
			if v.Why != why {
				t.Errorf("the denial is of %q, want %q", v.Why, why)
			}
			if v.Acted != of.acted {
				t.Errorf("acted %t, want %t", v.Acted, of.acted)
			}
		})
	}
}

// TestADenialNamesSomeOfTheValidationsThatAreFalse once, whatever the number of bindings.
func TestADenialNamesSomeOfTheValidationsThatAreFalse(t *testing.T) {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "true"}}
	for range 5 {
		p.Spec.Validations = append(p.Spec.Validations, admissionregistrationv1.Validation{Expression: "false"})
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}

	v, err := policy.NewCompiler().Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding, binding}).Judge(
		policy.WithReview(t.Context(), nil), match.NewAttributes(benchRequest(), match.Unknown{}), nil, nil)

	if want := "validations[1], validations[2], validations[3], validations[4] and 1 more false"; err != nil || v.Why != want {
		t.Errorf("%q, %v, want %q", v.Why, err, want)
	}
}
