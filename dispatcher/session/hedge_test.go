package session

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
)

// delay is when calls go to a second replica in these tests.
const delay = 20 * time.Millisecond

// inHedgingBubble runs a test whose hooks have a budget for every call to be made twice, after delay.
func inHedgingBubble(t *testing.T, hooks []string, test func(t *testing.T, m *mesh)) {
	t.Helper()
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		t.Helper()
		m.hedge = match.Hedge{Enabled: true, After: delay, Percent: 100}
		m.configure(hooks...)
		test(t, m)
	})
}

// either returns which of two hosts has a review, the other one, and the review. The other one has none.
func either(t *testing.T, a, b *host) (has, other *host, r *hostv1.Review) {
	t.Helper()
	f, g := a.hear(), b.hear()
	switch {
	case f.GetReview() != nil && g == nil:
		return a, b, f.GetReview()
	case g.GetReview() != nil && f == nil:
		return b, a, g.GetReview()
	}
	t.Fatalf("got %v and %v, want one review", f, g)
	return nil, nil, nil
}

// wantHedges checks the counters, by outcome.
func (m *mesh) wantHedges(won, lost, noCapacity int) {
	m.t.Helper()
	got := [3]int{}
	for i, outcome := range []string{"won", "lost", "no_capacity"} {
		got[i] = int(testutil.ToFloat64(m.router.metrics.hedges.Vec.WithLabelValues(outcome)))
	}
	if want := [3]int{won, lost, noCapacity}; got != want {
		m.t.Errorf("hedges won, lost, without capacity: got %v, want %v", got, want)
	}
}

func say(r *hostv1.Review, v *hostv1.Verdict) *hostv1.ConnectRequest { return verdict(r, 0, v) }

func failed(r *hostv1.Review) *hostv1.ConnectRequest {
	return say(r, &hostv1.Verdict{Outcome: &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Message: "no database"}}})
}

func refused(r *hostv1.Review) *hostv1.ConnectRequest {
	return say(r, &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}})
}

func allowed(r *hostv1.Review) *hostv1.ConnectRequest {
	return say(r, &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{Allowed: true}}})
}

func denied(r *hostv1.Review) *hostv1.ConnectRequest {
	return say(r, &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{Response: &admissionv1.AdmissionResponse{}}})
}

func TestASlowReplicaIsOvertaken(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, quick, first := either(t, one, two)
		if mode := first.GetHooks()[0].GetMode(); mode != hostv1.Mode_MODE_DECIDE {
			t.Errorf("the first call has mode %v", mode)
		}
		elapse(delay - time.Millisecond)
		if f := quick.hear(); f != nil {
			t.Fatalf("got %v before the delay is over", f)
		}
		elapse(time.Millisecond)
		second := quick.review()
		if mode := second.GetHooks()[0].GetMode(); mode != hostv1.Mode_MODE_HEDGE {
			t.Errorf("the second call has mode %v", mode)
		}
		elapse(3 * time.Millisecond)
		quick.allow(second, 0)
		got.want("a", "allowed")
		if c := slow.hear().GetCancel(); c.GetCallId() != first.GetCallId() {
			t.Errorf("the slow replica got %v, want a cancel", c)
		}
		r, _ := got.of("a")
		want := map[*host]string{one: "one", two: "two"}[quick]
		if r.Timing.Instance != want || r.Timing.Wire != 3*time.Millisecond || r.Timing.Queued != 0 {
			t.Errorf("timing is %+v, want that of %s", r.Timing, want)
		}
		slow.allow(first, 0) // too late: it only frees the slot
		m.wantHedges(1, 0, 0)
		m.wantIdle()
	})
}

// wantIdle checks that no slot is taken.
func (m *mesh) wantIdle() {
	m.t.Helper()
	synctest.Wait()
	for _, s := range m.router.all() {
		if n := s.UsedSlots(); n != 0 {
			m.t.Errorf("%d slots of %s are taken", n, s.Instance())
		}
	}
}

func TestTheFirstReplicaMayStillBeFirst(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, quick, first := either(t, one, two)
		elapse(delay)
		second := quick.review()
		slow.say(denied(first)) // a denial is a verdict
		if r, _ := got.of("a"); r.Verdict == nil || r.Verdict.GetAllowed() {
			t.Errorf("got %+v, want the denial", r)
		}
		if c := quick.hear().GetCancel(); c.GetCallId() != second.GetCallId() {
			t.Errorf("the second replica got %v, want a cancel", c)
		}
		quick.allow(second, 0)
		m.wantHedges(0, 1, 0)
		m.wantIdle()
	})
}

func TestACallThatAnswersInTimeIsMadeOnce(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		quick, other, r := either(t, one, two)
		elapse(delay - time.Millisecond)
		quick.allow(r, 0)
		got.want("a", "allowed")
		elapse(delay)
		if f := other.hear(); f != nil {
			t.Errorf("the other replica got %v", f)
		}
		m.wantHedges(0, 0, 0)
	})
}

