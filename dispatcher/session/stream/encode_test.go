package stream

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// randomFrame is a frame of random calls, with the message that it shall be.
func randomFrame(r *rand.Rand) (*reviewFrame, *hostv1.Review) {
	text := func(most int) string { return strings.Repeat("x", r.IntN(most)) }
	span := func() trace.SpanContext {
		if r.IntN(2) == 0 {
			return trace.SpanContext{}
		}
		state, _ := trace.ParseTraceState("a=b,c=" + text(40) + "d")
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{byte(r.Uint32()), 1}, SpanID: trace.SpanID{byte(r.Uint32()), 2},
			TraceFlags: trace.TraceFlags(r.IntN(2)), TraceState: state,
		})
	}
	request := &admissionv1.AdmissionRequest{Uid: text(40), Object: &admissionv1.Object{Raw: []byte(text(400_000))}}
	parent := span()
	batch := &review.CallSet{Request: request, Body: wire.EncodeBody(request, parent)}
	f := &reviewFrame{id: r.Uint64() >> r.IntN(64), body: NewBody(batch)}
	want := &hostv1.Review{CallId: f.id, Request: request}
	if parent.IsValid() {
		want.Traceparent = "00-" + parent.TraceID().String() + "-" + parent.SpanID().String() + "-" + parent.TraceFlags().String()
		want.Tracestate = parent.TraceState().String()
	}
	for i := range 1 + r.IntN(40) {
		call := review.Call{
			Hook: &match.Hook{ID: match.HookID{
				Name: text(300), Configuration: text(300), Stage: admissionv1.Stage(r.IntN(5)),
			}},
			Round: r.Uint32N(2), Mode: review.Mode(r.IntN(4)), Deadline: epoch.Add(time.Duration(r.Int64() >> r.IntN(63))), Span: span(),
		}
		batch.Calls = append(batch.Calls, call)
		f.tickets = append(f.tickets, &ticket{batch: batch, index: i})
		hook := &hostv1.HookCall{
			Name: call.Hook.ID.Name, Stage: call.Hook.ID.Stage, RemainingMs: wire.Milliseconds(call.Deadline.Sub(epoch)),
			Round: call.Round, Configuration: call.Hook.ID.Configuration, Mode: hostv1.Mode(call.Mode) + 1,
		}
		if call.Span.IsValid() {
			id := call.Span.SpanID()
			hook.SpanId = id[:]
		}
		want.Hooks = append(want.Hooks, hook)
	}
	f.bound = headBound(f.tickets)
	return f, want
}

// flat is a frame as bytes on the wire.
func flat(parts ...Part) (raw []byte) {
	for _, p := range parts {
		raw = append(append(raw, p.Head...), p.Body.Materialize()...)
	}
	return raw
}

func TestAReviewIsEncodedAsTheGeneratedCodeDoes(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		f, want := randomFrame(r)
		part, _ := encodeReview(f, nil, epoch)
		raw := flat(part)
		if len(part.Head) > f.bound {
			t.Fatalf("a head of %d bytes, said to be at most %d", len(part.Head), f.bound)
		}
		frame := &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: want}}
		got := new(hostv1.ConnectResponse)
		if err := proto.Unmarshal(raw, got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(frame, got) {
			t.Fatalf("not the same message:\n%s", cmp.Diff(frame, got, protocmp.Transform()))
		}
		if least := proto.Size(frame); len(raw) != least {
			t.Fatalf("%d bytes, it takes %d", len(raw), least)
		}
	}
}

func TestReviewsThatWaitGoIntoOneFrame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		var want hostv1.Reviews
		out, room := newBatch(r.IntN(7)), make([]byte, r.IntN(20<<10))
		for range 2 + r.IntN(5) {
			f, message := randomFrame(r)
			var part Part
			part, room = encodeReview(f, room, epoch)
			out.Parts = append(out.Parts, part)
			want.Reviews = append(want.Reviews, message)
		}
		frame := &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Reviews{Reviews: &want}}
		raw, got := flat(out.close().Parts...), new(hostv1.ConnectResponse)
		if err := proto.Unmarshal(raw, got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(frame, got) || len(raw) != proto.Size(frame) {
			t.Fatalf("not the same message in %d bytes, it takes %d", len(raw), proto.Size(frame))
		}
	}
}

func TestChunksAreTheReviewInParts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		f, want := randomFrame(r)
		head := appendHead(nil, f, epoch)
		total := len(head) + f.body.length
		x := newTransfer(f, head)
		var data []byte
		for x.left > 0 {
			raw := flat(x.chunk().Parts...)
			got := new(hostv1.ConnectResponse)
			if err := proto.Unmarshal(raw, got); err != nil {
				t.Fatal(err)
			}
			c := got.GetChunk()
			if c.GetCallId() != f.id || c.GetTotalBytes() != uint64(total) || int(c.GetHooks()) != len(f.tickets) {
				t.Fatalf("a chunk of call %d, %d bytes, %d hooks", c.GetCallId(), c.GetTotalBytes(), c.GetHooks())
			}
			if proto.Size(got) != len(raw) || len(c.GetData()) > ChunkBytes || x.left > 0 && len(c.GetData()) < ChunkBytes {
				t.Fatalf("a frame of %d bytes with %d of data", len(raw), len(c.GetData()))
			}
			data = append(data, c.GetData()...)
		}
		got := new(hostv1.Review)
		if err := proto.Unmarshal(data, got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(want, got) {
			t.Fatalf("not the same message:\n%s", cmp.Diff(want, got, protocmp.Transform()))
		}
	}
}

func TestABodyIsNotCopiedIntoFrames(t *testing.T) {
	t.Parallel()
	object := bytes.Repeat([]byte("x"), 1<<20)
	request := &admissionv1.AdmissionRequest{Object: &admissionv1.Object{Raw: object}}
	batch := &review.CallSet{
		Request: request, Body: wire.EncodeBody(request, trace.SpanContext{}),
		Calls: []review.Call{{Hook: &match.Hook{}, Deadline: epoch.Add(time.Second)}},
	}
	s := newState(epoch, &hostv1.Hello{Capabilities: []string{CapabilityChunks}})
	submit(s, &ticket{batch: batch})
	shared := 0
	for out := s.next(epoch); out != nil; out = s.next(epoch) {
		for _, piece := range out.Parts[0].Body {
			if inside(piece.ReadOnlyData(), object) {
				shared += piece.Len()
			}
		}
	}
	if shared != len(object) {
		t.Errorf("%d bytes of the object are written where they are, of %d", shared, len(object))
	}
}

// inside reports whether a slice is a part of another one's memory.
func inside(part, whole []byte) bool {
	if len(part) == 0 {
		return false
	}
	p, w := uintptr(unsafe.Pointer(unsafe.SliceData(part))), uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return p >= w && p < w+uintptr(len(whole))
}
