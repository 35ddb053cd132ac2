package session

import (
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// taken returns which host has the next review; nil when none has.
func taken(hosts map[string]*host) (name string, r *hostv1.Review) {
	for name, h := range hosts {
		for f := h.hear(); f != nil; f = h.hear() {
			if f.GetReview() != nil {
				return name, f.GetReview()
			}
		}
	}
	return "", nil
}

func TestARetryGoesToAReplicaThatHasNotHadTheCall(t *testing.T) {
	for range 10 { // picks are random
		inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
			hosts := map[string]*host{}
			for _, name := range []string{"one", "two", "three", "four"} {
				hosts[name] = m.connect(name, &hostv1.Hello{}, "a")
			}
			got, seen := m.review("a"), map[string]bool{}
			for range pool.MaxAttempts {
				name, r := taken(hosts)
				if seen[name] {
					t.Errorf("%s got the call twice, and others not at all", name)
				}
				seen[name] = true
				hosts[name].say(refused(r))
			}
			got.want("a", "refused")
			if name, _ := taken(hosts); name != "" {
				t.Errorf("%s got a call that %d replicas have refused", name, pool.MaxAttempts)
			}
		})
	}
}

func TestAReplicaThatHadTheCallIsBetterThanNone(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		got := m.review("a")
		h.say(refused(h.review()))
		h.allow(h.review(), 0)
		got.want("a", "allowed")
	})
}

func TestNothingIsRetriedPastItsDeadline(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		hosts := map[string]*host{"one": m.connect("one", &hostv1.Hello{}, "a"), "two": m.connect("two", &hostv1.Hello{}, "a")}
		got := m.review("a")
		name, r := taken(hosts)
		alive(10*time.Second, hosts["one"], hosts["two"])
		hosts[name].say(refused(r))
		got.want("a", "refused")
		if other, _ := taken(hosts); other != "" {
			t.Errorf("%s got a call whose time is over", other)
		}
	})
}

func TestWhatAHostHasAnsweredIsNotRetried(t *testing.T) {
	for kind, v := range map[string]*hostv1.Verdict{
		"handler":    {Outcome: &hostv1.Verdict_Error{Error: &hostv1.HandlerError{}}},
		"panic":      {Outcome: &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Panicked: true}}},
		"timeout":    {Outcome: &hostv1.Verdict_Cancelled{}},
		"bad_answer": {},
	} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
				hosts := map[string]*host{"one": m.connect("one", &hostv1.Hello{}, "a"), "two": m.connect("two", &hostv1.Hello{}, "a")}
				got := m.review("a")
				name, r := taken(hosts)
				hosts[name].say(say(r, v))
				got.want("a", kind)
				if other, _ := taken(hosts); other != "" {
					t.Errorf("%s got it as well", other)
				}
			})
		})
	}
}

// TestAllCallsOfASessionThatEndedAreUnderSuspicion has a frame of three calls and another one, all of which are lost: nobody
// knows which one it was. They go to another replica one by one, and none goes to a third.
func TestAllCallsOfASessionThatEndedAreUnderSuspicion(t *testing.T) {
	inBubble(t, []string{"a", "b", "c", "d"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a", "b", "c", "d")
		frame, alone := m.review("a", "b", "c"), m.review("d")
		r := one.review()
		one.review()
		one.allow(r, 1)
		frame.want("b", "allowed") // a call with its verdict is beyond suspicion
		two := m.connect("two", &hostv1.Hello{}, "a", "b", "c", "d")
		one.cancel()
		var again []*hostv1.Review
		for range 3 {
			r := two.review()
			if len(r.GetHooks()) != 1 {
				t.Errorf("%v go together", r.GetHooks())
			}
			again = append(again, r)
		}
		answered := again[0].GetHooks()[0].GetName()
		two.allow(again[0], 0)
		three := m.connect("three", &hostv1.Hello{}, "a", "b", "c", "d")
		two.cancel()
		for _, hook := range []string{"a", "c", "d"} {
			got, how := frame, "lost"
			if hook == "d" {
				got = alone
			}
			if hook == answered {
				how = "allowed"
			}
			got.want(hook, how)
		}
		if f := three.hear(); f != nil {
			t.Errorf("a third session got %v", f)
		}
	})
}

func TestWhatWasNeverHandedOverIsNotUnderSuspicion(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		stuck := m.dial("host", 1) // takes nothing but Welcome
		stuck.say(with(hello("stuck", "a"), func(h *hostv1.Hello) { h.MaxOutstanding = 8 }))
		written, queued := m.review("a"), m.review("a")
		two := m.connect("two", &hostv1.Hello{}, "a")
		stuck.cancel()
		written.want("a", "lost") // half of it may be there
		two.allow(two.review(), 0)
		queued.want("a", "allowed")
	})
}

func TestAReplicaThatRefusesEverythingIsNotAlwaysTheLeastLoaded(t *testing.T) {
	inBubble(t, []string{"a!"}, func(t *testing.T, m *mesh) {
		hosts := map[string]*host{}
		for _, name := range []string{"refuses", "two", "three"} {
			hosts[name] = m.connect(name, &hostv1.Hello{}, "a")
		}
		asked := 0
		for range 100 {
			got := m.review("a")
			for name, r := taken(hosts); r != nil; name, r = taken(hosts) {
				if name == "refuses" {
					asked++
					hosts[name].say(refused(r))
					continue
				}
				hosts[name].allow(r, 0)
			}
			got.want("a", "allowed")
			alive(10*time.Millisecond, hosts["two"])
		}
		// In a second it is asked, and after 100 ms, 300 ms and 700 ms.
		if asked < 1 || asked > 4 {
			t.Errorf("who refuses everything was asked %d times in a second", asked)
		}
	})
}