func TestAFailureOfOneReplicaWaitsForTheOther(t *testing.T) {
	for _, test := range []struct {
		name  string
		first bool // fails
	}{{"the first fails", true}, {"the second fails", false}} {
		t.Run(test.name, func(t *testing.T) {
			inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
				got := m.review("a")
				slow, quick, first := either(t, one, two)
				elapse(delay)
				second := quick.review()
				bad, good, rBad, rGood := slow, quick, first, second
				if !test.first {
					bad, good, rBad, rGood = quick, slow, second, first
				}
				bad.say(failed(rBad))
				got.want("a", "pending")
				good.allow(rGood, 0)
				got.want("a", "allowed")
				m.wantIdle()
			})
		})
	}
}

func TestTheFailureOfBothReplicasIsTheMoreTellingOne(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, quick, first := either(t, one, two)
		elapse(delay)
		quick.say(failed(quick.review()))
		got.want("a", "pending")
		slow.say(say(first, &hostv1.Verdict{Outcome: &hostv1.Verdict_Cancelled{}}))
		got.want("a", "handler")
		m.wantHedges(0, 1, 0)
	})
}

func TestACancelledCallIsCancelledOnBothReplicas(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, quick, first := either(t, one, two)
		elapse(delay)
		second := quick.review()
		got.cancel["a"]()
		got.want("a", "cancelled")
		if slow.hear().GetCancel() == nil || quick.hear().GetCancel() == nil {
			t.Error("a replica is not told")
		}
		slow.allow(first, 0)
		quick.allow(second, 0)
		m.wantIdle()

		before := m.review("a") // is cancelled before the delay
		_, other, _ := either(t, one, two)
		before.cancel["a"]()
		elapse(2 * delay)
		if f := other.hear(); f != nil {
			t.Errorf("a cancelled call went to a second replica: %v", f)
		}
		m.wantHedges(0, 1, 0)
	})
}

func TestTheEndOfASessionLeavesTheCallToTheOtherReplica(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, quick, _ := either(t, one, two)
		elapse(delay)
		second := quick.review()
		three := m.connect("three", &hostv1.Hello{}, "a")
		slow.cancel()
		got.want("a", "pending")
		if f := three.hear(); f != nil {
			t.Errorf("a third replica got %v", f)
		}
		quick.allow(second, 0)
		got.want("a", "allowed")
	})
}

func TestAReviewThatEndsBothSessionsIsNotSentToAThird(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, quick, _ := either(t, one, two)
		elapse(delay)
		quick.review()
		three := m.connect("three", &hostv1.Hello{}, "a")
		slow.cancel()
		quick.cancel()
		got.want("a", "lost")
		if f := three.hear(); f != nil {
			t.Errorf("a third replica got %v", f)
		}
	})
}

func TestACallThatWasOnASessionThatEndedIsNotMadeTwice(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		dies, other, _ := either(t, one, two)
		dies.cancel()
		r := other.review()
		three := m.connect("three", &hostv1.Hello{}, "a")
		elapse(2 * delay)
		if f := three.hear(); f != nil {
			t.Errorf("a third replica got %v", f)
		}
		other.allow(r, 0)
		got.want("a", "allowed")
	})
}

func TestARefusalOfTheSecondReplicaIsNotRetried(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, quick, first := either(t, one, two)
		elapse(delay)
		second := quick.review()
		three := m.connect("three", &hostv1.Hello{}, "a")
		quick.say(refused(second))
		got.want("a", "pending")
		if f := three.hear(); f != nil {
			t.Errorf("a third replica got %v", f)
		}
		slow.allow(first, 0)
		got.want("a", "allowed")
	})
}

func TestALeavingReplicaIsNoSecondOne(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, leaving, first := either(t, one, two)
		leaving.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{}}})
		elapse(delay)
		if f := leaving.hear(); f != nil {
			t.Errorf("a leaving replica got %v", f)
		}
		slow.allow(first, 0)
		got.want("a", "allowed")
		m.wantHedges(0, 0, 1)
	})
}

func TestADrainingDispatcherMakesNoExtraCalls(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, other, first := either(t, one, two)
		ctx, stop := context.WithCancel(t.Context())
		var drain sync.WaitGroup
		drain.Go(func() { m.router.Drain(ctx, 10*time.Second) })
		elapse(delay)
		for f := other.hear(); f != nil; f = other.hear() {
			if f.GetDrain() == nil {
				t.Errorf("got %v while the dispatcher is leaving", f)
			}
		}
		slow.allow(first, 0)
		got.want("a", "allowed")
		stop()
		drain.Wait()
	})
}

