package bare

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// review is one for some hooks, with everything that a host may pass over.
func review(id uint64, hooks int) *hostv1.Review {
	r := &hostv1.Review{CallId: id, Traceparent: "t", Request: &admissionv1.AdmissionRequest{
		Uid: "u", Object: &admissionv1.Object{Raw: make([]byte, 300)},
	}}
	for range hooks {
		r.Hooks = append(r.Hooks, &hostv1.HookCall{Name: "hook", RemainingMs: 1})
	}
	return r
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// chunks are the encoding of a review in two parts.
func chunks(t *testing.T, r *hostv1.Review) []*hostv1.ConnectResponse {
	raw := marshal(t, r)
	chunk := func(data []byte) *hostv1.ConnectResponse {
		return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Chunk{Chunk: &hostv1.Chunk{
			CallId: r.GetCallId(), TotalBytes: uint64(len(raw)), Hooks: uint32(len(r.GetHooks())), Data: data,
		}}}
	}
	return []*hostv1.ConnectResponse{chunk(raw[:100]), chunk(raw[100:])}
}

func TestEachReviewIsFoundInItsFrame(t *testing.T) {
	one := &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: review(7, 2)}}
	several := &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Reviews{Reviews: &hostv1.Reviews{
		Reviews: []*hostv1.Review{review(1, 1), review(2, 3)},
	}}}
	parts := chunks(t, review(9, 2))
	state := &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_HookState{HookState: &hostv1.HookState{Name: "hook"}}}
	cancel := &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Cancel{Cancel: &hostv1.Cancel{CallId: 9}}}
	tests := map[string]struct {
		frames []*hostv1.ConnectResponse
		want   []call
	}{
		"one review":                       {frames: []*hostv1.ConnectResponse{one}, want: []call{{7, 2}}},
		"several reviews":                  {frames: []*hostv1.ConnectResponse{several}, want: []call{{1, 1}, {2, 3}}},
		"no review":                        {frames: []*hostv1.ConnectResponse{state}},
		"a review in chunks":               {frames: parts, want: []call{{9, 2}}},
		"half a review":                    {frames: parts[:1]},
		"a frame between chunks":           {frames: []*hostv1.ConnectResponse{parts[0], one, parts[1]}, want: []call{{7, 2}, {9, 2}}},
		"half a review that is cancelled":  {frames: []*hostv1.ConnectResponse{parts[0], cancel, one}, want: []call{{9, 2}, {7, 2}}},
		"a review cancelled when answered": {frames: []*hostv1.ConnectResponse{parts[0], parts[1], cancel}, want: []call{{9, 2}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &session{}
			for _, f := range tt.frames {
				if err := s.frame(marshal(t, f)); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, s.calls, cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadFramesAreErrors(t *testing.T) {
	parts := chunks(t, review(9, 2))
	other := chunks(t, review(10, 2))
	for name, frames := range map[string][][]byte{
		"half a frame":               {marshal(t, parts[0])[:50]},
		"nothing":                    {nil},
		"chunks of two reviews":      {marshal(t, parts[0]), marshal(t, other[0])},
		"more chunks than announced": {marshal(t, parts[1]), marshal(t, parts[1])},
	} {
		s, failed := &session{}, false
		for _, f := range frames {
			failed = s.frame(f) != nil
		}
		if !failed {
			t.Errorf("%s is no error", name)
		}
	}
}

func TestVerdictsAreWhatTheContractSays(t *testing.T) {
	permit := func(id uint64, hook uint32) *hostv1.Verdict {
		return &hostv1.Verdict{CallId: id, HookIndex: hook, Outcome: &hostv1.Verdict_Response{
			Response: &admissionv1.AdmissionResponse{Allowed: true},
		}}
	}
	for name, tt := range map[string]struct {
		verdicts []verdict
		want     *hostv1.ConnectRequest
	}{
		"one": {[]verdict{{1 << 40, 31}}, &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: permit(1<<40, 31)}}},
		"two": {[]verdict{{5, 0}, {6, 300}}, &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{
			Verdicts: &hostv1.Verdicts{Verdicts: []*hostv1.Verdict{permit(5, 0), permit(6, 300)}},
		}}},
	} {
		got := &hostv1.ConnectRequest{}
		if err := proto.Unmarshal(encode(tt.verdicts), got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
