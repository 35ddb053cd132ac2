package chain

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// The text of a denial is bounded: an answer is kept in audit events.
func TestTheStatusOfADenialIsBounded(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	status := &admissionv1.Status{Message: long, Reason: long, Code: 409, Details: &admissionv1.StatusDetails{
		Name: long, Group: long, Kind: long, Uid: long, RetryAfterSeconds: 3,
	}}
	for range 10_000 {
		status.Details.Causes = append(status.Details.Causes, &admissionv1.StatusCause{Reason: "r", Message: "m", Field: "f"})
	}
	got := denied(&match.Hook{ID: match.HookID{Name: "a"}}, status).denial()
	if n := proto.Size(got); n > maxMessageBytes+maxReasonBytes+maxDetailsBytes+100 {
		t.Errorf("the status has %d bytes", n)
	}
	details := got.GetDetails()
	if got.GetCode() != 409 || details.GetRetryAfterSeconds() != 3 || len(details.GetCauses()) < 1000 {
		t.Errorf("code %d, retry after %d, %d causes", got.GetCode(), details.GetRetryAfterSeconds(), len(details.GetCauses()))
	}
	if m := got.GetMessage(); !utf8.ValidString(m) || !strings.HasSuffix(m, "...") || !strings.HasPrefix(m, `hook "a" denied the request: `) {
		t.Errorf("message %.50s", m)
	}
	short := &admissionv1.StatusDetails{Name: "p"}
	if got := denied(&match.Hook{}, &admissionv1.Status{Details: short}).denial(); got.GetDetails() != short {
		t.Errorf("details that find room are others: %v", got.GetDetails())
	}
	if m := internal("%s", long).GetMessage(); len(m) > maxMessageBytes {
		t.Errorf("a failure has %d bytes", len(m))
	}
}

// denied is a call that ended with a denial.
func denied(h *match.Hook, s *admissionv1.Status) *call {
	c := newCall(h, 0)
	c.state, c.result = ended, review.Result{Verdict: &admissionv1.AdmissionResponse{Status: s}}
	return c
}
