package session

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/wire"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestHooksOfOneHostShareAFrame(t *testing.T) {
	inBubble(t, []string{"a", "b", "c"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a", "c")
		two := m.connect("two", &hostv1.Hello{}, "b")
		got := m.review("a", "b", "c")
		r1, r2 := one.review(), two.review()
		if len(r1.GetHooks()) != 2 || len(r2.GetHooks()) != 1 {
			t.Fatalf("got %d and %d hooks, want 2 and 1", len(r1.GetHooks()), len(r2.GetHooks()))
		}
		if raw := string(r1.GetRequest().GetObject().GetRaw()); raw != `{"kind":"Pod"}` {
			t.Errorf("object came as %s", raw)
		}
		one.allow(r1, 1)
		got.want("c", "allowed")
		got.want("a", "pending")
		one.allow(r1, 0)
		two.allow(r2, 0)
		got.want("a", "allowed")
		got.want("b", "allowed")
		if f := one.hear(); f != nil {
			t.Errorf("one more frame: %v", f)
		}
	})
}

func TestAHostServesOnlyWhatItsIdentityIsGranted(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		stranger := m.dial("stranger", 8)
		stranger.say(hello("s", "a"))
		state := stranger.hear().GetWelcome().GetHooks()[0]
		if state.GetState() != hostv1.State_STATE_NOT_AUTHORIZED {
			t.Errorf("got %v, want not authorized", state)
		}
		got := m.review("a")
		got.want("a", "pending") // somebody may come back
		elapse(pool.AbsenceGrace + stream.TickInterval)
		got.want("a", "unavailable")
		m.review("a").want("a", "unavailable") // and now it fails at once
		if f := stranger.hear(); f != nil {
			t.Errorf("the stranger got %v", f)
		}
	})
}

func TestUnknownHooksAreSaidToBeUnknown(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.dial("host", 8)
		h.say(hello("h", "nonsense"))
		if s := h.hear().GetWelcome().GetHooks()[0].GetState(); s != hostv1.State_STATE_UNKNOWN_HOOK {
			t.Errorf("got %v", s)
		}
		m.configure("a", "nonsense")
		if s := h.hear().GetHookState().GetState(); s != hostv1.State_STATE_IN_ROTATION {
			t.Errorf("after the configuration changed: %v", s)
		}
		got := m.review("nonsense")
		h.allow(h.review(), 0)
		got.want("nonsense", "allowed")
	})
}

func TestACallWaitsForAFreeSlot(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		first, second := m.review("a"), m.review("a")
		r := h.review()
		if f := h.hear(); f != nil {
			t.Fatalf("got %v beyond the credit", f)
		}
		elapse(100 * time.Millisecond)
		h.allow(r, 0)
		first.want("a", "allowed")
		second.want("a", "pending")
		h.allow(h.review(), 0)
		second.want("a", "allowed")
		if r, _ := second.of("a"); r.Timing.Queued != 100*time.Millisecond {
			t.Errorf("queued for %s, want 100ms", r.Timing.Queued)
		}
	})
}

