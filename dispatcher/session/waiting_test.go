package session

import (
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// pong is a sign of life.
func pong() *hostv1.ConnectRequest {
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{}}}
}

// alive lets time pass in which the hosts answer pings.
func alive(d time.Duration, hosts ...*host) {
	for ; d > 0; d -= stream.PingInterval {
		elapse(min(d, stream.PingInterval))
		for _, h := range hosts {
			h.say(pong())
		}
	}
}

// call is a call of the first hook of the snapshot.
func (m *mesh) call() *review.CallSet {
	return &review.CallSet{
		Request: &admissionv1.AdmissionRequest{},
		Calls:   []review.Call{{Hook: m.snapshot.Hooks()[0], Deadline: time.Now().Add(10 * time.Second)}},
	}
}

func TestASlotThatTheWriterFreesGoesToACallThatWaits(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.dial("host", 1)
		h.say(with(hello("one", "a"), func(h *hostv1.Hello) { h.MaxOutstanding = 3 }))
		h.hear()
		m.review("a") // fills the host's end of the stream
		m.review("a") // is being written
		cancelled, hold := make(chan struct{}), make(chan struct{})
		defer close(hold)
		cancel := m.router.Start(t.Context(), m.call(), func(int, review.Result) {
			close(cancelled)
			<-hold
		})
		waits := m.review("a")
		go cancel(0)
		<-cancelled // and its slot not free yet
		for _, r := range []*hostv1.Review{h.review(), h.review(), h.review()} {
			h.allow(r, 0)
		}
		waits.want("a", "allowed")
	})
}

// TestASlotThatASilentSessionHasLeftIsNoPlaceForACallThatWaits has a call end that a host which does not read was to have:
// whoever waits would be behind all the others there, while a replica that speaks may have room any moment.
func TestASlotThatASilentSessionHasLeftIsNoPlaceForACallThatWaits(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		silent := m.dial("host", 1)
		silent.say(with(hello("silent", "a"), func(h *hostv1.Hello) { h.MaxOutstanding = 3 }))
		silent.hear()
		var calls []*results
		for range 3 { // the first fills the host's end of the stream, the second is being written
			calls = append(calls, m.review("a"))
		}
		good := m.connect("good", &hostv1.Hello{MaxOutstanding: 1}, "a")
		m.review("a")
		r := good.review()
		waits := m.review("a")
		alive(2*time.Second, good)
		calls[2].cancel["a"]()
		good.allow(r, 0)
		good.allow(good.review(), 0)
		waits.want("a", "allowed")
		for _, c := range calls {
			c.cancel["a"]()
		}
	})
}

func TestWhoWaitsComesBeforeWhoComes(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		third := make(chan review.Result, 1)
		m.router.Start(t.Context(), m.call(), func(int, review.Result) {
			m.router.Start(t.Context(), m.call(), func(_ int, r review.Result) { third <- r })
		})
		synctest.Wait()
		second := m.review("a")
		h.allow(h.review(), 0)
		h.allow(h.review(), 0)
		second.want("a", "allowed")
		h.allow(h.review(), 0)
		if r := <-third; r.Failure != nil {
			t.Error(r.Failure)
		}
	})
}

func TestACallWaitsForASilentSessionToSpeakAgain(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		busy := m.connect("busy", &hostv1.Hello{MaxOutstanding: 1}, "a")
		m.review("a")
		r := busy.review()
		silent := m.connect("silent", &hostv1.Hello{}, "a")
		alive(2*time.Second, busy)
		got := m.review("a")
		if f := silent.hear(); f != nil {
			t.Fatalf("a silent session got %v", f)
		}
		silent.say(pong())
		elapse(stream.TickInterval)
		silent.allow(silent.review(), 0)
		got.want("a", "allowed")
		busy.allow(r, 0)
	})
}

func TestACallThatWaitedInVainSaysWhy(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		m.review("a")
		r := h.review()
		got := m.review("a")
		alive(11*time.Second, h)
		got.want("a", "timeout")
		h.allow(r, 0)
	})
}

// A dispatcher that was rolled may be ready with one host of a hook, and lose that before the others have found it.
func TestWhereHostsHaveJustBegunToComeOthersAreWaitedFor(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		m.router.found = time.Time{}
		unserved := m.review("b")
		elapse(pool.AbsenceGrace + stream.TickInterval)
		unserved.want("b", "unavailable") // nobody has served it: it may well have no hosts at all
		first := m.connect("one", &hostv1.Hello{}, "a")
		first.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{}}})
		early := m.review("a")
		first.cancel()
		elapse(5 * time.Second)
		late := m.reviewFor(30*time.Second, "a")
		early.want("a", "pending")
		second := m.connect("two", &hostv1.Hello{}, "a")
		for range 2 {
			second.allow(second.review(), 0)
		}
		early.want("a", "allowed")
		late.want("a", "allowed")

		second.cancel()
		nobody := m.reviewFor(30*time.Second, "a")
		elapse(StartGrace - 5*time.Second - stream.TickInterval)
		nobody.want("a", "pending")
		elapse(2 * stream.TickInterval)
		nobody.want("a", "unavailable")
		m.review("a").want("a", "unavailable")

		third := m.connect("three", &hostv1.Hello{}, "a") // by now all that are to come have come
		third.cancel()
		soon := m.review("a")
		elapse(pool.AbsenceGrace + stream.TickInterval)
		soon.want("a", "unavailable")
	})
}

func TestACallThatHasWaitedForABusyHostWaitsForItsRestart(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		m.review("a")
		h.review()
		got := m.review("a")
		alive(2*pool.AbsenceGrace, h)
		h.cancel()
		elapse(2 * stream.TickInterval)
		got.want("a", "pending")
		again := m.connect("one", &hostv1.Hello{}, "a")
		for f := again.hear(); f != nil; f = again.hear() {
			again.allow(f.GetReview(), 0)
		}
		got.want("a", "allowed")
	})
}

func TestACallOfAClusterThatNobodyServesFailsSoon(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{Clusters: []string{"east"}}, "a")
		got := m.review("a")
		got.want("a", "pending") // somebody may come
		alive(pool.AbsenceGrace+stream.TickInterval, h)
		got.want("a", "unavailable")
	})
}
