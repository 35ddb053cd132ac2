package chain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	k8sadmission "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// TestFailuresHaveTheWordsOfKubernetes: tools and test suites look for them. Where kube-apiserver's code can be asked for its
// words it is.
func TestFailuresHaveTheWordsOfKubernetes(t *testing.T) {
	hook := func(stream bool) *match.Hook {
		return &match.Hook{
			ID: match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Name: "x.example.com"}, Timeout: time.Second,
			SideEffects: admissionregistrationv1.SideEffectClassSome, Route: match.Route{Stream: stream},
		}
	}
	o := &Options{Request: &review.Request{Admission: &admissionv1.AdmissionRequest{Uid: "u1"}}}
	failed := func(stream bool, kind review.FailureKind, cause string) string {
		return failedCall(o, &call{Call: review.Call{Hook: hook(stream)}, result: review.Result{Failure: &review.Failure{Kind: kind, Err: errors.New(cause)}}}).GetMessage()
	}
	late := call{Call: review.Call{Hook: hook(true)}, state: started, limit: time.Second}
	late.expire(o, time.Now())
	dry := true
	called := (&webhookutil.ErrCallingWebhook{WebhookName: "x.example.com", Reason: errors.New("failed to call webhook: ")}).Error()
	invalid := (&webhookutil.ErrCallingWebhook{WebhookName: "x.example.com", Reason: errors.New("received invalid webhook response: ")}).Error()
	for name, tt := range map[string]struct {
		got  string
		want []string
	}{
		"nobody serves it":           {failed(true, review.FailureUnavailable, "no host serves the hook"), []string{called, "unavailable: no host serves the hook"}},
		"nobody answers":             {failed(false, review.FailureUnavailable, "connection refused"), []string{called, "unavailable: connection refused"}},
		"a timeout of the chain":     {failedCall(o, &late).GetMessage(), []string{called, "timeout: " + context.DeadlineExceeded.Error() + ": no verdict in time (timeout 1s)"}},
		"a timeout that says it":     {failed(false, review.FailureTimeout, "context deadline exceeded"), []string{called + "timeout: context deadline exceeded"}},
		"an answer without response": {failed(false, review.FailureBadAnswer, "webhook response was absent"), []string{invalid + "bad_answer: webhook response was absent"}},
		"a handler that failed":      {failed(true, review.FailureHandler, "secret"), []string{called, "its handler failed; the logs of its host and of the mesh say why"}},
		"a webhook that failed":      {failed(false, review.FailureHandler, "the server says no"), []string{called, "the server says no"}},
		"a handler that panicked":    {failed(true, review.FailurePanic, "secret"), []string{called, "its handler panicked; the stack is in the log of its host"}},
		"code of ours that panicked": {failed(false, review.FailurePanic, "secret"), []string{called, "the dispatcher panicked; the stack is in its log"}},
		"side effects in a dry run": {
			refuseDryRun(hook(true), &admissionv1.AdmissionRequest{DryRun: &dry}).GetMessage(),
			[]string{strings.TrimPrefix(webhookerrors.NewDryRunUnsupportedErr("x.example.com").Error(), "admission web"), "(sideEffects: Some)"},
		},
		"a denial": {
			denied(hook(true), &admissionv1.Status{Message: "no"}).denial().GetMessage(),
			[]string{strings.TrimPrefix(webhookerrors.ToStatusErr("x.example.com", nil).Error(), "admission web")[:len(`hook "x.example.com" denied the request`)], ": no"},
		},
	} {
		for _, w := range tt.want {
			if !strings.Contains(tt.got, w) {
				t.Errorf("%s: %q, want %q in it", name, tt.got, w)
			}
		}
		if strings.Contains(tt.got, "secret") {
			t.Errorf("%s: the client is told: %s", name, tt.got)
		}
	}
}