// The text of a timeout names the replica that had the call.
func TestACancelledCallTellsWhereItWas(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		first, second := m.review("a"), m.review("a")
		h.review()
		where := func(r *results, want review.Timing) {
			t.Helper()
			r.cancel["a"]()
			if got, _ := r.of("a"); got.Timing != want {
				t.Errorf("%+v, want %+v", got.Timing, want)
			}
		}
		elapse(100 * time.Millisecond)
		where(second, review.Timing{Queued: 100 * time.Millisecond})
		third := m.review("a")
		elapse(400 * time.Millisecond)
		h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{MaxOutstanding: 3}}})
		h.review()
		fourth := m.review("a")
		h.review()
		elapse(100 * time.Millisecond)
		where(third, review.Timing{Queued: 400 * time.Millisecond, Host: 100 * time.Millisecond, Instance: "one"})
		elapse(stream.SuspectAfter)
		where(first, review.Timing{Host: 600*time.Millisecond + stream.SuspectAfter, Instance: "one"})
		where(fourth, review.Timing{Wire: 100*time.Millisecond + stream.SuspectAfter, Instance: "one"}) // the host is silent
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		m.review("a")
		h.review()
		waiting := make([]*results, pool.MaxWaiting/2)
		for i := range waiting {
			waiting[i] = m.review("a")
		}
		m.review("a").want("a", "overload")
		waiting[0].want("a", "pending")
		waiting[0].cancel["a"]()
		waiting[0].want("a", "cancelled")
		m.review("a").want("a", "pending") // the cancelled one made room
		h.cancel()
		elapse(pool.AbsenceGrace + stream.TickInterval)
		waiting[pool.MaxWaiting/2-1].want("a", "unavailable")
	})
}

func TestALostSessionFailsOverAtOnce(t *testing.T) {
	inBubble(t, []string{"harmless", "effects!"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "harmless", "effects")
		got := m.review("harmless", "effects")
		one.review()
		two := m.connect("two", &hostv1.Hello{}, "harmless", "effects")
		one.cancel()
		got.want("effects", "lost") // it may have happened
		r := two.review()
		two.allow(r, 0)
		got.want("harmless", "allowed")
	})
}

func TestAReviewThatEndsTwoSessionsIsNotSentToAThird(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a")
		got := m.review("a")
		one.review()
		two := m.connect("two", &hostv1.Hello{}, "a")
		one.cancel()
		two.review()
		three := m.connect("three", &hostv1.Hello{}, "a")
		two.cancel()
		got.want("a", "lost")
		if f := three.hear(); f != nil {
			t.Errorf("got %v", f)
		}
	})
}

func TestWhatALeavingHostHasNotStartedGoesElsewhereWhateverItsSideEffects(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a")
		first, second := m.review("a"), m.review("a")
		r := one.review()
		one.review()
		two := m.connect("two", &hostv1.Hello{}, "a")
		one.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{
			Drain: &hostv1.HostDrain{LastStartedCallId: r.GetCallId()},
		}})
		two.allow(two.review(), 0)
		second.want("a", "allowed")
		third := m.review("a")
		two.allow(two.review(), 0)
		third.want("a", "allowed")
		one.allow(r, 0)
		first.want("a", "allowed")
		close(one.in)
		if c := one.end(); c != codes.OK {
			t.Errorf("the session ended with %v", c)
		}
	})
}

func TestALeavingHostMayRefuseWhatWasOnItsWay(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		const many = stream.MaxStrays + 1
		one := m.connect("one", &hostv1.Hello{MaxOutstanding: many + 1}, "a")
		got := m.review("a")
		started := one.review()
		batch := m.call()
		batch.Calls = slices.Repeat(batch.Calls, many)
		cancel := m.router.Start(t.Context(), batch, func(int, review.Result) {})
		on := one.review()
		one.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{
			Drain: &hostv1.HostDrain{LastStartedCallId: started.GetCallId()},
		}})
		for i := range on.GetHooks() {
			one.say(verdict(on, uint32(i), &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}))
		}
		one.allow(started, 0)
		got.want("a", "allowed")
		for i := range batch.Calls {
			cancel(i) // they wait for another host
		}
	})
}

func TestARefusedCallGoesElsewhere(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a")
		got := m.review("a")
		two := m.connect("two", &hostv1.Hello{}, "a")
		one.say(verdict(one.review(), 0, &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}))
		two.allow(two.review(), 0)
		got.want("a", "allowed")
	})
}

func TestACallThatNobodyTakesIsNotPassedRoundForEver(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		got := m.review("a")
		for range pool.MaxAttempts {
			h.say(verdict(h.review(), 0, &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}))
		}
		got.want("a", review.FailureRefused.String())
	})
}

