package wire_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

func TestNumbersAreThoseOfTheContract(t *testing.T) {
	for _, tt := range []struct {
		message proto.Message
		name    protoreflect.Name
		number  protowire.Number
	}{
		{&hostv1.ConnectRequest{}, "hello", wire.ConnectRequestHello},
		{&hostv1.ConnectRequest{}, "verdict", wire.ConnectRequestVerdict},
		{&hostv1.ConnectRequest{}, "drain", wire.ConnectRequestDrain},
		{&hostv1.ConnectRequest{}, "pong", wire.ConnectRequestPong},
		{&hostv1.ConnectRequest{}, "credit", wire.ConnectRequestCredit},
		{&hostv1.ConnectRequest{}, "probe_result", wire.ConnectRequestProbeResult},
		{&hostv1.ConnectRequest{}, "verdicts", wire.ConnectRequestVerdicts},
		{&hostv1.ConnectResponse{}, "review", wire.ConnectResponseReview},
		{&hostv1.ConnectResponse{}, "reviews", wire.ConnectResponseReviews},
		{&hostv1.ConnectResponse{}, "chunk", wire.ConnectResponseChunk},
		{&hostv1.Review{}, "call_id", wire.ReviewCallID},
		{&hostv1.Review{}, "hooks", wire.ReviewHooks},
		{&hostv1.Review{}, "traceparent", wire.ReviewTraceparent},
		{&hostv1.Review{}, "tracestate", wire.ReviewTracestate},
		{&hostv1.Review{}, "request", wire.ReviewRequest},
		{&hostv1.Reviews{}, "reviews", wire.ReviewsReviews},
		{&hostv1.HookCall{}, "name", wire.HookCallName},
		{&hostv1.HookCall{}, "stage", wire.HookCallStage},
		{&hostv1.HookCall{}, "remaining_ms", wire.HookCallRemaining},
		{&hostv1.HookCall{}, "round", wire.HookCallRound},
		{&hostv1.HookCall{}, "mode", wire.HookCallMode},
		{&hostv1.HookCall{}, "reservation", wire.HookCallReservation},
		{&hostv1.HookCall{}, "configuration", wire.HookCallConfiguration},
		{&hostv1.HookCall{}, "span_id", wire.HookCallSpan},
		{&hostv1.Chunk{}, "call_id", wire.ChunkCallID},
		{&hostv1.Chunk{}, "total_bytes", wire.ChunkTotal},
		{&hostv1.Chunk{}, "hooks", wire.ChunkHooks},
		{&hostv1.Chunk{}, "data", wire.ChunkData},
		{&hostv1.Verdicts{}, "verdicts", wire.VerdictsVerdicts},
		{&hostv1.Verdict{}, "call_id", wire.VerdictCallID},
		{&hostv1.Verdict{}, "hook_index", wire.VerdictHookIndex},
		{&hostv1.Verdict{}, "response", wire.VerdictResponse},
		{&hostv1.Verdict{}, "error", wire.VerdictError},
		{&hostv1.Verdict{}, "cancelled", wire.VerdictCancelled},
		{&hostv1.Verdict{}, "refused", wire.VerdictRefused},
		{&hostv1.Verdict{}, "queue_us", wire.VerdictQueue},
		{&hostv1.Verdict{}, "handle_us", wire.VerdictHandle},
		{&hostv1.HandlerError{}, "message", wire.HandlerErrorMessage},
		{&hostv1.HandlerError{}, "panicked", wire.HandlerErrorPanicked},
		{&hostv1.Refused{}, "reason", wire.RefusedReason},
		{&admissionv1.AdmissionResponse{}, "allowed", wire.ResponseAllowed},
		{&admissionv1.AdmissionResponse{}, "status", wire.ResponseStatus},
		{&admissionv1.AdmissionResponse{}, "audit_annotations", wire.ResponseAnnotations},
		{&admissionv1.AdmissionResponse{}, "warnings", wire.ResponseWarnings},
		{&admissionv1.Status{}, "details", wire.StatusDetails},
		{&admissionv1.StatusDetails{}, "causes", wire.StatusDetailsCauses},
		{&admissionv1.AdmissionRequest{}, "uid", wire.RequestUID},
		{&admissionv1.AdmissionRequest{}, "cluster", wire.RequestCluster},
		{&admissionv1.AdmissionRequest{}, "kind", wire.RequestKind},
		{&admissionv1.AdmissionRequest{}, "resource", wire.RequestResource},
		{&admissionv1.AdmissionRequest{}, "sub_resource", wire.RequestSubResource},
		{&admissionv1.AdmissionRequest{}, "request_kind", wire.RequestRequestKind},
		{&admissionv1.AdmissionRequest{}, "request_resource", wire.RequestRequestResource},
		{&admissionv1.AdmissionRequest{}, "request_sub_resource", wire.RequestRequestSubResource},
		{&admissionv1.AdmissionRequest{}, "name", wire.RequestName},
		{&admissionv1.AdmissionRequest{}, "namespace", wire.RequestNamespace},
		{&admissionv1.AdmissionRequest{}, "operation", wire.RequestOperation},
		{&admissionv1.AdmissionRequest{}, "user_info", wire.RequestUserInfo},
		{&admissionv1.AdmissionRequest{}, "object", wire.RequestObject},
		{&admissionv1.AdmissionRequest{}, "old_object", wire.RequestOldObject},
		{&admissionv1.AdmissionRequest{}, "options", wire.RequestOptions},
		{&admissionv1.AdmissionRequest{}, "dry_run", wire.RequestDryRun},
		{&admissionv1.AdmissionRequest{}, "object_revision", wire.RequestObjectRevision},
		{&admissionv1.AdmissionRequest{}, "projection", wire.RequestProjection},
		{&admissionv1.UserInfo{}, "username", wire.UserInfoUsername},
		{&admissionv1.UserInfo{}, "uid", wire.UserInfoUID},
		{&admissionv1.UserInfo{}, "groups", wire.UserInfoGroups},
		{&admissionv1.UserInfo{}, "extra", wire.UserInfoExtra},
		{&admissionv1.ExtraValue{}, "items", wire.ExtraValueItems},
		{&admissionv1.Object{}, "content_type", wire.ObjectContentType},
		{&admissionv1.Object{}, "raw", wire.ObjectRaw},
		{&admissionv1.GroupVersionKind{}, "group", wire.GroupVersionGroup},
		{&admissionv1.GroupVersionKind{}, "version", wire.GroupVersionVersion},
		{&admissionv1.GroupVersionKind{}, "kind", wire.GroupVersionName},
		{&admissionv1.GroupVersionResource{}, "group", wire.GroupVersionGroup},
		{&admissionv1.GroupVersionResource{}, "version", wire.GroupVersionVersion},
		{&admissionv1.GroupVersionResource{}, "resource", wire.GroupVersionName},
	} {
		descriptor := tt.message.ProtoReflect().Descriptor()
		f := descriptor.Fields().ByName(tt.name)
		if f == nil {
			t.Errorf("%s has no field %s", descriptor.FullName(), tt.name)
			continue
		}
		if f.Number() != tt.number {
			t.Errorf("%s is %d, not %d", f.FullName(), f.Number(), tt.number)
		}
	}
	entry := (&admissionv1.UserInfo{}).ProtoReflect().Descriptor().Fields().ByNumber(wire.UserInfoExtra)
	if entry.MapKey().Number() != wire.ExtraKey || entry.MapValue().Number() != wire.ExtraValue {
		t.Errorf("an entry of %s has other fields", entry.FullName())
	}
}

