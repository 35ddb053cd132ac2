package session

import (
	"testing"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// as are the calls that a test starts next.
func (m *mesh) as(mode review.Mode) *mesh {
	m.mode = mode
	return m
}

// agreeing connects a host that agrees to be asked ahead of its turn.
func (m *mesh) agreeing(instance string, hello *hostv1.Hello, hooks ...string) *host {
	m.t.Helper()
	m.agree = true
	defer func() { m.agree = false }()
	return m.connect(instance, hello, hooks...)
}

func TestAHostIsToldWhyItIsAsked(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.agreeing("one", &hostv1.Hello{}, "a")
		for mode, want := range map[review.Mode]hostv1.Mode{
			review.Decide: hostv1.Mode_MODE_DECIDE, review.Speculative: hostv1.Mode_MODE_SPECULATIVE, review.Shadow: hostv1.Mode_MODE_SHADOW,
		} {
			got := m.as(mode).review("a")
			r := h.review()
			if said := r.GetHooks()[0].GetMode(); said != want {
				t.Errorf("the host is told %v, want %v", said, want)
			}
			h.allow(r, 0)
			got.want("a", "allowed")
		}
	})
}

func TestOnlyHostsThatAgreeAreAskedAhead(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		other := m.connect("one", &hostv1.Hello{}, "a", "b")
		if m.router.Spare(m.snapshot.Hooks()[0], review.Speculative, "east") {
			t.Error("a host that does not agree is spare")
		}
		alone := m.as(review.Speculative).review("a")
		alone.want("a", "overload")
		half := &hostv1.Hello{Hooks: []*hostv1.HookOffer{{Name: "b", Stage: 2}}} // it agrees to a alone
		agrees := m.agreeing("two", half, "a")
		if !m.router.Spare(m.snapshot.Hooks()[0], review.Speculative, "east") {
			t.Error("no host is spare")
		}
		m.as(review.Decide).review("a") // whoever has it
		got := m.as(review.Speculative).review("a", "b")
		got.want("b", "overload")
		for f := agrees.hear(); f != nil; f = agrees.hear() {
			agrees.allow(f.GetReview(), 0)
		}
		got.want("a", "allowed")
		for f := other.hear(); f != nil; f = other.hear() {
			if f.GetReview().GetHooks()[0].GetMode() != hostv1.Mode_MODE_DECIDE {
				t.Errorf("the other host got %v", f)
			}
			other.allow(f.GetReview(), 0)
		}
		m.wantIdle()
	})
}

func TestACallThatDoesNotDecideNeverWaits(t *testing.T) {
	for _, mode := range []review.Mode{review.Speculative, review.Shadow} {
		inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
			h := m.agreeing("one", &hostv1.Hello{MaxOutstanding: 3}, "a")
			m.as(review.Decide).review("a")
			first := h.review()
			got := m.as(mode).review("a") // two of three slots are free
			got.want("a", "pending")
			reserve := m.review("a") // one is, and stays
			reserve.want("a", "overload")
			if r, _ := reserve.of("a"); !r.Failure.NotStarted {
				t.Error("a host might have started it")
			}
			h.allow(first, 0)
			h.allow(h.review(), 0)
			got.want("a", "allowed")

			for range 4 {
				m.as(review.Decide).review("a")
			}
			m.as(mode).review("a").want("a", "overload")
			if n := m.router.queued.Load(); n != 1 {
				t.Errorf("%d calls wait, want the one that decides", n)
			}
			for f := h.hear(); f != nil; f = h.hear() {
				h.allow(f.GetReview(), 0)
			}
			m.wantIdle()
		})
	}
}

func TestACallAheadThatARefusalLeavesWithoutAHostFailsAtOnce(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.agreeing("one", &hostv1.Hello{MaxOutstanding: 1}, "a")
		waits := m.as(review.Decide).review("a")
		h.allow(h.review(), 0)
		waits.want("a", "allowed")
		got := m.as(review.Speculative).review("a")
		r := h.review()
		waits = m.as(review.Decide).review("a")
		waits.want("a", "pending")
		h.say(refused(r))
		got.want("a", "overload")
		h.allow(h.review(), 0)
		waits.want("a", "allowed")
	})
}

func TestAHostHearsThatItsRouteAsksForMoreThanItAgreesTo(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		declines, agrees := m.connect("one", &hostv1.Hello{}, "a"), m.agreeing("two", &hostv1.Hello{}, "a")
		m.ahead = true
		m.configure("a")
		for h, told := range map[*host]bool{declines: true, agrees: false} {
			s := h.hear().GetHookState()
			if s.GetState() != hostv1.State_STATE_IN_ROTATION || (s.GetMessage() != "") != told {
				t.Errorf("a host hears %v, want a message: %t", s, told)
			}
		}
		m.configure("a")
		if f := declines.hear(); f != nil {
			t.Errorf("without a change, a host hears %v", f)
		}
	})
}
