package stream

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// naive reads the verdicts in a frame by the generated code.
func naive(frame *hostv1.ConnectRequest) []answer {
	all := frame.GetVerdicts().GetVerdicts()
	if v := frame.GetVerdict(); v != nil {
		all = []*hostv1.Verdict{v}
	}
	var out []answer
	for _, v := range all {
		out = append(out, answer{
			call: v.GetCallId(), hook: v.GetHookIndex(), queued: time.Duration(v.GetQueueUs()) * time.Microsecond,
			host:   time.Duration(v.GetQueueUs())*time.Microsecond + time.Duration(v.GetHandleUs())*time.Microsecond,
			result: naiveResult(v),
		})
	}
	return out
}

func naiveResult(v *hostv1.Verdict) review.Result {
	switch x := v.GetOutcome().(type) {
	case *hostv1.Verdict_Response:
		return review.Result{Verdict: x.Response}
	case *hostv1.Verdict_Error:
		if x.Error.GetPanicked() {
			return review.Fail(review.FailurePanic, "the handler panicked")
		}
		return review.Fail(review.FailureHandler, "%s", orElse(x.Error.GetMessage(), "the handler failed"))
	case *hostv1.Verdict_Cancelled:
		return review.Fail(review.FailureTimeout, "the handler stopped without a verdict")
	case *hostv1.Verdict_Refused:
		return review.Result{Failure: review.NotStarted(review.FailureRefused, "the host refused: "+orElse(x.Refused.GetReason(), "no reason"))}
	}
	return review.Fail(review.FailureBadAnswer, "a verdict without an outcome")
}

// sameAnswers compares answers read by Decode with those by the generated code.
func sameAnswers(t *testing.T, got, want []answer) {
	t.Helper()
	failure := cmp.Transformer("failure", func(f *review.Failure) []any {
		if f == nil {
			return nil
		}
		return []any{f.Kind, f.NotStarted, f.Error()}
	})
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{}), cmpopts.IgnoreFields(answer{}, "bytes"), failure, protocmp.Transform()); diff != "" {
		t.Errorf("not what the generated code reads:\n%s", diff)
	}
}

// randomVerdict is a verdict of any kind.
func randomVerdict(r *rand.Rand) *hostv1.Verdict {
	v := &hostv1.Verdict{
		CallId: r.Uint64() >> r.IntN(64), HookIndex: r.Uint32() >> r.IntN(32),
		QueueUs: r.Uint32() >> r.IntN(32), HandleUs: r.Uint32() >> r.IntN(32),
	}
	switch r.IntN(6) {
	case 0:
		v.Outcome = &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Message: strings.Repeat("é", r.IntN(3)), Panicked: r.IntN(2) == 0}}
	case 1:
		v.Outcome = &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}}
	case 2:
		v.Outcome = &hostv1.Verdict_Refused{Refused: &hostv1.Refused{Reason: strings.Repeat("x", r.IntN(3))}}
	case 3:
		v.Outcome = &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: r.IntN(2) == 0}}
	case 4:
		v.Outcome = &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{
			Allowed: r.IntN(2) == 0, Warnings: []string{"", "w"}, Patch: []byte("[]"), PatchType: "JSONPatch",
			AuditAnnotations: map[string]string{"a": "b"},
			Status: &admissionv1.Status{Message: "m", Details: &admissionv1.StatusDetails{
				Causes: []*admissionv1.StatusCause{{Field: "f"}},
			}},
		}}
	}
	return v
}

func TestVerdictsAreReadAsTheGeneratedCodeDoes(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	in := new(Incoming) // used again and again, as by a stream
	for range 2000 {
		frame := &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: randomVerdict(r)}}
		if r.IntN(2) == 0 {
			batch := &hostv1.Verdicts{}
			for range r.IntN(5) {
				batch.Verdicts = append(batch.Verdicts, randomVerdict(r))
			}
			frame.Frame = &hostv1.ConnectRequest_Verdicts{Verdicts: batch}
		}
		raw, err := proto.Marshal(frame)
		if err = errors.Join(err, in.Decode(raw)); err != nil {
			t.Fatal(err)
		}
		var got []answer
		sameAnswers(t, append(got, in.answers...), naive(frame))
	}
}

// FuzzDecode reads frames of a host both ways. Decode reads all that the generated code reads, to the same meaning; only limits and
// invalid texts in answers make a difference.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 20 {
		one, err := proto.Marshal(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: randomVerdict(r)}})
		if err != nil {
			f.Fatal(err)
		}
		more, err := proto.Marshal(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{
			Verdicts: &hostv1.Verdicts{Verdicts: []*hostv1.Verdict{randomVerdict(r), randomVerdict(r)}},
		}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(one)
		f.Add(append(one, one...))
		f.Add(append(one, more...))
		f.Add(append(more, more...))
	}
	f.Add([]byte("\x12\x06\x1a\x04B\x0200")) // a verdict whose response has a field that nobody knows
	f.Fuzz(func(t *testing.T, raw []byte) {
		want, in := new(hostv1.ConnectRequest), new(Incoming)
		// Fields that nobody knows have no meaning, wherever they are.
		badly, err := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, want), in.Decode(raw)
		if badly != nil {
			return // either reading of it is right
		}
		if err != nil {
			t.Fatalf("%v in a frame that can be read: %v", err, want)
		}
		sameAnswers(t, in.answers, naive(want))
	})
}