func TestASilentSessionIsNotPickedThenLost(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a")
		lost := m.review("a")
		one.review()
		two := m.connect("two", &hostv1.Hello{}, "a")
		three := m.connect("three", &hostv1.Hello{}, "a")
		pong := &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{}}}
		for range 2 {
			elapse(stream.PingInterval)
			two.say(pong)
			three.say(pong)
		}
		for range 10 { // one is silent for 2 s
			m.review("a")
		}
		if f := one.hear(); f != nil {
			t.Errorf("a silent session got %v", f)
		}
		two.say(pong)
		three.say(pong)
		elapse(stream.LostAfter - 2*time.Second + 2*stream.TickInterval)
		if c := one.end(); c != codes.Unavailable {
			t.Errorf("the silent session ended with %v", c)
		}
		// Its call is with either of the others.
		for _, h := range []*host{two, three} {
			for f := h.hear(); f != nil; f = h.hear() {
				h.allow(f.GetReview(), 0)
			}
		}
		lost.want("a", "allowed")
	})
}

func TestNoMoreThanHalfOfAHooksSessionsAreLostForSilenceAtATime(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a")
		m.connect("two", &hostv1.Hello{}, "a")
		one.say(pong())
		got := m.review("a")
		elapse(stream.LostAfter + 2*stream.TickInterval) // as if we had paused
		got.want("a", "pending")
		if n := len(m.router.all()); n != 2 {
			t.Fatalf("%d sessions are left", n)
		}
		one.say(pong())
		elapse(2 * stream.TickInterval) // now half of them speak
		if n := len(m.router.all()); n != 1 {
			t.Errorf("%d sessions are left", n)
		}
		elapse(stream.HostSilence + 2*stream.TickInterval) // and now even the host has given up
		if n := len(m.router.all()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestSilenceOfAllKeepsNobodyFromBeingPicked(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		elapse(2 * time.Second)
		got := m.review("a")
		h.allow(h.review(), 0)
		got.want("a", "allowed")
	})
}

func TestASecondSessionOfAnInstanceReplacesTheFirst(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		old := m.connect("one", &hostv1.Hello{}, "a")
		inFlight := m.review("a")
		r := old.review()
		current := m.connect("one", &hostv1.Hello{}, "a")
		if g := old.hear().GetDrain().GetGraceMs(); g != wire.Milliseconds(stream.ReplacedGrace) {
			t.Errorf("the first session has %d ms", g)
		}
		for range 10 { // all new calls go to the second
			got := m.review("a")
			current.allow(current.review(), 0)
			got.want("a", "allowed")
		}
		inFlight.want("a", "pending")
		old.allow(r, 0)
		inFlight.want("a", "allowed")
		elapse(stream.TickInterval)
		if c := old.end(); c != codes.Aborted {
			t.Errorf("the first session ended with %v", c)
		}
	})
}

func TestTheCallsOfAReplacedSessionFailOverWhenItEnds(t *testing.T) {
	for name, end := range map[string]func(old, current *host){
		"its stream breaks": func(old, _ *host) { old.cancel() },
		"it never answers": func(old, current *host) {
			alive(stream.ReplacedGrace-stream.PingInterval, current, old)
			alive(2*stream.PingInterval, current)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				old := m.connect("one", &hostv1.Hello{}, "a")
				got := m.reviewFor(30*time.Second, "a")
				old.review()
				current := m.connect("one", &hostv1.Hello{}, "a")
				end(old, current)
				current.allow(current.review(), 0)
				got.want("a", "allowed")
				if n := len(m.router.all()); n != 1 {
					t.Errorf("%d sessions are left", n)
				}
			})
		})
	}
}

