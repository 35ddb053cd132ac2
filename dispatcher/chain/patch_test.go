package chain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// unable is a codec that applies no patch.
type unable struct{ err error }

func (u unable) Apply([]byte, []byte) (result []byte, changed bool, err error) {
	return nil, false, u.err
}
func (u unable) Initialized(_, _, _ []byte) (merged []byte, changed bool, err error) {
	return nil, false, u.err
}
func (u unable) Diff([]byte, []byte) ([]byte, error) { return nil, u.err }

// A patch for which there is no time, no memory, or that is past a limit is no answer: a fail-closed hook refuses the request, and
// a fail-open one says that it was skipped.
func TestAPatchThatIsNotAppliedIsAFailureOfItsHook(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		refuse string // in the message
		warn   string // in the warning
	}{
		"no time":      {fmt.Errorf("%w: %w", conversion.ErrStopped, context.DeadlineExceeded), "timeout", "timeout"},
		"no memory":    {fmt.Errorf("no room: %w", &memory.FullError{}), "overload", "overload"},
		"past a limit": {fmt.Errorf("%w: it moves too much", conversion.ErrUndecodable), "it moves too much", "bad_answer"},
	} {
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				got := answerOf(unable{test.err}, policy)
				open := policy == admissionregistrationv1.Ignore
				if got.Response.GetAllowed() != open || got.Failed == open || len(got.Response.GetPatch()) > 0 {
					t.Errorf("allowed %t, failed %t, patch %s", got.Response.GetAllowed(), got.Failed, got.Response.GetPatch())
				}
				said, want := got.Response.GetStatus().GetMessage(), test.refuse
				if open {
					said, want = strings.Join(got.Response.GetWarnings(), ""), test.warn
				}
				if !strings.Contains(said, want) {
					t.Errorf("it says %q, want %q", said, want)
				}
			})
		}
	}
	if got := answerOf(unable{errors.New("no such path")}, admissionregistrationv1.Ignore); got.Response.GetAllowed() {
		t.Error("a patch that does not apply was allowed")
	}
}

// answerOf is the answer of a review with one hook, which patches.
func answerOf(codec chain.Codec, policy admissionregistrationv1.FailurePolicyType) review.Answer {
	return answerTo(codec, policy, review.Result{Verdict: &admissionv1.AdmissionResponse{
		Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[{"op":"add","path":"/a","value":1}]`),
	}})
}

// answerTo is the answer of a review with one hook.
func answerTo(codec chain.Codec, policy admissionregistrationv1.FailurePolicyType, result review.Result) review.Answer {
	m := chain.NewMutate(chain.Options{
		Request: &review.Request{Stage: admissionv1.Stage_STAGE_MUTATE, Admission: &admissionv1.AdmissionRequest{
			Uid: "u1", Operation: "CREATE", Object: &admissionv1.Object{Raw: []byte(`{"kind":"A","apiVersion":"v1"}`)},
		}},
		Revision: "r1", Codec: codec, Deadline: epoch.Add(time.Minute),
		Subject: subject{},
		Hooks:   []*match.Hook{{ID: match.HookID{Configuration: "c", Name: "a"}, FailurePolicy: policy, Timeout: time.Second}},
	})
	start, _ := m.Next(epoch)
	m.Deliver(start[0].ID, result)
	m.Next(epoch)
	answer, _ := m.Answer()
	return answer
}

// A direct caller reads the patch with any reader, and an error text goes into protobuf.
func TestAnAnswerIsText(t *testing.T) {
	for _, quoted := range []string{"V\xff\xfe", `\ud83d`, "\xed\xa0\x80"} {
		got := answerTo(conversion.Raw{}, admissionregistrationv1.Fail, review.Result{Verdict: &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[{"op":"add","path":"/a","value":"x` + quoted + `y"}]`),
		}})
		patch := got.Response.GetPatch()
		if conversion.CheckText(patch) != nil || !strings.Contains(string(patch), `"x`) {
			t.Errorf("%q: patch %q, status %v", quoted, patch, got.Response.GetStatus())
		}
	}
	got := answerTo(conversion.Raw{}, admissionregistrationv1.Fail, review.Fail(review.FailureHandler, "the webhook answered HTTP 500 \xff\xfe"))
	if _, err := proto.Marshal(got.Response); err != nil || !got.Failed {
		t.Errorf("%v cannot be sent: %v", got.Response, err)
	}
}