func TestMalformedVerdictsHaveTheWordsOfKubernetes(t *testing.T) {
	const validate, mutate = admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_MUTATE
	patchType := k8sadmission.PatchTypeJSONPatch
	for name, tt := range map[string]struct {
		stage    admissionv1.Stage
		patch    string
		declared bool
	}{
		"a validating hook patches":              {validate, "[]", false},
		"a patch without a type":                 {mutate, "[]", false},
		"a type without a patch":                 {mutate, "", true},
		"a validating hook says a type of patch": {validate, "", true},
	} {
		ours := &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(tt.patch)}
		theirs := &k8sadmission.AdmissionReview{Response: &k8sadmission.AdmissionResponse{Allowed: true, Patch: []byte(tt.patch)}}
		theirs.SetGroupVersionKind(k8sadmission.SchemeGroupVersion.WithKind("AdmissionReview"))
		if tt.declared {
			ours.PatchType, theirs.Response.PatchType = jsonPatch, &patchType
		}
		_, want := webhookrequest.VerifyAdmissionResponse("", tt.stage == mutate, theirs)
		if got := wellFormed(tt.stage, ours); got == nil || want == nil || got.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestADryRunNamesEachInitializerOnce: an initializer that was left out is skipped again when hooks are called again.
func TestADryRunNamesEachInitializerOnce(t *testing.T) {
	h := &match.Hook{ID: match.HookID{Stage: admissionv1.Stage_STAGE_INITIALIZE, Name: "a.example.com"}}
	skip := func(round uint32) *call {
		return &call{Call: review.Call{Hook: h, Round: round}, state: skipped, reason: match.SkipDryRun}
	}
	got := warningsOf([]*call{skip(0), skip(1)})
	if len(got) != 1 || strings.Count(got[0], "a.example.com") != 1 {
		t.Errorf("%q", got)
	}
}

// TestTheCodeOfADenialIsOfHTTP: net/http panics at others, in kube-apiserver too.
func TestTheCodeOfADenialIsOfHTTP(t *testing.T) {
	for code, want := range map[int32]int32{
		math.MinInt32: 400, -1: 400, 0: 400, 200: 400, 399: 400, 400: 400, 422: 422, 451: 451, 500: 500, 599: 599,
		600: 400, 999: 400, 1000: 400, 99999: 400, math.MaxInt32: 400,
	} {
		if code <= 599 {
			theirs := webhookerrors.ToStatusErr("x", &metav1.Status{Code: code}).Status().Code
			if theirs != want {
				t.Errorf("%d: Kubernetes says %d", code, theirs)
			}
		}
		c := denied(&match.Hook{}, &admissionv1.Status{Code: code})
		if got := c.denial().GetCode(); got != want {
			t.Errorf("%d became %d, want %d", code, got, want)
		}
		if got := matchError(&match.Hook{}, &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}}).GetCode(); got != want {
			t.Errorf("%d of a failed match became %d, want %d", code, got, want)
		}
		httptest.NewRecorder().WriteHeader(int(want))
	}
}

// TestAnUndecodablePatchHasTheWordsOfKubernetes, with which people search.
func TestAnUndecodablePatchHasTheWordsOfKubernetes(t *testing.T) {
	o := &Options{Request: &review.Request{Admission: &admissionv1.AdmissionRequest{Uid: "u1"}}}
	for _, patch := range []string{
		`[{]`, `[}`, `[{"op":"add"`, `{`, ` `, `W10=`, `{"op":"remove"}`, `[1]`, `[null,"a"]`, `[[]]`, `[true]`, `"a"`, `7`, `true`, `[] []`, `null 7`,
		"[{\"op\":\"\xff\x01\"}]", `[{"op":"\x"}]`, `[01]`, strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
	} {
		_, theirs := jsonpatch.DecodePatch([]byte(patch))
		if theirs == nil {
			t.Fatalf("%s can be decoded", patch)
		}
		want := (&webhookutil.ErrCallingWebhook{
			WebhookName: "x.example.com", Reason: fmt.Errorf("received undecodable patch in webhook response: %w", theirs),
		}).Error()
		_, _, err := conversion.Patch(nil, []byte(`{}`), []byte(patch))
		kind, _ := patchFailure(err)
		c := &call{
			Call:   review.Call{Hook: &match.Hook{ID: match.HookID{Name: "x.example.com"}}},
			result: review.Result{Failure: &review.Failure{Kind: kind, Err: err}},
		}
		if got := failedCall(o, c).GetMessage(); !strings.HasPrefix(got, want+" [") {
			t.Errorf("%.40s\n got %s\nwant %s [...]", patch, got, want)
		}
	}
}
