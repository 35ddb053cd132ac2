package oracle_test

import (
	"strings"
	"testing"

	k8sadmissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// edited is an allowing answer whose AdmissionReview is spoilt.
func edited(edit func(*k8sadmissionv1.AdmissionReview)) oracle.Answer {
	a := oracle.Allow()
	a.Edit = edit
	return a
}

func TestTheFailurePolicyCoversCallsThatYieldNoVerdict(t *testing.T) {
	merge := k8sadmissionv1.PatchType("JSONMergePatch")
	for name, answer := range map[string]oracle.Answer{
		"a dropped connection":        {Drop: true},
		"no answer in time":           {Hang: true},
		"a server error":              oracle.Status(500),
		"not found":                   oracle.Status(404),
		"a body that is no JSON":      {Body: []byte("{")},
		"a review without a response": {},
		"the uid of another review":   edited(func(r *k8sadmissionv1.AdmissionReview) { r.Response.UID = types.UID("other") }),
		"a review of another version": edited(func(r *k8sadmissionv1.AdmissionReview) { r.APIVersion = "admission.k8s.io/v1beta1" }),
		"a patch without its type":    edited(func(r *k8sadmissionv1.AdmissionReview) { r.Response.Patch = []byte("[]") }),
		"a patch of an unknown type": edited(func(r *k8sadmissionv1.AdmissionReview) {
			r.Response.Patch, r.Response.PatchType = []byte(`[{}]`), &merge
		}),
		"a patch that cannot be decoded": oracle.Patch(`[{`),
	} {
		t.Run(name, func(t *testing.T) {
			if got := runWithPolicy(t, admissionregistrationv1.Ignore, answer); !got.Allowed || len(got.FinalObject) == 0 {
				t.Errorf("Ignore: %+v", got)
			}
			got := runWithPolicy(t, admissionregistrationv1.Fail, answer)
			if got.Allowed || got.Code != 500 || !strings.Contains(got.Message, `failed calling webhook "one.io"`) {
				t.Errorf("Fail: %+v", got)
			}
		})
	}
}

func TestTheFailurePolicyDoesNotCoverPatchesThatCannotBeApplied(t *testing.T) {
	for name, patch := range map[string]string{
		"a test that fails":              `[{"op":"test","path":"/spec/size","value":7}]`,
		"a path that is not there":       `[{"op":"remove","path":"/spec/nothing"}]`,
		"a result that is not an object": `[{"op":"replace","path":"","value":[]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			if got := runWithPolicy(t, admissionregistrationv1.Ignore, oracle.Patch("%s", patch)); got.Allowed || got.Code != 500 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAPatchOnDeleteIsAnErrorWhateverThePolicy(t *testing.T) {
	o := oracle.New(t, oracle.Options{
		Mutating:   []*admissionregistrationv1.MutatingWebhookConfiguration{withPolicy(admissionregistrationv1.Ignore)},
		Namespaces: namespaces(),
		Default:    oracle.Always(oracle.Patch(`[{"op":"add","path":"/x","value":1}]`)),
	})
	req := createWidget()
	req.Operation, req.Object, req.OldObject = "DELETE", nil, req.GetObject()
	got := run(t, o, mutate, req)
	if got.Allowed || got.Code != 500 || !strings.Contains(got.Message, "attempted to modify the object, which is not supported for this operation") {
		t.Errorf("got %+v", got)
	}
}

// Kubernetes looks at the patch before it looks at the verdict: Portcullis deviates here on purpose.
func TestADenialWithAMalformedPatchUnderIgnoreBecomesAnAllow(t *testing.T) {
	denial := oracle.Deny(403, "", "no")
	denial.Response.Patch = []byte(`[]`)
	if got := runWithPolicy(t, admissionregistrationv1.Ignore, denial); !got.Allowed {
		t.Errorf("got %+v", got)
	}
}

func TestADryRunIsRefusedByHooksThatDoNotDeclareThemselvesFreeOfSideEffects(t *testing.T) {
	for _, tc := range []struct {
		effects admissionregistrationv1.SideEffectClass
		allowed bool
	}{
		{admissionregistrationv1.SideEffectClassNone, true},
		{admissionregistrationv1.SideEffectClassNoneOnDryRun, true},
		{admissionregistrationv1.SideEffectClassSome, false},
		{admissionregistrationv1.SideEffectClassUnknown, false},
	} {
		t.Run(string(tc.effects), func(t *testing.T) {
			c := withPolicy(admissionregistrationv1.Ignore)
			c.Webhooks[0].SideEffects = &tc.effects
			o := oracle.New(t, oracle.Options{
				Mutating:   []*admissionregistrationv1.MutatingWebhookConfiguration{c},
				Namespaces: namespaces(), Default: oracle.Always(oracle.Allow()),
			})
			req := createWidget()
			dryRun := true
			req.DryRun = &dryRun
			got := run(t, o, mutate, req)
			if got.Allowed != tc.allowed || (!tc.allowed && (got.Code != 400 || len(got.Called) != 0)) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAHookWithoutAScriptIsCalledWhereItsClientConfigSays(t *testing.T) {
	url := "https://127.0.0.1:1/nobody"
	c := withPolicy(admissionregistrationv1.Ignore)
	c.Webhooks[0].ClientConfig.URL = &url
	o := oracle.New(t, oracle.Options{Mutating: []*admissionregistrationv1.MutatingWebhookConfiguration{c}, Namespaces: namespaces()})
	got := run(t, o, mutate, createWidget())
	if !got.Allowed || got.Audit["failed-open.mutation.webhook.admission.k8s.io/round_0_index_0"] != "one.io" {
		t.Errorf("got %+v", got)
	}
}

func runWithPolicy(t *testing.T, policy admissionregistrationv1.FailurePolicyType, answer oracle.Answer) oracle.Outcome {
	t.Helper()
	o := oracle.New(t, oracle.Options{
		Mutating:   []*admissionregistrationv1.MutatingWebhookConfiguration{withPolicy(policy)},
		Namespaces: namespaces(),
		Default:    oracle.Always(answer),
	})
	return run(t, o, mutate, createWidget())
}

func withPolicy(policy admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := mutating("a", "one.io")
	second := int32(1)
	c.Webhooks[0].FailurePolicy, c.Webhooks[0].TimeoutSeconds = &policy, &second
	return c
}
