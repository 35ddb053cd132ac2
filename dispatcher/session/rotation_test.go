package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// probe returns the hook of the next frame, which has to be a question whether it is ready, and how the host answers.
func (h *host) probe() (hook string, answer func(ready bool, message string)) {
	h.t.Helper()
	p := h.hear().GetProbe()
	if p == nil {
		h.t.Fatal("the host is not asked whether it is ready")
	}
	return p.GetHook(), func(ready bool, message string) {
		h.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_ProbeResult{
			ProbeResult: &hostv1.ProbeResult{Seq: p.GetSeq(), Ready: ready, Message: message},
		}})
	}
}

// waits are the states of the pending hooks.
func (m *mesh) waits() (out []string) {
	for _, p := range m.router.Pending() {
		out = append(out, fmt.Sprintf("%s hosts=%d host=%q ready=%t %s", p.Hook.ID.Name, p.Hosts, p.Host, p.Ready, p.Message))
	}
	return out
}

func (m *mesh) wantWaits(want ...string) {
	m.t.Helper()
	if got := m.waits(); !slices.Equal(got, want) {
		m.t.Errorf("pending %q, want %q", got, want)
	}
}

func TestAPendingHookIsAskedAboutUntilItIsInRotation(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.pending = []string{"a"}
		m.configure("a", "b")
		m.wantWaits(`a hosts=0 host="" ready=false `)
		if got := m.router.Ready(); !slices.Equal(got, []string{"c/b"}) {
			t.Errorf("the process waits for %v: a pending hook decides nothing", got)
		}
		h := m.dial("host", 8)
		h.say(hello("one", "a", "b"))
		welcome := h.hear().GetWelcome().GetHooks()
		if a, b := welcome[0].GetState(), welcome[1].GetState(); a != hostv1.State_STATE_PENDING || b != hostv1.State_STATE_IN_ROTATION {
			t.Errorf("the host is told %v", welcome)
		}
		hook, answer := h.probe()
		if hook != "a" {
			t.Errorf("the host is asked about %s", hook)
		}
		m.wantWaits(`a hosts=1 host="" ready=false `)
		answer(false, "the cache is cold")
		m.wantWaits(`a hosts=1 host="host" ready=false the cache is cold`)
		if f := h.hear(); f != nil {
			t.Errorf("the host hears %v", f)
		}
		elapse(stream.ProbePause + stream.TickInterval)
		_, answer = h.probe()
		answer(true, "")
		<-m.router.Readied()
		m.wantWaits(`a hosts=1 host="host" ready=true `)
		m.pending = nil
		m.configure("a", "b")
		if got := h.states(); !slices.Equal(got, []string{"a IN_ROTATION"}) {
			t.Errorf("then the host is told %v", got)
		}
		m.wantWaits()
		got := m.review("a")
		h.allow(h.review(), 0)
		got.want("a", "allowed")
		alive(2*stream.MaxProbePause, h)
		for f := h.hear(); f != nil; f = h.hear() {
			if f.GetProbe() != nil {
				t.Error("the host is asked whether a hook in rotation is ready")
			}
		}
	})
}

func TestAHookThatIsConfiguredLaterIsAskedAboutAtOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		m.pending = []string{"a"}
		m.configure("a")
		if s := h.hear().GetHookState().GetState(); s != hostv1.State_STATE_PENDING {
			t.Errorf("the host is told %v", s)
		}
		_, answer := h.probe()
		answer(true, "")
		m.wantWaits(`a hosts=1 host="host" ready=true `)
	})
}

func TestOneHostThatIsReadyIsEnoughAsLongAsItIsThere(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.pending = []string{"a"}
		m.configure("a")
		one, two := m.connect("one", &hostv1.Hello{}, "a"), m.connect("two", &hostv1.Hello{}, "a")
		_, answer := one.probe()
		_, second := two.probe()
		answer(true, "")
		second(false, "cold")
		m.wantWaits(`a hosts=2 host="host" ready=true `)
		close(one.in)
		one.end()
		m.wantWaits(`a hosts=1 host="" ready=false `)
		elapse(stream.ProbePause + stream.TickInterval)
		_, second = two.probe()
		second(false, "still cold")
		m.wantWaits(`a hosts=1 host="host" ready=false still cold`)
	})
}

func TestAHostThatWasReadyAndIsNotAnyMorePutsNothingInRotation(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.pending = []string{"a"}
		m.configure("a")
		h := m.connect("one", &hostv1.Hello{}, "a")
		_, answer := h.probe()
		answer(true, "")
		for range 25 {
			elapse(stream.MaxProbePause / 25)
			h.say(pong())
		}
		_, answer = h.probe()
		answer(false, "the database is gone")
		m.wantWaits(`a hosts=1 host="host" ready=false the database is gone`)
	})
}

func TestWhoIsNotGrantedAHookIsNotAskedAboutIt(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.pending = []string{"a"}
		m.configure("a")
		h := m.dial("stranger", 8)
		h.say(hello("one", "a"))
		if s := h.hear().GetWelcome().GetHooks()[0].GetState(); s != hostv1.State_STATE_NOT_AUTHORIZED {
			t.Errorf("a stranger is told %v", s)
		}
		if f := h.hear(); f != nil {
			t.Errorf("a stranger hears %v", f)
		}
		m.wantWaits(`a hosts=0 host="" ready=false `)
	})
}

func TestAHookThatWasRemovedAndComesBackIsANewOne(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.pending = []string{"a"}
		m.configure("a")
		h := m.connect("one", &hostv1.Hello{}, "a")
		_, answer := h.probe()
		answer(true, "")
		m.configure()
		m.wantWaits()
		m.configure("a")
		m.wantWaits(`a hosts=1 host="" ready=false `)
		if got := h.hear().GetHookState().GetState(); got != hostv1.State_STATE_REMOVING {
			t.Errorf("the host is told %v", got)
		}
		if got := h.hear().GetHookState().GetState(); got != hostv1.State_STATE_PENDING {
			t.Errorf("the host is told %v", got)
		}
		h.probe()
	})
}

func TestWhatIsPendingStaysSoWhenRemovedHooksAreForgotten(t *testing.T) {
	inBubble(t, []string{"b"}, func(t *testing.T, m *mesh) {
		m.pending = []string{"a"}
		m.configure("a")
		elapse(stream.MaxReview + 2*stream.TickInterval)
		m.wantWaits(`a hosts=0 host="" ready=false `)
		h := m.connect("one", &hostv1.Hello{}, "a")
		h.probe()
	})
}

func TestAHostIsAskedOnceAboutAllHooksOfAName(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		m.pending = []string{"a"}
		m.configure("a", "a")
		h := m.connect("one", &hostv1.Hello{}, "a")
		hook, answer := h.probe()
		if f := h.hear(); hook != "a" || f != nil {
			t.Errorf("the host is asked about %s, and then hears %v", hook, f)
		}
		answer(true, "")
		m.wantWaits(`a hosts=1 host="host" ready=true `, `a hosts=1 host="host" ready=true `)
	})
}