func TestOfAnInstanceNoMoreThanTwoSessionsAreKept(t *testing.T) {
	for range 20 { // the router holds them in a map
		inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
			var joined []*hostSession
			for range 4 {
				s := newSession(m.router, identity.Named("host"), hello("one", "a").GetHello(), stream.Options{ID: string('1' + rune(len(joined))), Channel: identity.Named("host")})
				if err := m.router.addSession(s, nil); err != nil {
					t.Fatal(err)
				}
				joined = append(joined, s) // and it does not leave
			}
			for i, s := range joined {
				if ended := status.Code(stream.StatusOf(s.Figures().Ended)) == codes.Aborted; ended != (i < 2) {
					t.Errorf("session %d is at its end: %t", i, ended)
				}
				if takes := s.FreeSlots() > 0; takes != (i == 3) {
					t.Errorf("session %d takes calls: %t", i, takes)
				}
			}
		})
	}
}

func TestACancelledCallIsNotKeptInMemory(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 2}, "a")
		start := func() (weak.Pointer[review.CallSet], func(int)) {
			batch := m.call()
			return weak.Make(batch), m.router.Start(t.Context(), batch, func(int, review.Result) {})
		}
		batch, cancel := start()
		r := h.review()
		cancel(0)
		runtime.GC()
		if batch.Value() != nil {
			t.Error("a call that its host does not answer holds the review")
		}
		h.hear() // Cancel
		h.allow(r, 0)
		if taken := m.router.all()[0].UsedSlots(); taken != 0 {
			t.Errorf("%d slots are still taken", taken)
		}
	})
}

func TestAReviewLargerThanTheHostTakesIsNotSent(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		small := m.connect("one", &hostv1.Hello{MaxFrameBytes: 20}, "a")
		m.review("a").want("a", "too_large")
		if f := small.hear(); f != nil {
			t.Errorf("got %v", f)
		}
		if taken := m.router.all()[0].UsedSlots(); taken != 0 {
			t.Errorf("%d slots are still taken", taken)
		}
	})
}

func TestAReviewLargerThanOneReplicaTakesGoesToAnother(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		m.connect("small", &hostv1.Hello{MaxFrameBytes: 20}, "a")
		large := m.connect("large", &hostv1.Hello{}, "a")
		for range 8 { // the smaller one is always the one with less to do
			got := m.review("a")
			large.allow(large.review(), 0)
			got.want("a", "allowed")
		}
	})
}

func TestACancelledCallKeepsItsSlotUntilTheHostAnswers(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		got := m.review("a")
		r := h.review()
		got.cancel["a"]()
		got.want("a", "cancelled")
		if c := h.hear().GetCancel(); c.GetCallId() != r.GetCallId() {
			t.Fatalf("got %v, want the cancel", c)
		}
		next := m.review("a")
		if f := h.hear(); f != nil {
			t.Errorf("got %v while the slot is taken", f)
		}
		h.say(verdict(r, 0, &hostv1.Verdict{Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}}}))
		h.allow(h.review(), 0)
		next.want("a", "allowed")
	})
}

func TestDrainLetsCallsInFlightFinish(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		got := m.review("a")
		r := h.review()
		drained := make(chan struct{})
		go func() {
			m.router.Drain(t.Context(), 10*time.Second)
			close(drained)
		}()
		if g := h.hear().GetDrain().GetGraceMs(); g != 10_000 {
			t.Errorf("grace of %d ms", g)
		}
		elapse(time.Second)
		h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{}}})
		h.allow(r, 0)
		got.want("a", "allowed")
		<-drained
		if c := h.end(); c != codes.OK {
			t.Errorf("the session ended with %v", c)
		}
		late := m.dial("host", 8)
		late.in <- hello("late", "a")
		if c := late.end(); c != codes.Unavailable {
			t.Errorf("a session after the drain ended with %v", c)
		}
	})
}

