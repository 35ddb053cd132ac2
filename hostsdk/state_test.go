package hostsdk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// welcomedState is a session with the validating hook "h" and some limit, after its welcome. Nothing is in its outbox.
func welcomedState(t *testing.T, limit uint32, capabilities ...string) *state {
	t.Helper()
	h := &hook{id: hookID{"h", validate}}
	s := newState(start, &hostv1.Hello{MaxOutstanding: limit}, map[hookID]*hook{h.id: h}, time.Second)
	out := s.frame(start, &frame{message: &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{
		Welcome: &hostv1.Welcome{Protocol: 1, Capabilities: capabilities},
	}}})
	if out.abort != nil {
		t.Fatal(out.abort)
	}
	if hello := sent(t, s); len(hello) != 1 || hello[0].GetHello() == nil {
		t.Fatalf("the first frame is %v", hello)
	}
	return s
}

func reviewOf(call uint64, hooks int) *hostv1.Review {
	r := &hostv1.Review{CallId: call, Request: &admissionv1.AdmissionRequest{}}
	for range hooks {
		r.Hooks = append(r.Hooks, &hostv1.HookCall{Name: "h", Stage: validate, RemainingMs: 1000})
	}
	return r
}

// take gives the state reviews in one frame.
func take(s *state, now time.Time, r ...*hostv1.Review) effects {
	return s.frame(now, &frame{reviews: reviewsOf(r...)})
}

// finish ends a call whose handler allowed it.
func finish(s *state, now time.Time, p pair) {
	v := &hostv1.Verdict{CallId: p.id, HookIndex: p.index}
	s.finished(now, p, v, encodeVerdict(nil, v))
}

