package chain

import (
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// TestAFailureOfAHookFailsClosedWhateverVerdictIsBesideIt: only policies answer when they fail, and a backend that returned both must not open a hook with
// failurePolicy Fail.
func TestAFailureOfAHookFailsClosedWhateverVerdictIsBesideIt(t *testing.T) {
	for name, test := range map[string]struct {
		policy match.Policy
		want   Effect
	}{
		"a hook":   {nil, FailedClosed},
		"a policy": {struct{ match.Policy }{}, FailedOpen},
	} {
		c := &call{Call: review.Call{Hook: &match.Hook{FailurePolicy: admissionregistrationv1.Fail, Policy: test.policy}}}
		c.result = review.Result{
			Verdict: &admissionv1.AdmissionResponse{Allowed: true}, Failure: &review.Failure{Kind: review.FailureHandler, Err: errors.New("failed")},
		}
		if got := c.interpret(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
