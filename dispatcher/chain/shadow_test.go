package chain_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

func TestWhatAHookInShadowWouldHaveDone(t *testing.T) {
	const mutate, validate = admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE
	patch := func(patch, kind string) review.Result {
		return review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: kind}}
	}
	denial := &admissionv1.AdmissionResponse{Patch: []byte(`{`), Status: &admissionv1.Status{Message: "no", Code: 409}}
	for name, tc := range map[string]struct {
		stage  admissionv1.Stage
		result review.Result
		want   chain.Effect
		reason string
		code   int32
	}{
		"it would have allowed":                     {validate, review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}}, chain.Allowed, "", 0},
		"it would have denied":                      {validate, review.Result{Verdict: &admissionv1.AdmissionResponse{}}, chain.Denied, "", 400},
		"it would have denied, whatever its patch":  {mutate, review.Result{Verdict: denial}, chain.Denied, "no", 409},
		"it would have patched":                     {mutate, patch(`[{"op":"remove","path":"/no"}]`, "JSONPatch"), chain.Patched, "", 0},
		"no operation is no patch":                  {mutate, patch(`[]`, "JSONPatch"), chain.Allowed, "", 0},
		"... of whatever type":                      {mutate, patch(`[]`, "Merge"), chain.Allowed, "", 0},
		"a patch that is none":                      {mutate, patch(`{`, "JSONPatch"), chain.FailedOpen, "received undecodable patch in webhook response: unexpected end of JSON input", 0},
		"a merge patch":                             {mutate, patch(`{"metadata":{}}`, "MergePatch"), chain.FailedOpen, `unsupported patch type "MergePatch", want "JSONPatch": received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch`, 0},
		"a patch of a type that there is not":       {mutate, patch(`[{"op":"remove","path":"/no"}]`, "Merge"), chain.FailedOpen, `unsupported patch type "Merge", want "JSONPatch"`, 0},
		"a patch without a type":                    {mutate, patch(`[]`, ""), chain.FailedOpen, "webhook returned response.patch but not response.patchType", 0},
		"validating hooks do not patch":             {validate, patch(`[]`, "JSONPatch"), chain.FailedOpen, "validating webhook may not return response.patch", 0},
		"a failure":                                 {validate, review.Fail(review.FailureLost, "gone"), chain.FailedOpen, "gone", 0},
		"neither a verdict nor a failure is either": {validate, review.Result{}, chain.FailedOpen, "neither a verdict nor a failure", 0},
	} {
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
			h := &match.Hook{ID: match.HookID{Stage: tc.stage, Name: "s.test.dev"}, FailurePolicy: policy, Route: match.Route{Shadow: true}}
			o := chain.EvaluateShadow(h, tc.result)
			if o.Hook != h || o.Effect != tc.want || o.Reason != tc.reason || o.Code != tc.code || (o.Failure != nil) != (tc.want == chain.FailedOpen) {
				t.Errorf("%s (%s): %+v", name, policy, o)
			}
		}
	}
}
