package session

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// wantStatus compares the sessions that serve a hook, or all if its name is empty.
func (m *mesh) wantStatus(hook string, want ...string) {
	m.t.Helper()
	hosts, more := m.router.Hosts(HostPage{Hook: hook, Limit: 10})
	got := map[string]bool{}
	for _, h := range hosts {
		var hooks []string
		for _, x := range h.Hooks {
			hooks = append(hooks, x.ID.Name)
		}
		got[fmt.Sprintf("%s %s %v %d %d/%d", h.Instance, h.Identity, hooks, h.State, h.Used, h.Slots)] = true
	}
	for _, w := range want {
		if !got[w] {
			m.t.Errorf("no %q in %v", w, got)
		}
	}
	if more || len(got) != len(want) {
		m.t.Errorf("%d sessions, and more: %t; want %d: %v", len(got), more, len(want), got)
	}
}

func TestHostsTellHowTheirSessionsAre(t *testing.T) {
	inBubble(t, []string{"b", "a"}, func(t *testing.T, m *mesh) {
		one := m.connect("one", &hostv1.Hello{MaxOutstanding: 3}, "a", "b", "other")
		paused := m.connect("two", &hostv1.Hello{MaxOutstanding: 5}, "a")
		paused.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{}}})
		none := m.connect("none", &hostv1.Hello{}, "other")
		m.held = append(m.held, m.review("a"))
		m.wantStatus("", fmt.Sprintf("one host [b a] %d 1/3", HostServing), fmt.Sprintf("two host [a] %d 0/0", HostNoSlots),
			fmt.Sprintf("none host [] %d 0/16", HostNotGranted))
		m.wantStatus("b", fmt.Sprintf("one host [b a] %d 1/3", HostServing))
		m.wantStatus("other")

		alive(stream.SuspectAfter+stream.TickInterval, none, paused)
		m.wantStatus("b", fmt.Sprintf("one host [b a] %d 1/3", HostSilent))
		one.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{}}})
		m.wantStatus("b", fmt.Sprintf("one host [b a] %d 0/3", HostDraining)) // the call goes elsewhere

		m.pending = []string{"new"}
		m.configure("new", "b")
		m.connect("three", &hostv1.Hello{MaxOutstanding: 1}, "new")
		m.wantStatus("new", fmt.Sprintf("three host [new] %d 0/1", HostPending))
		last := m.router.HookHosts()
		if len(last) != 3 || last[0].Pending == nil || last[1].Removed || !last[2].Removed || last[2].Hook.ID.Name != "a" {
			t.Errorf("hooks %+v", last)
		}
	})
}

// TestOfferingsAreOfEachIdentity: whether a route grants the hooks does not matter.
func TestOfferingsAreOfEachIdentity(t *testing.T) {
	d := newDoor(t)
	d.t = t
	d.configureFor([]string{"host"}, "c", "a", "b", "d")
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, x := range d.router.Offerings(d.snapshot.Hooks()) {
			text := x.Peer.Name()
			for _, h := range x.Hooks {
				text += " " + h.ID.Name
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("offerings %q, want %q", got, want)
		}
	}
	join := func(name, instance string, hooks ...string) {
		t.Helper()
		if err := d.join(name, hello(instance, hooks...).GetHello()); err != nil {
			t.Fatal(err)
		}
	}
	expect()
	join("host", "1", "b", "a", "a", "unknown")
	join("host", "2", "d")
	join("stranger", "1", "d")
	join("other", "1", "unknown")
	expect("stranger d", "host a b d")
	for i := range latestOfIdentity { // the latest sessions count
		join("host", fmt.Sprint("later", i), "a")
	}
	expect("host a", "stranger d")
}

// TestHostsArePagesOfThousandsOfSessions: a listing is complete while sessions come and go, and holds none of their locks for long.
// TestAHostOffersAHookBeforeThereIsARoute has hosts of the identity "host".
func TestAHostOffersAHookBeforeThereIsARoute(t *testing.T) {
	inBubble(t, []string{"a"}, func(t *testing.T, m *mesh) {
		offers := func(name string, hosts ...string) bool {
			id := match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Name: name}
			return m.router.Offers(&match.Hook{ID: id, Route: match.Route{Stream: true, Hosts: hosts}})
		}
		if offers("other", "host") {
			t.Error("no host is connected")
		}
		one := m.connect("one", &hostv1.Hello{}, "a", "other")
		if !offers("other", "x", "host") || !offers("a", "host") || offers("b", "host") || offers("other", "x") || offers("other") {
			t.Error("a host offers a and other, for routes that name it")
		}
		mutates := match.HookID{Stage: admissionv1.Stage_STAGE_MUTATE, Name: "other"}
		if m.router.Offers(&match.Hook{ID: mutates, Route: match.Route{Stream: true, Hosts: []string{"host"}}}) {
			t.Error("it offers to validate")
		}
		one.say(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{Drain: &hostv1.HostDrain{}}})
		if offers("other", "host") {
			t.Error("it leaves")
		}
	})
}

func TestHostsArePagesOfThousandsOfSessions(t *testing.T) {
	const sessions, page = 10_000, 500
	r, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	join := func(id string) *hostSession {
		hello := &hostv1.Hello{Host: "h", Instance: id, Hooks: []*hostv1.HookOffer{{Name: "a", Stage: admissionv1.Stage_STAGE_VALIDATE}}}
		peer := identity.Named("host" + id[:1]) // no identity may have them all
		s := newSession(r, peer, hello, stream.Options{ID: id, Channel: peer})
		if err := r.addSession(s, pool.OffersOf(hello)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i := range sessions {
		join(fmt.Sprintf("%05d", (i*7919)%sessions))
	}
	stop, others := make(chan struct{}), sync.WaitGroup{}
	others.Go(func() { // a session that comes and goes
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				r.removeSession(join(fmt.Sprintf("x%d", i)))
			}
		}
	})
	seen, after := map[string]bool{}, ""
	for more := true; more; {
		var hosts []HostStatus
		hosts, more = r.Hosts(HostPage{After: after, Limit: page})
		if len(hosts) > page || more && len(hosts) < page {
			t.Fatalf("a page of %d, and more: %t", len(hosts), more)
		}
		for _, h := range hosts {
			if seen[h.Session] || h.Session <= after {
				t.Fatalf("session %s behind %s", h.Session, after)
			}
			seen[h.Session], after = true, h.Session
		}
	}
	close(stop)
	others.Wait()
	for i := range sessions {
		if !seen[fmt.Sprintf("%05d", i)] {
			t.Fatalf("session %d is not listed", i)
		}
	}
}

// BenchmarkHosts lists a page of 10,000 sessions.
func BenchmarkHosts(b *testing.B) {
	c := newCrowd(b, crowdSize, 8)
	b.ReportAllocs()
	for b.Loop() {
		c.router.Hosts(HostPage{Limit: 500})
	}
}