// sent returns the frames in the outbox, in order, as the writer does.
func sent(t *testing.T, s *state) []*hostv1.ConnectRequest {
	t.Helper()
	var out []*hostv1.ConnectRequest
	for _, encoded := range s.out.takeFrames(nil) {
		m := &hostv1.ConnectRequest{}
		if err := proto.Unmarshal(encoded, m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// TestTheWelcomesDefaults are the limits of a Welcome that states none.
func TestTheWelcomesDefaults(t *testing.T) {
	s := welcomedState(t, 1)
	if s.silence != defaultSilence || s.maxVerdict != defaultVerdictBytes {
		t.Errorf("silence %s, verdicts of %d bytes", s.silence, s.maxVerdict)
	}
	if want := start.Add(defaultSilence); !s.wake().Equal(want) {
		t.Errorf("it wakes at %s, want %s", s.wake(), want)
	}
	if out := s.tick(s.wake().Add(-1)); out.abort != nil {
		t.Errorf("given up too soon: %v", out.abort)
	}
	if out := s.tick(s.wake()); !errors.Is(out.abort, errSilent) {
		t.Errorf("abort %v, want %v", out.abort, errSilent)
	}
	if !s.wake().IsZero() {
		t.Error("a session that was given up still wakes")
	}
}

// TestALoweredCreditIsNotHeldAgainstCallsOnTheWay: the dispatcher has not seen it yet.
func TestALoweredCreditIsNotHeldAgainstCallsOnTheWay(t *testing.T) {
	s := welcomedState(t, 2)
	s.credit(1)
	s.credit(1)
	if out := sent(t, s); len(out) != 1 || out[0].GetCredit().GetMaxOutstanding() != 1 {
		t.Errorf("sent %v", out)
	}
	out := take(s, start, reviewOf(1, 3))
	if frames := sent(t, s); len(out.start) != 2 || frames[0].GetVerdict().GetRefused().GetReason() != refusedOverloaded {
		t.Errorf("started %d, sent %v", len(out.start), frames)
	}
}

func TestEarlyCancelsAreBounded(t *testing.T) {
	s := welcomedState(t, 10)
	for call := range uint64(maxEarlyCancels + 1) {
		s.cancel(start, &hostv1.Cancel{CallId: call + 1})
	}
	if s.early.size != maxEarlyCancels {
		t.Errorf("%d cancellations are remembered, want %d", s.early.size, maxEarlyCancels)
	}
	if out := take(s, start, reviewOf(1, 1)); len(out.start) != 1 {
		t.Error("the oldest cancellation should have been forgotten")
	}
	if out := take(s, start, reviewOf(2, 1)); len(out.start) != 0 {
		t.Error("the second oldest cancellation should have been remembered")
	}
	// Each named call counts.
	s.cancel(start, &hostv1.Cancel{CallId: 5000, HookIndexes: make([]uint32, maxEarlyCancels-1)})
	if s.early.size != maxEarlyCancels || len(s.early.list) != 1 {
		t.Errorf("%d are remembered with %d in all", len(s.early.list), s.early.size)
	}
	s.cancel(start, &hostv1.Cancel{CallId: 5001, HookIndexes: make([]uint32, maxEarlyCancels)})
	if out := take(s, start, reviewOf(5000, 1)); len(out.start) != 0 || s.early.size != 0 {
		t.Errorf("started %d, %d are remembered", len(out.start), s.early.size)
	}
}

func TestProbesAreBounded(t *testing.T) {
	s := welcomedState(t, 10)
	for seq := range uint64(maxProbes) {
		if out := s.probe(&hostv1.Probe{Seq: seq, Hook: "h"}); out.probe == nil {
			t.Fatalf("probe %d was not started", seq)
		}
	}
	out := s.probe(&hostv1.Probe{Seq: 99, Hook: "h"})
	if frames := sent(t, s); out.probe != nil || frames[0].GetProbeResult().GetReady() {
		t.Errorf("started %v, sent %v", out.probe, frames)
	}
	s.probed(0, nil)
	if frames := sent(t, s); !frames[0].GetProbeResult().GetReady() {
		t.Errorf("sent %v", frames)
	}
	if out := s.probe(&hostv1.Probe{Seq: 100, Hook: "h"}); out.probe == nil {
		t.Error("a probe that ended should make room")
	}
}

// TestBooks plays random sessions and keeps books beside the state: every (call, hook) pair is started or refused, ends
// in exactly one verdict, and frees its slot; however its review came, and however the verdicts are put into frames.
func TestBooks(t *testing.T) {
	for seed := range uint64(400) {
		var capabilities []string
		if seed%2 == 1 {
			capabilities = []string{capabilityBatches}
		}
		b := books{t: t, random: rand.New(rand.NewPCG(seed, 0)), s: welcomedState(t, 5, capabilities...), verdicts: map[pair]int{}}
		for range 300 {
			if err := b.play(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if err := b.close(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

type books struct {
	t        *testing.T
	random   *rand.Rand
	s        *state
	now      time.Time
	call     uint64
	asked    int
	running  []pair
	verdicts map[pair]int
	drained  *hostv1.HostDrain

	// A review in chunks, its missing bytes, and the number of hooks that it calls.
	large        uint64
	total, hooks int
	missing      []byte
}

// play does one random thing that can happen to a session.
func (b *books) play() error {
	b.now = b.now.Add(time.Millisecond)
	switch b.random.IntN(8) {
	case 0, 1:
		var reviews []*hostv1.Review
		for range 1 + b.random.IntN(3) {
			reviews = append(reviews, b.review())
		}
		return b.note(take(b.s, b.now, reviews...))
	case 2:
		return b.cancel()
	case 3, 4:
		if len(b.running) == 0 {
			return nil
		}
		i := b.random.IntN(len(b.running))
		p := b.running[i]
		b.running = append(b.running[:i], b.running[i+1:]...)
		finish(b.s, b.now, p)
		return b.note(effects{})
	case 5, 6:
		return b.chunk()
	default:
		if b.random.IntN(100) == 0 {
			b.s.drain(b.now)
		} else {
			b.s.credit(1 + b.random.IntN(5))
		}
		return b.note(effects{})
	}
}

// review is a new one.
func (b *books) review() *hostv1.Review {
	b.call += 1 + b.random.Uint64N(2)
	r := reviewOf(b.call, b.random.IntN(4))
	b.asked += len(r.GetHooks())
	return r
}

// chunk sends a part of the large review, or the first chunk of the next.
func (b *books) chunk() error {
	if len(b.missing) == 0 {
		r := b.review()
		b.large, b.missing, b.hooks = r.GetCallId(), marshal(b.t, r), len(r.GetHooks())
		b.total = len(b.missing)
	}
	n := 1 + b.random.IntN(len(b.missing))
	c := &wire.ChunkView{CallID: b.large, Total: uint64(b.total), Hooks: uint32(b.hooks), Data: b.missing[:n]}
	b.missing = b.missing[n:]
	return b.note(b.s.frame(b.now, &frame{chunk: c}))
}

// cancel names calls that were, are and will be. A cancellation of all hooks stands for the missing chunks.
func (b *books) cancel() error {
	c := &hostv1.Cancel{CallId: b.random.Uint64N(b.call + 3)}
	for range b.random.IntN(3) {
		c.HookIndexes = append(c.HookIndexes, b.random.Uint32N(5))
	}
	if c.GetCallId() == b.large && len(b.missing) < b.total && b.s.assembly.assembling() && b.s.assembly.covers(c) {
		b.missing = nil
	}
	return b.note(b.s.cancel(b.now, c))
}

// note reads the effects of the last step.
func (b *books) note(out effects) error {
	if out.abort != nil {
		return out.abort
	}
	for i := range out.start {
		if inv := &out.start[i]; b.drained != nil {
			return fmt.Errorf("%v was started after the drain", inv.pair)
		}
		b.running = append(b.running, out.start[i].pair)
	}
	finishing := b.s.finishing
	for _, m := range sent(b.t, b.s) {
		if err := b.frame(m); err != nil {
			return err
		}
	}
	owed := b.asked - len(b.running) - len(b.verdicts)
	if len(b.missing) > 0 {
		owed -= b.hooks
	}
	switch {
	case b.s.outstanding != len(b.running):
		return fmt.Errorf("%d outstanding, %d running", b.s.outstanding, len(b.running))
	case len(b.running) > b.s.limit:
		return fmt.Errorf("%d running, limit %d", len(b.running), b.s.limit)
	case finishing && len(b.running) > 0:
		return errors.New("finished with calls in flight")
	case owed != 0 && !finishing:
		return fmt.Errorf("%d verdicts and %d running of %d", len(b.verdicts), len(b.running), b.asked)
	}
	return nil
}

// frame reads a frame of the host.
func (b *books) frame(m *hostv1.ConnectRequest) error {
	verdicts := m.GetVerdicts().GetVerdicts()
	if v := m.GetVerdict(); v != nil {
		verdicts = append(verdicts, v)
	}
	for _, v := range verdicts {
		p := pair{v.GetCallId(), v.GetHookIndex()}
		if b.verdicts[p]++; b.verdicts[p] > 1 {
			return fmt.Errorf("two verdicts for %v", p)
		}
		if b.drained != nil && v.GetRefused() == nil && v.GetCancelled() == nil && p.id > b.drained.GetLastStartedCallId() {
			return fmt.Errorf("%v was started, and the host said that it was not", p)
		}
	}
	if m.GetDrain() != nil {
		b.drained = m.GetDrain()
	}
	return nil
}

// close drains, and lets all handlers return.
func (b *books) close() error {
	b.s.drain(b.now)
	if err := b.note(effects{}); err != nil {
		return err
	}
	for len(b.running) > 0 {
		p := b.running[0]
		b.running = b.running[1:]
		finish(b.s, b.now, p)
		if err := b.note(effects{}); err != nil {
			return err
		}
	}
	for len(b.missing) > 0 {
		if err := b.chunk(); err != nil {
			return err
		}
	}
	if !b.s.finishing || len(b.s.calls) != 0 {
		return fmt.Errorf("finished %t, %d calls left", b.s.finishing, len(b.s.calls))
	}
	return nil
}

// TestTheShellIsToldWhenADeadlineMovesForward, whatever the order of frames: it sleeps until the deadline that it
// knows.
func TestTheShellIsToldWhenADeadlineMovesForward(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 6))
		s, now := welcomedState(t, 4), start
		known := s.wake()
		for call := uint64(1); call < 30; call++ {
			now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
			switch random.IntN(12) {
			case 0:
				s.drain(now)
			case 1:
				s.left(now, &hostv1.DispatcherDrain{GraceMs: uint32(random.IntN(10_000))})
			case 2:
				s.welcome(&hostv1.Welcome{Protocol: 1, SilenceMs: uint32(random.IntN(10_000))})
			case 3:
				s.tick(now)
			case 4, 5:
				s.finished(now, pair{id: uint64(random.IntN(int(call)))}, &hostv1.Verdict{}, nil)
			default:
				take(s, now, reviewOf(call, 1))
			}
			switch at := s.wake(); {
			case s.takeHurry(), !now.Before(known): // The shell looks anew.
				known = at
			case !at.IsZero() && at.Before(known):
				t.Fatalf("seed %d: the shell sleeps until %v, and should be back at %v", seed, known, at)
			}
		}
	}
}