func TestExtraCallsUseSpareCapacityOnly(t *testing.T) {
	for _, test := range []struct {
		name  string
		setup func(m *mesh) (waits *results, r *hostv1.Review, h *host)
	}{
		{"the second session is of the same instance", func(m *mesh) (*results, *hostv1.Review, *host) {
			h := m.connect("one", &hostv1.Hello{}, "a")
			got := m.review("a")
			return got, h.review(), h
		}},
		{"calls of the hook wait", func(m *mesh) (*results, *hostv1.Review, *host) {
			h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
			got := m.review("a")
			r := h.review()
			m.waiting = m.review("a")
			m.connect("east", &hostv1.Hello{Clusters: []string{"east"}}, "a")
			return got, r, h
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				got, r, h := test.setup(m)
				elapse(delay)
				if f := h.hear(); f != nil {
					t.Errorf("got %v", f)
				}
				h.allow(r, 0)
				got.want("a", "allowed")
				if m.waiting != nil {
					h.allow(h.review(), 0)
					m.waiting.want("a", "allowed")
				}
				if n := testutil.ToFloat64(m.router.metrics.hedges.Vec.WithLabelValues("no_capacity")); n == 0 {
					t.Error("nothing is counted")
				}
			})
		})
	}
}

func TestWhatHasSideEffectsIsMadeOnce(t *testing.T) {
	inHedgingBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		got := m.review("a")
		slow, other, r := either(t, one, two)
		elapse(2 * delay)
		if f := other.hear(); f != nil {
			t.Errorf("got %v", f)
		}
		slow.allow(r, 0)
		got.want("a", "allowed")
		m.wantHedges(0, 0, 0)
	})
}

func TestTheBudgetOfExtraCallsIsKept(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.hedge = match.Hedge{Enabled: true, After: delay, Percent: 10}
		m.configure("a")
		hosts := []*host{m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")}
		const calls = 200
		for range calls {
			got := m.review("a")
			elapse(delay) // all of them are slow
			for _, h := range hosts {
				for f := h.hear(); f != nil; f = h.hear() {
					if f.GetReview() != nil {
						h.allow(f.GetReview(), 0)
					}
				}
			}
			got.want("a", "allowed")
		}
		sent := testutil.ToFloat64(m.router.metrics.hedges.Vec.WithLabelValues("won")) + testutil.ToFloat64(m.router.metrics.hedges.Vec.WithLabelValues("lost"))
		if sent != calls/10 {
			t.Errorf("%v extra calls of %d, want %d", sent, calls, calls/10)
		}
		if n := testutil.ToFloat64(m.router.metrics.hedges.Vec.WithLabelValues("denied_budget")); n != calls-calls/10 {
			t.Errorf("%v are counted as denied, want %d", n, calls-calls/10)
		}
	})
}

func TestTheDelayIsMeasuredWhenTheRouteDoesNotSay(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.hedge = match.Hedge{Enabled: true, Percent: 100}
		m.configure("a")
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		const usual = 8 * time.Millisecond
		for range hedge.Samples {
			got := m.review("a")
			h, other, r := either(t, one, two)
			elapse(usual)
			if f := other.hear(); f != nil {
				t.Fatalf("got %v while nothing is known", f)
			}
			h.allow(r, 0)
			got.want("a", "allowed")
		}
		got := m.review("a")
		h, other, first := either(t, one, two)
		elapse(usual)
		if f := other.hear(); f != nil {
			t.Fatalf("got %v after the usual time", f)
		}
		elapse(usual/8 + time.Microsecond)
		other.allow(other.review(), 0)
		got.want("a", "allowed")
		h.hear() // Cancel
		h.allow(first, 0)
	})
}

func TestCallsOfOneReviewAreMadeTwiceEachInItsTime(t *testing.T) {
	inHedgingBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a", "b"), m.connect("two", &hostv1.Hello{}, "a", "b")
		got := m.review("a", "b")
		slow, quick, first := either(t, one, two)
		slow.allow(first, 0)
		elapse(delay)
		second := quick.review()
		if name := second.GetHooks()[0].GetName(); len(second.GetHooks()) != 1 || name != first.GetHooks()[1].GetName() {
			t.Errorf("made twice: %v", second.GetHooks())
		}
		quick.allow(second, 0)
		got.want("a", "allowed")
		got.want("b", "allowed")
		if f := quick.hear(); f != nil {
			t.Errorf("got %v", f)
		}
	})
}

func TestARouteThatStopsHedgingIsHeeded(t *testing.T) {
	inHedgingBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		m.hedge = match.Hedge{}
		m.configure("a")
		for _, h := range []*host{one, two} {
			for f := h.hear(); f != nil; f = h.hear() { // HookState
			}
		}
		got := m.review("a")
		slow, other, r := either(t, one, two)
		elapse(2 * delay)
		if f := other.hear(); f != nil {
			t.Errorf("got %v", f)
		}
		slow.allow(r, 0)
		got.want("a", "allowed")
	})
}
