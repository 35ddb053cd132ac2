package session

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// states returns the states of its hooks that a host has heard, in order.
func (h *host) states() (out []string) {
	h.t.Helper()
	for f := h.hear(); f != nil; f = h.hear() {
		if s := f.GetHookState(); s != nil {
			out = append(out, s.GetName()+" "+s.GetState().String()[len("STATE_"):])
		}
	}
	return out
}

func TestHostsAreToldWhatChangesForThemAndNothingElse(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{}, "a", "c")
		two := m.connect("two", &hostv1.Hello{}, "b")
		want := func(when string, h *host, states ...string) {
			t.Helper()
			if got := h.states(); !slices.Equal(got, states) {
				t.Errorf("%s: told %v, want %v", when, got, states)
			}
		}
		m.configure("a", "b")
		want("nothing changed", one)
		want("nothing changed", two)
		m.configure("a", "b", "c")
		want("a hook came", one, "c IN_ROTATION")
		want("a hook came", two)
		m.configureAs("c", "stranger", "a", "b", "c")
		want("others are granted", one, "a NOT_AUTHORIZED", "c NOT_AUTHORIZED")
		want("others are granted", two, "b NOT_AUTHORIZED")
		m.configure("a", "b", "c")
		want("granted again", one, "a IN_ROTATION", "c IN_ROTATION")
		want("granted again", two, "b IN_ROTATION")
		m.configure("a", "b")
		want("a hook goes, and is served while reviews may call it", one, "c REMOVING")
		want("a hook goes", two)
		alive(stream.MaxReview+stream.TickInterval, one, two)
		want("nobody can call it", one, "c REMOVED")
		want("nobody can call it", two)
		got := m.review("a", "b")
		one.allow(one.review(), 0)
		two.allow(two.review(), 0)
		got.want("a", "allowed")
		got.want("b", "allowed")
	})
}

func TestAHostThatIsNotGrantedAnyMoreGetsNothing(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a")
		m.configureAs("c", "stranger", "a")
		h.states()
		got := m.review("a")
		if f := h.hear(); f != nil {
			t.Errorf("got %v", f)
		}
		alive(pool.AbsenceGrace+stream.TickInterval, h)
		got.want("a", "unavailable")
	})
}

func TestTheRosterKeepsNothingOfThoseWhoLeft(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		h := m.connect("one", &hostv1.Hello{}, "a", "b")
		m.connect("one", &hostv1.Hello{}, "a")
		h.end()
		for _, s := range m.router.all() {
			s.Close(io.EOF)
		}
		m.server.Wait()
		alive(stream.TickInterval)
		r := &m.router.index
		if len(r.sessions) != 0 || len(r.instances) != 0 || len(r.tenants) != 0 || r.ungranted != 0 {
			t.Errorf("left over: %v", r)
		}
	})
}

// crowd is a router with many sessions and hooks. Every session offers some of the hooks in turn.
type crowd struct {
	router *Router
	hooks  []string
}

// snapshot is hooks of which one is called anew.
func (c *crowd) snapshot(b *testing.B, different string) *match.Snapshot {
	b.Helper()
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for _, name := range append(slices.Clone(c.hooks), different) {
		v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: name})
	}
	s, _ := match.Compile(match.Input{
		Revision: different, Objects: []match.Object{{Validating: v}},
		Routes: []match.RouteBinding{{Configuration: "c", Route: match.Route{Stream: true, Hosts: []string{"host"}}}},
	})
	return s
}

// newCrowd makes crowdSize sessions that offer a number of hooks each.
func newCrowd(b *testing.B, hooks, offers int) *crowd {
	b.Helper()
	r, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	c := &crowd{router: r}
	for i := range hooks {
		c.hooks = append(c.hooks, fmt.Sprintf("h%d.crowd.dev", i))
	}
	r.Update(c.snapshot(b, "first.crowd.dev"))
	c.join(b, offers)
	return c
}

// join lets sessions come.
func (c *crowd) join(b *testing.B, offers int) {
	b.Helper()
	for i := range crowdSize {
		first := hello(fmt.Sprint(i))
		for k := range offers {
			first.GetHello().Hooks = append(first.GetHello().GetHooks(), &hostv1.HookOffer{
				Name: c.hooks[(i*offers+k)%len(c.hooks)], Stage: 2,
			})
		}
		s := newSession(c.router, identity.Named("host"), first.GetHello(), stream.Options{ID: fmt.Sprint(i), Channel: identity.Named("host")})
		if err := c.router.addSession(s, pool.OffersOf(first.GetHello())); err != nil {
			b.Fatal(err)
		}
	}
}

const crowdSize = 10_000

// BenchmarkCrowdJoins lets 10,000 sessions come, of one hook and of eight of 10,000.
func BenchmarkCrowdJoins(b *testing.B) {
	for _, kind := range []struct{ hooks, offers int }{{1, 1}, {crowdSize, 8}} {
		b.Run(fmt.Sprintf("hooks=%d", kind.hooks), func(b *testing.B) {
			for b.Loop() {
				newCrowd(b, kind.hooks, kind.offers)
			}
		})
	}
}

// BenchmarkCrowdUpdate puts a configuration into force in which one hook in 10,000 is another one.
func BenchmarkCrowdUpdate(b *testing.B) {
	c := newCrowd(b, crowdSize, 8)
	snapshots := []*match.Snapshot{c.snapshot(b, "this.crowd.dev"), c.snapshot(b, "that.crowd.dev")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.router.Update(snapshots[i%2])
	}
}

// BenchmarkCrowdTick looks after 10,000 sessions and 10,000 hooks once, as it happens four times in a second.
func BenchmarkCrowdTick(b *testing.B) {
	for _, silent := range []bool{false, true} {
		b.Run(fmt.Sprintf("silent=%t", silent), func(b *testing.B) {
			c := newCrowd(b, crowdSize, 8)
			b.ReportAllocs()
			for b.Loop() {
				now := time.Now()
				if silent {
					now = now.Add(stream.SuspectAfter + 100*time.Millisecond)
				}
				for turn := range stream.TickShards {
					c.router.maintain(now, turn)
				}
			}
		})
	}
}
