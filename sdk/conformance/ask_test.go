package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

const (
	mutateStage   = admissionv1.Stage_STAGE_MUTATE
	validateStage = admissionv1.Stage_STAGE_VALIDATE
	// longTime is the time of calls that are not about time.
	longTime = 5 * time.Minute
)

// host starts a scripted dispatcher and a host that it has accepted.
func (s *stage) host(o settings, change ...func(w *hostv1.Welcome)) (*program, *session) {
	s.Helper()
	_, p, at := s.hostOf(o, change...)
	return p, at
}

// hostOf is host, with the dispatcher.
func (s *stage) hostOf(o settings, change ...func(w *hostv1.Welcome)) (*scripted, *program, *session) {
	s.Helper()
	d := s.dispatcher(scriptedOptions{})
	o.Dispatchers = []string{d.addr}
	p := s.start(o)
	return d, p, d.accept(change...)
}

// pod is a request about a Pod that asks its handler for a script.
func pod(script string) *admissionv1.AdmissionRequest {
	return about(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "script": %s}`, script))
}

// about is a request to create an object.
func about(object string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "705ab4f5-6393-11e8-b7cc-42010a800002", Cluster: "c1", Operation: "CREATE", Name: "p", Namespace: "default",
		Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		UserInfo: &admissionv1.UserInfo{Username: "jane", Groups: []string{"system:authenticated"}},
		Object:   &admissionv1.Object{Raw: []byte(object)},
	}
}

// call is a call of a hook, with time to spare.
func call(hook string, change ...func(c *hostv1.HookCall)) *hostv1.HookCall {
	c := &hostv1.HookCall{
		Name: hook, Stage: validateStage, RemainingMs: uint32(longTime.Milliseconds()), Mode: hostv1.Mode_MODE_DECIDE, Configuration: "policies",
	}
	if hook == mutating {
		c.Stage = mutateStage
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// within gives a call so much time.
func within(d time.Duration) func(c *hostv1.HookCall) {
	return func(c *hostv1.HookCall) { c.RemainingMs = uint32(d.Milliseconds()) }
}

// padded makes the encoding of a review exactly so large, by white space in its object.
func padded(s *stage, r *hostv1.Review, size int) *hostv1.Review {
	s.Helper()
	object := r.GetRequest().GetObject()
	script := string(object.GetRaw())
	for range 10 {
		have := proto.Size(r)
		if have == size {
			return r
		}
		object.Raw = []byte(script + strings.Repeat(" ", max(0, len(object.GetRaw())-len(script)+size-have)))
	}
	s.Fatalf("no padding makes a review of %d bytes", size)
	return nil
}

// chunksOf cuts a review into chunks.
func chunksOf(s *stage, r *hostv1.Review, size int) (frames []*hostv1.ConnectResponse) {
	encoded := must[[]byte](s)(proto.Marshal(r))
	for part := range slices.Chunk(encoded, size) {
		frames = append(frames, chunk(&hostv1.Chunk{
			CallId: r.GetCallId(), TotalBytes: uint64(len(encoded)), Hooks: uint32(len(r.GetHooks())), Data: part,
		}))
	}
	return frames
}

func chunk(c *hostv1.Chunk) *hostv1.ConnectResponse {
	return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Chunk{Chunk: c}}
}

func reviewFrame(r *hostv1.Review) *hostv1.ConnectResponse {
	return &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: r}}
}

func (s *session) sendAll(frames []*hostv1.ConnectResponse) {
	s.Helper()
	for _, f := range frames {
		s.send(f)
	}
}

// The checks of a verdict.

func allowed(s *stage, v *hostv1.Verdict) *admissionv1.AdmissionResponse {
	s.Helper()
	if !v.GetResponse().GetAllowed() {
		s.Fatalf("want a verdict that allows, have %v", v)
	}
	if v.GetResponse().GetUid() != "" {
		s.Errorf("uid stays empty in verdicts: %v", v)
	}
	return v.GetResponse()
}

func denied(s *stage, v *hostv1.Verdict) *admissionv1.Status {
	s.Helper()
	if v.GetResponse() == nil || v.GetResponse().GetAllowed() {
		s.Fatalf("want a denial, have %v", v)
	}
	return v.GetResponse().GetStatus()
}

func refused(s *stage, v *hostv1.Verdict, reason string) {
	s.Helper()
	if v.GetRefused() == nil || v.GetRefused().GetReason() != reason {
		s.Errorf("want Refused %q, have %v", reason, v)
	}
}

func cancelled(s *stage, v *hostv1.Verdict) {
	s.Helper()
	if v.GetCancelled() == nil {
		s.Errorf("want Cancelled, have %v", v)
	}
}

func failed(s *stage, v *hostv1.Verdict) string {
	s.Helper()
	if v.GetError() == nil {
		s.Fatalf("want a failure, have %v", v)
	}
	return v.GetError().GetMessage()
}

func equal[T comparable](s *stage, what string, got, want T) {
	s.Helper()
	if got != want {
		s.Errorf("%s is %v, want %v", what, got, want)
	}
}
