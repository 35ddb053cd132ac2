package hostsdk

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	nometrics "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// framed is an encoded frame with one field.
func framed(number protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
}

// TestFramesThatNobodyTakes end the session with their fault, whatever they would cost to read.
func TestFramesThatNobodyTakes(t *testing.T) {
	manyHooks := append([]byte{8, 1}, strings.Repeat("\x12\x00", maxReviewHooks+1)...)
	tests := map[string]struct {
		encoded []byte
		want    string
	}{
		"A review asks an enormous number of hooks.": {framed(wire.ConnectResponseReview, manyHooks), "call 1 asks 65537 hooks, more than 65536"},
		"Two do.": {framed(wire.ConnectResponseReviews, append(framed(wire.ReviewsReviews, reviewBytes(t, 1)), framed(wire.ReviewsReviews, reviewBytes(t, 1))...)), "call 1 came after call 1"},
		"A frame of several reviews is enormous.": {
			framed(wire.ConnectResponseReviews, []byte(strings.Repeat("\x0a\x00", maxWireBytes/2+1))), "a frame of several reviews has 131074 bytes",
		},
		"A review in a batch asks too much.": {framed(wire.ConnectResponseReviews, framed(wire.ReviewsReviews, manyHooks)), "a frame of several reviews"},
		"It is no frame.":                    {[]byte{0xff}, "cannot be decoded"},
		"It is empty in the middle.":         {[]byte{0x12, 5, 8}, "cannot be decoded"},
		"It is no text.":                     {framed(wire.ConnectResponseReview, []byte{0x1a, 1, 0xff}), "cannot be decoded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := welcomedState(t, 10)
			f, err := decodeFrame(tt.encoded)
			if err == nil {
				err = s.frame(start, f).abort
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func reviewBytes(t *testing.T, call uint64) []byte {
	t.Helper()
	return marshal(t, reviewOf(call, 1))
}

// TestAsManyHooksAsThereMayBe are each refused or started, and memory follows the credit.
func TestAsManyHooksAsThereMayBe(t *testing.T) {
	s := welcomedState(t, 3, capabilityBatches)
	out := take(s, start, reviewOf(1, maxReviewHooks))
	if out.abort != nil || len(out.start) != 3 || cap(out.start) != 3 {
		t.Fatalf("%v, started %d", out.abort, len(out.start))
	}
	sizes, calls := read(t, s.out.takeFrames(nil))
	if len(calls) != maxReviewHooks-3 || len(sizes) != maxReviewHooks/maxBatch {
		t.Errorf("%d verdicts in %d frames", len(calls), len(sizes))
	}
}

// TestFloodsAreBounded: frames that a dispatcher can send without end cost a bounded amount of memory.
func TestFloodsAreBounded(t *testing.T) {
	s := welcomedState(t, 3, capabilityBatches)
	for n := range uint64(4 * maxEarlyCancels) {
		for _, m := range []*hostv1.ConnectResponse{
			{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{Seq: n}}},
			{Frame: &hostv1.ConnectResponse_Cancel{Cancel: &hostv1.Cancel{CallId: 1000 + n}}},
			{Frame: &hostv1.ConnectResponse_Cancel{Cancel: &hostv1.Cancel{CallId: math.MaxUint64, HookIndexes: []uint32{1, 2, 3}}}},
			{Frame: &hostv1.ConnectResponse_Probe{Probe: &hostv1.Probe{Seq: n, Hook: "h"}}},
			{},
		} {
			if out := s.frame(start, frameOf(m)); out.abort != nil {
				t.Fatal(out.abort)
			}
		}
		if s.out.waiting > maxOutbox {
			s.out.takeFrames(nil) // The reader waits for the writer.
		}
	}
	if s.early.size > maxEarlyCancels || s.probing > maxProbes || len(s.calls) != 0 {
		t.Errorf("%d cancellations, %d probes, %d calls", s.early.size, s.probing, len(s.calls))
	}
}

// TestVerdictsOfNobodyAreNone: a handler has one say, and only for a call that there is.
func TestVerdictsOfNobodyAreNone(t *testing.T) {
	s := welcomedState(t, 3)
	take(s, start, reviewOf(1, 2))
	for range 2 {
		finish(s, start, pair{id: 1, index: 1})
		finish(s, start, pair{id: 9})
	}
	if frames := sent(t, s); len(frames) != 1 || s.outstanding != 1 {
		t.Errorf("sent %v, %d outstanding", frames, s.outstanding)
	}
}

// TestAfterItsLastWordAHostIsSilent: no frame follows the promised last frame.
func TestAfterItsLastWordAHostIsSilent(t *testing.T) {
	s := welcomedState(t, 3)
	s.drain(start)
	if frames := sent(t, s); len(frames) != 1 || frames[0].GetDrain() == nil || !s.finishing {
		t.Fatalf("sent %v", frames)
	}
	take(s, start, reviewOf(1, 1))
	s.frame(start, frameOf(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Ping{Ping: &hostv1.Ping{}}}))
	s.credit(2)
	if frames := sent(t, s); len(frames) != 0 {
		t.Errorf("sent %v", frames)
	}
	if out := s.tick(start.Add(closeTimeout)); out.abort == nil {
		t.Error("it waits for the other side without end")
	}
}

// TestAnUnwritableSessionKeepsNothing: frames that cannot be sent are not collected.
func TestAnUnwritableSessionKeepsNothing(t *testing.T) {
	s := welcomedState(t, 3)
	take(s, start, reviewOf(1, 1))
	s.unwritable()
	finish(s, start, pair{id: 1})
	s.drain(start)
	if s.toSend() || len(s.out.takeFrames(nil)) != 0 || s.outstanding != 0 {
		t.Errorf("%d wait, %d outstanding", s.out.waiting, s.outstanding)
	}
}

// TestARequestThatCannotBeDecoded costs its own calls alone: no handler of the review judges it, not the second one either.
func TestARequestThatCannotBeDecoded(t *testing.T) {
	review := append(marshal(t, &hostv1.Review{CallId: 1, Hooks: reviewOf(1, 2).GetHooks()}), framed(15, []byte{0xff})...)
	f, err := decodeFrame(framed(wire.ConnectResponseReview, review))
	if err != nil {
		t.Fatal(err)
	}
	s := welcomedState(t, 2)
	out := s.frame(start, f)
	if out.abort != nil || len(out.start) != 2 {
		t.Fatalf("started %d, %v", len(out.start), out.abort)
	}
	c, err := newCaller(&Options{
		MaxOutstanding: 1, Logger: slog.New(slog.DiscardHandler), TracerProvider: noop.NewTracerProvider(), MeterProvider: nometrics.NewMeterProvider(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range out.start {
		inv := &out.start[i]
		inv.hook.handler = func(context.Context, *Request) (*Response, error) { t.Error("it was judged"); return Allow(), nil }
		inv.ctx.init(t.Context(), start.AddDate(1000, 0, 0))
		c.callInSlot(inv)
		if got := inv.verdict.GetError().GetMessage(); got != "the dispatcher sent a request that cannot be decoded" {
			t.Errorf("verdict %v", &inv.verdict)
		}
	}
}

// TestSharesNeverAddUpToMoreThanTheBudget lets sessions come, go and drain at random.
func TestSharesNeverAddUpToMoreThanTheBudget(t *testing.T) {
	for total := 1; total < 40; total += 3 {
		b := newBudget(total)
		var members []*session
		for turn := range 200 {
			if turn%3 < 2 || len(members) == 0 {
				s := &session{
					budget: b, forWriter: make(chan struct{}, 1), forTimer: make(chan struct{}, 1),
					hello: &hostv1.Hello{}, hooks: map[hookID]*hook{}, drain: time.Second,
				}
				b.addSession(s)
				s.sendHello()
				members = append(members, s)
			} else {
				i := (turn * 7) % len(members)
				b.removeSession(members[i])
				b.removeSession(members[i]) // Twice is once.
				members = append(members[:i], members[i+1:]...)
			}
			sum := 0
			for _, s := range members {
				sum += s.state.announced
				if s.state.announced < 1 {
					t.Fatalf("a session of %d has no share", len(members))
				}
			}
			if sum > max(total, len(members)) {
				t.Fatalf("%d sessions were told %d of %d", len(members), sum, total)
			}
		}
	}
}

// TestTheHelloIsTheShare: a session never announces more than it may take.
func TestTheHelloIsTheShare(t *testing.T) {
	b := newBudget(10)
	for want := range 3 {
		s := &session{
			budget: b, forWriter: make(chan struct{}, 1), forTimer: make(chan struct{}, 1), hello: &hostv1.Hello{}, drain: time.Second,
		}
		b.addSession(s)
		s.sendHello()
		hello := &hostv1.ConnectRequest{}
		if err := proto.Unmarshal(s.state.out.takeFrames(nil)[0], hello); err != nil {
			t.Fatal(err)
		}
		if got := hello.GetHello().GetMaxOutstanding(); got != uint32(10/(want+1)) {
			t.Errorf("session %d announces %d", want, got)
		}
	}
}

// TestAPausedHostSaysSoBehindItsHello: 0 in a Hello means a default.
func TestAPausedHostSaysSoBehindItsHello(t *testing.T) {
	b := newBudget(10)
	b.resize(0)
	s := &session{
		budget: b, forWriter: make(chan struct{}, 1), forTimer: make(chan struct{}, 1), hello: &hostv1.Hello{}, drain: time.Second,
	}
	b.addSession(s)
	s.sendHello()
	hello, credit := &hostv1.ConnectRequest{}, &hostv1.ConnectRequest{}
	frames := s.state.out.takeFrames(nil)
	if err := errors.Join(proto.Unmarshal(frames[0], hello), proto.Unmarshal(frames[1], credit)); err != nil {
		t.Fatal(err)
	}
	if hello.GetHello().GetMaxOutstanding() != 1 || credit.GetCredit() == nil || credit.GetCredit().GetMaxOutstanding() != 0 {
		t.Errorf("announced %v and then %v", hello, credit)
	}
}
