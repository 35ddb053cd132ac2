package chain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	k8sadmission "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

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

// TestADryRunNamesEachInitializerOnce: one that was left out is skipped again when hooks are called again.
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
