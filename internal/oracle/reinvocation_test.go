package oracle_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// A appends to a list only missing items, B always adds: the first is called again for the change of the second.
func TestAHookIsReinvokedForLaterChangesIfItAskedForIt(t *testing.T) {
	ifNeeded := admissionregistrationv1.IfNeededReinvocationPolicy
	for name, tc := range map[string]struct {
		policy *admissionregistrationv1.ReinvocationPolicyType
		called []string
	}{
		"IfNeeded": {&ifNeeded, []string{"a/first.io", "b/second.io", "a/first.io"}},
		"Never":    {nil, []string{"a/first.io", "b/second.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := mutating("a", "first.io"), mutating("b", "second.io")
			first.Webhooks[0].ReinvocationPolicy = tc.policy
			uids := map[string]bool{}
			o := oracle.New(t, oracle.Options{
				Mutating:   []*admissionregistrationv1.MutatingWebhookConfiguration{first, second},
				Namespaces: namespaces(),
				Scripts: map[string]oracle.Script{
					"a/first.io": func(_ context.Context, r *k8sadmissionv1.AdmissionRequest) oracle.Answer {
						uids[string(r.UID)] = true
						if strings.Contains(string(r.Object.Raw), "second") {
							return oracle.Patch(`[{"op":"add","path":"/spec/again","value":true}]`)
						}
						return oracle.Allow()
					},
					"b/second.io": oracle.Always(oracle.Patch(`[{"op":"add","path":"/spec/second","value":true}]`)),
				},
			})
			got := run(t, o, mutate, createWidget())
			if diff := cmp.Diff(tc.called, got.Called); diff != "" {
				t.Errorf("called (-want +got):\n%s", diff)
			}
			if reinvoked := strings.Contains(string(got.FinalObject), "again"); reinvoked != (tc.policy != nil) {
				t.Errorf("final object %s", got.FinalObject)
			}
			if want := len(tc.called) - 1; len(uids) != want {
				t.Errorf("%d uids for %d calls: each call has its own", len(uids), want)
			}
		})
	}
}