func TestAStuckWriterIsALostSession(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.dial("host", 1) // Welcome fits, nothing else
		h.say(hello("h", "a"))
		got := m.review("a")
		for range 8 {
			elapse(2 * stream.TickInterval)
			select {
			case h.in <- &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{}}}:
			case <-h.ctx.Done():
			}
		}
		got.want("a", "pending") // it waits for another host: it was lost, and has no side effects
		if c := h.end(); c != codes.Unavailable {
			t.Errorf("the session ended with %v", c)
		}
		elapse(pool.AbsenceGrace + stream.TickInterval)
		got.want("a", "unavailable")
	})
}

func TestBadFirstFrames(t *testing.T) {
	offers := make([]*hostv1.HookOffer, MaxOffers+1)
	for _, test := range []struct {
		name  string
		first *hostv1.ConnectRequest
		want  codes.Code
	}{
		{"a frame without content", &hostv1.ConnectRequest{}, codes.InvalidArgument},
		{"something else than Hello", &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{}}, codes.InvalidArgument},
		{"no instance", hello("", "a"), codes.InvalidArgument},
		{"no hooks", hello("x"), codes.InvalidArgument},
		{"a future protocol", with(hello("x", "a"), func(h *hostv1.Hello) { h.ProtocolMin, h.ProtocolMax = 2, 3 }), codes.FailedPrecondition},
		{"too many hooks", with(hello("x"), func(h *hostv1.Hello) { h.Hooks = offers }), codes.ResourceExhausted},
		{"a second lane", with(hello("x", "a"), func(h *hostv1.Hello) { h.Lane, h.JoinSession = 1, "s" }), codes.FailedPrecondition},
		{"a name without end", hello(string(make([]byte, MaxNameBytes+1)), "a"), codes.InvalidArgument},
		{"a hook with such a name", hello("x", string(make([]byte, MaxNameBytes+1))), codes.InvalidArgument},
		{"a cluster with such a name", with(hello("x", "a"), func(h *hostv1.Hello) {
			h.Clusters = []string{string(make([]byte, MaxNameBytes+1))}
		}), codes.InvalidArgument},
		{"too many capabilities", with(hello("x", "a"), func(h *hostv1.Hello) {
			h.Capabilities = make([]string, MaxCapabilities+1)
		}), codes.ResourceExhausted},
		{"a capability without end", with(hello("x", "a"), func(h *hostv1.Hello) {
			h.Capabilities = []string{string(make([]byte, MaxNameBytes+1))}
		}), codes.InvalidArgument},
		{"too many clusters", with(hello("x", "a"), func(h *hostv1.Hello) {
			h.Clusters = make([]string, MaxOffers+1)
		}), codes.ResourceExhausted},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				h := m.dial("host", 1)
				h.in <- test.first
				if c := h.end(); c != test.want {
					t.Errorf("got %v, want %v", c, test.want)
				}
			})
		})
	}
}

func TestNoHelloInTime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		h := m.dial("host", 1)
		begun := time.Now()
		if c := h.end(); c != codes.InvalidArgument || time.Since(begun) != HelloTimeout {
			t.Errorf("got %v after %s", c, time.Since(begun))
		}
	})
}

func TestAHostWithoutMannersIsDisconnected(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		stray := &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: &hostv1.Verdict{CallId: 99}}}
		for range stream.MaxStrays {
			h.say(stray)
		}
		h.in <- stray
		if c := h.end(); c != codes.InvalidArgument {
			t.Errorf("got %v", c)
		}
		synctest.Wait()
		if n := len(m.router.all()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

// hello is a first frame.
func hello(instance string, hooks ...string) *hostv1.ConnectRequest {
	h := &hostv1.Hello{Host: "h", Instance: instance, ProtocolMin: 1, ProtocolMax: 1}
	for _, name := range hooks {
		h.Hooks = append(h.Hooks, &hostv1.HookOffer{Name: name, Stage: 2})
	}
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: h}}
}

func with(f *hostv1.ConnectRequest, change func(*hostv1.Hello)) *hostv1.ConnectRequest {
	change(f.GetHello())
	return f
}