// TestPartsOfAVerdictArePutTogetherInTheMemoryThatTheyTake sends a verdict in as many parts as a frame holds: each costs
// the memory of its own bytes, and no copy of earlier parts.
func TestPartsOfAVerdictArePutTogetherInTheMemoryThatTheyTake(t *testing.T) {
	part := []byte{2<<3 | 2, 2, 1 << 3, 7}
	raw := bytes.Repeat(part, 20_000)
	in := new(Incoming)
	allocated := testing.AllocsPerRun(1, func() {
		if err := in.Decode(raw); err != nil || in.answers[0].call != 7 {
			t.Fatalf("%v: %+v", err, in.answers)
		}
	})
	if allocated > 100 {
		t.Errorf("%.0f allocations for a verdict in %d parts", allocated, len(raw)/len(part))
	}
}

// TestPermissionsAreOneVerdict sends verdicts that say nothing but yes, and others between them.
func TestPermissionsAreOneVerdict(t *testing.T) {
	t.Parallel()
	in := new(Incoming)
	var permission *admissionv1.AdmissionResponse
	for _, r := range []*admissionv1.AdmissionResponse{
		{Allowed: true}, {}, {Allowed: true, Warnings: []string{"mind"}}, {Allowed: true}, {Allowed: true, Uid: "u"}, {Allowed: true},
	} {
		raw, err := proto.Marshal(r)
		got, errRead := in.response(raw)
		if err := errors.Join(err, errRead); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got.Verdict, protocmp.Transform()); diff != "" {
			t.Errorf("verdict (-want +got):\n%s", diff)
		}
		if permission == nil {
			permission = got.Verdict
		}
		if plain := proto.Equal(r, permission); plain != (got.Verdict == permission) {
			t.Errorf("%v shares the one permission: %v", r, !plain)
		}
	}
}

func TestADenialStaysADenialWhateverElseIsInTheAnswer(t *testing.T) {
	t.Parallel()
	many := make([]string, MaxVerdictItems+1)
	causes := make([]*admissionv1.StatusCause, MaxVerdictItems+1)
	annotations := map[string]string{}
	for i := range many {
		causes[i], annotations[strings.Repeat("x", i)] = new(admissionv1.StatusCause), ""
	}
	for name, response := range map[string]*admissionv1.AdmissionResponse{
		"warnings":    {Warnings: many},
		"causes":      {Status: &admissionv1.Status{Details: &admissionv1.StatusDetails{Causes: causes}}},
		"annotations": {AuditAnnotations: annotations},
	} {
		for _, allowed := range []bool{false, true} {
			response.Allowed = allowed
			raw, err := proto.Marshal(response)
			if err != nil {
				t.Fatal(err)
			}
			checkUnusable(t, name, raw, allowed)
		}
	}
	invalid := []byte{7<<3 | 2, 1, 0xff} // a warning that is no text
	checkUnusable(t, "an invalid text", invalid, false)
	checkUnusable(t, "an invalid text", append(invalid, 2<<3, 1), true)
}

func checkUnusable(t *testing.T, what string, raw []byte, allowed bool) {
	t.Helper()
	got, err := new(Incoming).response(raw)
	switch {
	case err != nil:
		t.Errorf("%s: %v", what, err)
	case allowed && (got.Failure == nil || got.Failure.Kind != review.FailureBadAnswer):
		t.Errorf("%s in an answer that allows: %+v", what, got)
	case !allowed && (got.Verdict == nil || got.Verdict.GetAllowed() || got.Verdict.GetStatus().GetMessage() == ""):
		t.Errorf("%s in an answer that denies: %+v", what, got)
	}
}

func TestAnAnswerMayHaveAsManyItemsAsTheLimitSays(t *testing.T) {
	t.Parallel()
	raw, err := proto.Marshal(&admissionv1.AdmissionResponse{Allowed: true, Warnings: make([]string, MaxVerdictItems)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := new(Incoming).response(raw); err != nil || len(got.Verdict.GetWarnings()) != MaxVerdictItems {
		t.Errorf("%v, %v", got.Failure, err)
	}
}

func TestFramesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	verdicts := func(n int) *hostv1.ConnectRequest {
		batch := &hostv1.Verdicts{Verdicts: make([]*hostv1.Verdict, n)}
		for i := range batch.GetVerdicts() {
			batch.Verdicts[i] = new(hostv1.Verdict)
		}
		return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{Verdicts: batch}}
	}
	credit := func(n int) []byte { // of unknown fields
		return append([]byte{5<<3 | 2, byte(n&0x7f | 0x80), byte(n >> 7)}, make([]byte, n)...)
	}
	marshal := func(m proto.Message) []byte {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for _, test := range []struct {
		name string
		raw  []byte
		ok   bool
	}{
		{"nothing", nil, true},
		{"as many verdicts as can be outstanding", marshal(verdicts(MaxOutstanding)), true},
		{"one more", marshal(verdicts(MaxOutstanding + 1)), false},
		{"half a tag", []byte{0x80}, false},
		{"a length without bytes", []byte{2<<3 | 2, 5, 0}, false},
		{"half a verdict", []byte{2<<3 | 2, 1, 0x08}, false},
		{"half a response", []byte{2<<3 | 2, 3, 3<<3 | 2, 1, 0x10}, false},
		{"a pong that is none", []byte{4<<3 | 2, 1, 0x08}, false},
		{"an unknown frame", []byte{100<<1&0x7f | 2, 1, 0x08}, true},
		{"a credit that is too long", credit(MaxControlBytes + 1), false},
		{"a hello", marshal(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: &hostv1.Hello{Host: "h"}}}), true},
		{"a hello with a name that is no text", []byte{1<<3 | 2, 3, 3<<3 | 2, 1, 0xff}, false},
	} {
		if err := new(Incoming).Decode(test.raw); (err == nil) != test.ok || err != nil && !errors.Is(err, errGarbage) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
