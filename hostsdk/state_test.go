package hostsdk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// welcomedState is a session with the validating hook "h" and some limit, after its welcome.
func welcomedState(t *testing.T, limit uint32) *state {
	t.Helper()
	s := newState(start, &hostv1.Hello{
		MaxOutstanding: limit,
		Hooks:          []*hostv1.HookOffer{{Name: "h", Stage: validate}},
	}, time.Second)
	out := s.frame(start, &hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Welcome{Welcome: &hostv1.Welcome{Protocol: 1}}})
	if out.abort != nil {
		t.Fatal(out.abort)
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

// TestTheWelcomesDefaults are what holds when a dispatcher says nothing.
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
	if out := s.credit(1); len(out.send) != 1 || out.send[0].GetCredit().GetMaxOutstanding() != 1 {
		t.Errorf("sent %v", out.send)
	}
	if out := s.credit(1); len(out.send) != 0 {
		t.Errorf("the same credit was sent again: %v", out.send)
	}
	out := s.review(start, start, reviewOf(1, 3))
	if len(out.start) != 2 || out.send[0].GetVerdict().GetRefused().GetReason() != refusedOverloaded {
		t.Errorf("started %d, sent %v", len(out.start), out.send)
	}
}

func TestEarlyCancelsAreBounded(t *testing.T) {
	s := welcomedState(t, 10)
	for call := range uint64(maxEarlyCancels + 1) {
		s.cancel(start, &hostv1.Cancel{CallId: call + 1})
	}
	if len(s.early) != maxEarlyCancels {
		t.Errorf("%d cancellations are remembered, want %d", len(s.early), maxEarlyCancels)
	}
	if out := s.review(start, start, reviewOf(1, 1)); len(out.start) != 1 {
		t.Error("the oldest cancellation should have been forgotten")
	}
	if out := s.review(start, start, reviewOf(2, 1)); len(out.start) != 0 {
		t.Error("the second oldest cancellation should have been remembered")
	}
}

func TestProbesAreBounded(t *testing.T) {
	s := welcomedState(t, 10)
	for seq := range uint64(maxProbes) {
		if out := s.probe(&hostv1.Probe{Seq: seq, Hook: "h"}); len(out.probe) != 1 {
			t.Fatalf("probe %d was not started", seq)
		}
	}
	if out := s.probe(&hostv1.Probe{Seq: 99, Hook: "h"}); len(out.probe) != 0 || out.send[0].GetProbeResult().GetReady() {
		t.Errorf("started %v, sent %v", out.probe, out.send)
	}
	if out := s.probed(0, nil); !out.send[0].GetProbeResult().GetReady() {
		t.Errorf("sent %v", out.send)
	}
	if out := s.probe(&hostv1.Probe{Seq: 100, Hook: "h"}); len(out.probe) != 1 {
		t.Error("a probe that ended should make room")
	}
}

// TestBooks plays random sessions and keeps books beside the state: every (call, hook) pair is started or refused, ends
// in exactly one verdict, and frees its slot.
func TestBooks(t *testing.T) {
	for seed := range uint64(200) {
		b := books{random: rand.New(rand.NewPCG(seed, 0)), s: welcomedState(t, 5), verdicts: map[pair]int{}}
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
	random   *rand.Rand
	s        *state
	now      time.Time
	call     uint64
	asked    int
	running  []pair
	verdicts map[pair]int
	finished bool
}

// play does one random thing that can happen to a session.
func (b *books) play() error {
	b.now = b.now.Add(time.Millisecond)
	switch b.random.IntN(6) {
	case 0, 1:
		b.call += 1 + b.random.Uint64N(2)
		r := reviewOf(b.call, b.random.IntN(4))
		b.asked += len(r.GetHooks())
		return b.note(b.s.review(b.now, b.now, r))
	case 2:
		return b.note(b.s.cancel(b.now, &hostv1.Cancel{CallId: b.random.Uint64N(b.call + 3), HookIndexes: b.indexes()}))
	case 3, 4:
		if len(b.running) == 0 {
			return nil
		}
		i := b.random.IntN(len(b.running))
		p := b.running[i]
		b.running = append(b.running[:i], b.running[i+1:]...)
		return b.note(b.s.finished(b.now, &hostv1.Verdict{CallId: p.call, HookIndex: p.hook}))
	default:
		if b.random.IntN(100) == 0 {
			return b.note(b.s.drain(b.now))
		}
		return b.note(b.s.credit(1 + b.random.IntN(5)))
	}
}

func (b *books) indexes() []uint32 {
	var indexes []uint32
	for range b.random.IntN(3) {
		indexes = append(indexes, b.random.Uint32N(5))
	}
	return indexes
}

func (b *books) note(out effects) error {
	if out.abort != nil {
		return out.abort
	}
	for _, inv := range out.start {
		b.running = append(b.running, inv.pair)
	}
	for _, frame := range out.send {
		if v := frame.GetVerdict(); v != nil {
			p := pair{v.GetCallId(), v.GetHookIndex()}
			if b.verdicts[p]++; b.verdicts[p] > 1 {
				return fmt.Errorf("two verdicts for %v", p)
			}
		}
	}
	if out.finish && b.finished {
		return errors.New("finished twice")
	}
	b.finished = b.finished || out.finish
	switch {
	case b.s.outstanding != len(b.running):
		return fmt.Errorf("%d outstanding, %d running", b.s.outstanding, len(b.running))
	case len(b.running) > b.s.limit:
		return fmt.Errorf("%d running, limit %d", len(b.running), b.s.limit)
	case b.finished && len(b.running) > 0:
		return errors.New("finished with calls in flight")
	case len(b.verdicts)+len(b.running) != b.asked:
		return fmt.Errorf("%d verdicts and %d running of %d", len(b.verdicts), len(b.running), b.asked)
	}
	return nil
}

// close drains, and lets all handlers return.
func (b *books) close() error {
	if err := b.note(b.s.drain(b.now)); err != nil {
		return err
	}
	for _, p := range b.running {
		b.running = b.running[1:]
		if err := b.note(b.s.finished(b.now, &hostv1.Verdict{CallId: p.call, HookIndex: p.hook})); err != nil {
			return err
		}
	}
	if !b.finished || len(b.s.calls) != 0 {
		return fmt.Errorf("finished %t, %d calls left", b.finished, len(b.s.calls))
	}
	return nil
}