// TestAPermissionByHandIsWhatTheLibraryWrites tries numbers of every length.
func TestAPermissionByHandIsWhatTheLibraryWrites(t *testing.T) {
	for shift := range 65 {
		n := uint64(1)<<shift>>1 | uint64(shift&1)
		v := &hostv1.Verdict{
			CallId: n, HookIndex: uint32(n >> 1), QueueUs: uint32(n >> 2), HandleUs: uint32(n >> 3),
			Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}},
		}
		got := &hostv1.Verdict{}
		if err := proto.Unmarshal(wire.AppendAllow(nil, v.GetCallId(), v.GetHookIndex(), v.GetQueueUs(), v.GetHandleUs()), got); err != nil || !proto.Equal(got, v) {
			t.Errorf("%v, want %v: %v", got, v, err)
		}
	}
}

// FuzzFields compares the reader of fields with protowire, and Find with it.
func FuzzFields(f *testing.F) {
	f.Add([]byte{0x08, 0x01, 0x12, 0x01, 'x', 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x01, 0xff, 0x7f})
	f.Add([]byte{0x12, 0x80, 0x01})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		rest := encoded
		err := wire.Fields(encoded, func(f wire.Field, body []byte) error {
			for {
				number, kind, n := protowire.ConsumeField(rest)
				if n < 0 {
					t.Fatalf("a field %v that protowire does not read", f)
				}
				field := rest[:n]
				rest = rest[n:]
				_, _, tag := protowire.ConsumeTag(field)
				switch kind { //nolint:exhaustive // Fields skips all others
				case protowire.VarintType:
					if v, _ := protowire.ConsumeVarint(field[tag:]); f.Number != number || f.IsBytes || f.Value != v {
						t.Fatalf("%v, want number %d of field %d", f, v, number)
					}
					return nil
				case protowire.BytesType:
					if b, _ := protowire.ConsumeBytes(field[tag:]); f.Number != number || !f.IsBytes || string(b) != string(body) {
						t.Fatalf("%v of %q, want %q in field %d", f, body, b, number)
					}
					return nil
				}
			}
		})
		for len(rest) > 0 {
			_, kind, n := protowire.ConsumeField(rest)
			if n < 0 {
				break
			}
			if kind == protowire.VarintType || kind == protowire.BytesType {
				t.Fatalf("a field is missing, error %v", err)
			}
			rest = rest[n:]
		}
		if (err != nil) != (len(rest) > 0) {
			t.Fatalf("error %v with %d bytes left", err, len(rest))
		}
	})
}

// TestTextsAreUTF8 puts a byte that is not ASCII into each place of texts of each length around a word.
func TestTextsAreUTF8(t *testing.T) {
	for _, piece := range []string{"x", "\xff", "\x80", "é", "\u65e5", "\xf0\x9f\x98"} {
		for place := range 40 {
			for behind := range 20 {
				text := []byte(strings.Repeat("a", place) + piece + strings.Repeat("a", behind))
				if got, want := (wire.Field{IsBytes: true}).IsText(text), utf8.Valid(text); got != want {
					t.Errorf("IsText of %q is %t, want %t", text, got, want)
				}
			}
		}
	}
}
