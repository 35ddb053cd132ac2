package conformance_test

import (
	"slices"
	"syscall"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// meshCases are about a host and the real dispatcher, over TLS.
func meshCases() []testCase {
	return []testCase{{
		name:    "mesh-review",
		asks:    "The real dispatcher puts the hooks of a host in rotation, and gets its verdicts, patches and warnings.",
		why:     "the host serves nothing",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: usualHooks()})
			p := t.serve(settings{}, n)
			p.happened("ready", "", 1)
			a := n.review(mutateStage, pod(`{"labels": {"team": "a"}, "warnings": ["mind"], "audit": {"k": "v"}}`))
			if !a.Response.GetAllowed() || !slices.Contains(a.Response.GetWarnings(), "mind") {
				s.Errorf("the answer is %v", a.Response)
			}
			object, _ := decoded(s, a.Object).(map[string]any)
			metadata, _ := object["metadata"].(map[string]any)
			labels, _ := metadata["labels"].(map[string]any)
			equal(s, "label", labels["team"], any("a"))
			a = n.review(validateStage, pod(`{"deny": {"message": "no", "code": 422}}`))
			if a.Response.GetAllowed() || a.Failed || a.Response.GetStatus().GetCode() != 422 {
				s.Errorf("the answer is %v", a.Response)
			}
			a = n.review(validateStage, pod(`{"error": "the registry is down"}`))
			equal(s, "the review has failed", a.Failed, true)
		},
	}, {
		name:    "mesh-readiness",
		asks:    "The real dispatcher probes a new hook, and asks it once the host says that it is ready.",
		why:     "a new policy fails writes while its cache is empty",
		section: "hook-states-and-readiness",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: usualHooks()[:1]})
			p := t.serve(settings{Unready: []string{mutating}}, n)
			s.until("a verdict of the first hook", func() bool { return n.allows() })
			n.configure([]meshHook{{name: validating}, {name: mutating, mutates: true, pending: true}})
			s.until("the host's reason", func() bool { return n.registry.Pending()[0].Message == "not ready" })
			equal(s, "number of ready events", count(p.events.all(), "ready", ""), 0)
			p.do(map[string]string{"do": "ready", "hook": mutating})
			select {
			case <-n.registry.Readied():
			case <-time.After(*patience):
				s.Fatal("the host does not say that the hook is ready")
			}
			n.configure(usualHooks()) // as the owner of a configuration does then
			p.happened("ready", "", 1)
			a := n.review(mutateStage, pod(`{"labels": {"a": "b"}}`))
			equal(s, "the hook has changed the object", string(a.Object) != string(pod(`{"labels": {"a": "b"}}`).GetObject().GetRaw()), true)
		},
	}, {
		name:    "mesh-grant",
		asks:    "A host without a grant stays connected, and serves when a HookRoute grants it the hook.",
		why:     "the order in which routes and hosts are deployed matters",
		section: "hook-states-and-readiness",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: []meshHook{{name: validating, grantedTo: "spiffe://conformance.example/other"}}})
			p := t.serve(settings{Validate: []string{validating}, Mutate: []string{}}, n)
			s.until("a session", func() bool { return n.sessions() == 1 })
			equal(s, "the review is allowed", n.allows(), false)
			equal(s, "number of ready events", count(p.events.all(), "ready", ""), 0)
			n.configure([]meshHook{{name: validating}})
			p.happened("ready", "", 1)
			equal(s, "the review is allowed", n.allows(), true)
		},
	}, {
		name:    "mesh-timeout",
		asks:    "A call that the real dispatcher gives up frees its slot when the host has answered the Cancel.",
		why:     "slow objects take the replica out of service",
		section: "cancel",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: []meshHook{{name: validating, time: time.Second}, {name: mutating, mutates: true}}})
			p := t.serve(settings{MaxOutstanding: 1}, n)
			p.happened("ready", "", 1)
			for given := range 3 {
				// On a busy machine the time of a call may be over before its handler is called.
				s.until("a call that is given up", func() bool {
					a := n.review(validateStage, pod(`{"hold": "never"}`))
					equal(s, "the review has failed", a.Failed, true)
					return count(p.events.all(), "called", validating) > given
				})
				s.until("a verdict of the other hook, which needs the slot", func() bool {
					a, err := n.tryReview(mutateStage, pod(`{}`))
					return err == nil && a.Response.GetAllowed()
				})
			}
			p.drain()
			p.leftCleanly()
			for _, e := range p.events.all() {
				if e.Event == "returned" && e.Hook == validating {
					equal(s, "cancelled", e.Cancelled, true)
				}
			}
			equal(s, "number of held calls that have returned", count(p.events.all(), "returned", validating), count(p.events.all(), "called", validating))
		},
	}, {
		name:    "mesh-too-large",
		asks:    "The real dispatcher does not send a review that is larger than the host takes, and the session lasts.",
		why:     "one large object ends the session, and with it all calls in flight",
		section: "limits",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: usualHooks()[:1]})
			p := t.serve(settings{Validate: []string{validating}, Mutate: []string{}, MaxFrameBytes: 400_000}, n)
			p.happened("ready", "", 1)
			large := pod(`{"echo": true}`)
			large.Object.Raw = append(large.Object.Raw, slices.Repeat([]byte(" "), 350_000)...)
			equal(s, "a large review is allowed", n.review(validateStage, large).Response.GetAllowed(), true)
			large.Object.Raw = append(large.Object.Raw, slices.Repeat([]byte(" "), 50_000)...)
			a := n.review(validateStage, large)
			equal(s, "a review that is too large has failed", a.Failed, true)
			equal(s, "a small review is allowed", n.allows(), true)
			p.happened("returned", "", 2)
		},
	}, {
		name:    "mesh-speculation",
		asks:    "The real dispatcher asks a hook that agrees to speculation together with the ones before it.",
		why:     "mutating hooks wait for each other",
		section: "reviews-and-verdicts",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: []meshHook{
				{name: "first.example.com", mutates: true}, {name: "second.example.com", mutates: true, speculate: true},
			}})
			p := t.serve(settings{
				Validate: []string{}, Mutate: []string{"first.example.com", "second.example.com"}, Speculate: []string{"second.example.com"},
			}, n)
			p.happened("ready", "", 1)
			const before = 200 // The dispatcher learns that the first hook changes nothing.
			for range before {
				n.review(mutateStage, pod(`{}`))
			}
			answers := make(chan review.Answer, 1)
			go func() {
				a, _ := n.tryReview(mutateStage, pod(`{"hold": "x"}`))
				answers <- a
			}()
			p.happened("called", "first.example.com", before+1)
			p.happened("called", "second.example.com", before+1) // before the first one has answered
			p.release("x")
			equal(s, "the review is allowed", (<-answers).Response.GetAllowed(), true)
		},
	}, {
		name:    "mesh-drain-under-load",
		asks:    "No review fails when one of two hosts drains under load.",
		why:     "each rollout of a policy fails writes",
		section: "drain-of-the-host",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: usualHooks()})
			stays, leaves := t.serve(settings{}, n), t.serve(settings{}, n)
			stays.happened("ready", "", 1)
			leaves.happened("ready", "", 1)
			l := n.load(8, `{"waitMs": 2}`)
			leaves.happened("returned", "", 20)
			l.more(s, 50)
			leaves.signal(syscall.SIGTERM)
			leaves.leftCleanly()
			l.more(s, 50)
			l.stop(s)
		},
	}, {
		name:    "mesh-host-killed",
		asks:    "Calls of a host that is killed go to another one, and a host that starts again serves.",
		why:     "a lost node fails writes",
		section: "how-a-session-ends",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: usualHooks()})
			stays, dies := t.serve(settings{}, n), t.serve(settings{}, n)
			stays.happened("ready", "", 1)
			dies.happened("ready", "", 1)
			l := n.load(8, `{"waitMs": 2}`)
			dies.happened("returned", "", 20)
			dies.signal(syscall.SIGKILL)
			l.more(s, 100)
			back := t.serve(settings{}, n)
			back.happened("returned", "", 5)
			l.stop(s)
		},
	}, {
		name:    "mesh-dispatchers-rolled",
		asks:    "A host serves two real dispatchers, finishes its calls when one drains, and is back when that one is.",
		why:     "an upgrade of the mesh fails writes, or loses hosts",
		section: "drain-of-the-dispatcher",
		play: func(s *stage) {
			t := s.trust()
			one, two := t.node(nodeOptions{hooks: usualHooks(), id: "one"}), t.node(nodeOptions{hooks: usualHooks(), id: "two"})
			p := t.serve(settings{}, one, two)
			p.happened("ready", "", 1)
			for _, n := range []*node{one, two} {
				s.until("a verdict of "+n.addr, func() bool { return n.allows() })
			}
			l := two.load(4, `{"waitMs": 2}`)
			answers := make(chan review.Answer, 1)
			go func() {
				a, _ := one.tryReview(mutateStage, pod(`{"hold": "x"}`))
				answers <- a
			}()
			p.happened("called", mutating, 1)
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				one.registry.Drain(s.Context(), time.Minute)
			}()
			l.more(s, 50)
			p.release("x")
			equal(s, "the review in flight is allowed", (<-answers).Response.GetAllowed(), true)
			<-drained
			one.stop()
			l.more(s, 50)
			again := t.node(nodeOptions{hooks: usualHooks(), id: "one again", addr: one.addr})
			s.until("a verdict of "+again.addr, func() bool { return again.allows() })
			l.more(s, 50)
			l.stop(s)
		},
	}, {
		name:    "mesh-half-open-link",
		asks:    "A host and a real dispatcher find each other again behind a link that passed nothing any more.",
		why:     "the instance that comes back is refused, or asked on the dead session",
		section: "signs-of-life",
		play: func(s *stage) {
			t := s.trust()
			n := t.node(nodeOptions{hooks: usualHooks()})
			link := s.proxy(n.addr)
			p := t.serveAt(settings{}, link.addr)
			p.happened("ready", "", 1)
			equal(s, "the review is allowed", n.allows(), true)
			link.freeze()
			s.until("a verdict again", func() bool { return n.allows() })
		},
	}}
}

// serve starts a host of real dispatchers.
func (t *trust) serve(o settings, nodes ...*node) *program {
	t.Helper()
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.addr)
	}
	return t.serveAt(o, addresses...)
}

func (t *trust) serveAt(o settings, addresses ...string) *program {
	t.Helper()
	o.Dispatchers, o.ServerName, o.TLS = addresses, serverName, t.filesIn(t.TempDir(), hostIdentity)
	return t.start(o)
}

// allows reports whether a review is allowed.
func (n *node) allows() bool {
	a, err := n.tryReview(validateStage, pod(`{}`))
	return err == nil && a.Response.GetAllowed()
}
