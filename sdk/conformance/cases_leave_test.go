package conformance_test

import (
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// leaveCases are about drains of either side.
func leaveCases() []testCase {
	drain := func(leave func(p *program)) func(s *stage) {
		return func(s *stage) {
			p, at := s.host(settings{})
			var running []uint64
			for range 3 {
				running = append(running, at.post(pod(`{"hold": "x"}`), call(validating)))
			}
			p.happened("called", "", 3)
			leave(p)
			equal(s, "last_started_call_id", at.draining().GetLastStartedCallId(), running[2])
			late := at.post(pod(`{}`), call(validating), call(mutating))
			refused(s, at.verdict(late, 0), "draining")
			refused(s, at.verdict(late, 1), "draining")
			at.ping()
			at.lasts()
			p.release("x")
			for _, id := range running {
				allowed(s, at.verdict(id, 0))
			}
			at.closedCleanly()
			p.leftCleanly()
			equal(s, "number of handlers called", count(p.events.all(), "called", ""), 3)
		}
	}
	return []testCase{{
		name:    "drain",
		asks:    "A host that stops says which calls it finishes, refuses those that still come, finishes, and closes its side.",
		why:     "each rollout fails writes",
		section: "drain-of-the-host",
		play:    drain((*program).drain),
	}, {
		name:    "drain-by-sigterm",
		asks:    "A host program drains on SIGTERM.",
		why:     "a deleted Pod fails the writes that it was asked about",
		section: "drain-of-the-host",
		play:    drain(func(p *program) { p.signal(syscall.SIGTERM) }),
	}, {
		name:    "drain-idle",
		asks:    "A host without calls leaves at once, and its last_started_call_id is that of the last call it has started.",
		why:     "rollouts take as long as the drain timeout",
		section: "drain-of-the-host",
		play: func(s *stage) {
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			p := s.start(settings{Dispatchers: []string{one.addr, two.addr}, DrainTimeoutMS: 3_600_000})
			first, second := one.accept(), two.accept()
			first.works()
			refused(s, first.ask(nil, call(validating)), "review without a request") // This one was not started.
			second.ping()
			p.drain()
			equal(s, "last_started_call_id", first.draining().GetLastStartedCallId(), 1)
			equal(s, "last_started_call_id", second.draining().GetLastStartedCallId(), 0)
			first.closedCleanly()
			second.closedCleanly()
			p.leftCleanly()
		},
	}, {
		name:    "drain-timeout",
		asks:    "A host cuts off the calls that outlast its drain timeout, and ends with an error.",
		why:     "one stuck handler keeps a Pod until it is killed, or nobody learns that calls were cut off",
		section: "drain-of-the-host",
		play: func(s *stage) {
			p, at := s.host(settings{DrainTimeoutMS: 300})
			at.post(pod(`{"hold": "x"}`), call(validating))
			p.happened("called", "", 1)
			p.drain()
			at.draining()
			if code, text := p.left(); code == 0 || text == "" {
				s.Errorf("the host ended with code %d and error %q, want that it says what it cut off", code, text)
			}
			equal(s, "cancelled", p.returned(validating).Cancelled, true)
		},
	}, {
		name:    "drain-unanswered",
		asks:    "A host that has closed its side waits 2 s for the dispatcher to end the stream, and no longer.",
		why:     "a dispatcher that hangs keeps the Pod",
		section: "drain-of-the-host",
		play: func(s *stage) {
			d := s.dispatcher(scriptedOptions{endless: true})
			p := s.start(settings{Dispatchers: []string{d.addr}})
			at := d.accept()
			p.drain()
			at.closedCleanly()
			p.leftCleanly()
		},
	}, {
		name:    "drain-with-chunks",
		asks:    "A host that drains answers a review in chunks with an id below last_started_call_id.",
		why:     "the call waits for its deadline, since the mesh believes that it was started",
		section: "drain-of-the-host",
		play: func(s *stage) {
			p, at := s.host(settings{})
			large := padded(s, at.newReview(pod(`{}`), call(validating), call(mutating)), 200_000)
			frames := chunksOf(s, large, 64<<10)
			at.send(frames[0])
			at.works()
			p.drain()
			equal(s, "last_started_call_id", at.draining().GetLastStartedCallId(), large.GetCallId()+1)
			at.ping()
			at.lasts()
			at.sendAll(frames[1:])
			refused(s, at.verdict(large.GetCallId(), 0), "draining")
			refused(s, at.verdict(large.GetCallId(), 1), "draining")
			at.closedCleanly()
			p.leftCleanly()
		},
	}, {
		name:    "drain-of-the-dispatcher",
		asks:    "On DispatcherDrain a host finishes the calls in flight, keeps its other sessions, and dials again at the end.",
		why:     "each rollout of the mesh fails writes, or loses hosts",
		section: "drain-of-the-dispatcher",
		play: func(s *stage) {
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			p := s.start(settings{Dispatchers: []string{one.addr, two.addr}})
			first, second := one.accept(), two.accept()
			first.creditBecomes(32)
			id := first.post(pod(`{"hold": "x"}`), call(validating))
			p.happened("called", "", 1)
			first.drainHost(time.Minute)
			second.creditBecomes(64) // The session that gets no new calls has no share.
			second.works()
			first.lasts()
			p.release("x")
			allowed(s, first.verdict(id, 0))
			first.finish(codes.OK, "")
			again := one.accept()
			again.works()
			second.lasts()
			second.works()
		},
	}, {
		name:    "replaced",
		asks:    "A host whose session is replaced finishes the calls in flight on it, and goes on with another one.",
		why:     "a host that was dialled twice after a break fails calls, or stays away",
		section: "drain-of-the-dispatcher",
		play: func(s *stage) {
			d, p, at := s.hostOf(settings{})
			id := at.post(pod(`{"hold": "x"}`), call(validating))
			p.happened("called", "", 1)
			at.drainHost(10 * time.Second)
			at.ping()
			p.release("x")
			allowed(s, at.verdict(id, 0))
			at.finish(codes.Aborted, "a newer session of the same instance has taken over")
			d.accept().works()
		},
	}, {
		name:    "grace-is-over",
		asks:    "A host gives a draining session up 2 s after grace_ms, if the dispatcher does not end it.",
		why:     "a dispatcher that hangs while it drains keeps the host away",
		section: "drain-of-the-dispatcher",
		play: func(s *stage) {
			d, p, at := s.hostOf(settings{})
			at.post(pod(`{"hold": "x"}`), call(validating))
			p.happened("called", "", 1)
			told := time.Now()
			at.drainHost(100 * time.Millisecond)
			s.check(nonNil(at.over()))
			if took := time.Since(told); took < 100*time.Millisecond {
				s.Errorf("the host left after %s, want the grace of 100 ms at least", took)
			}
			equal(s, "cancelled", p.returned(validating).Cancelled, true)
			d.accept().works()
		},
	}}
}

// fleetCases are about several dispatchers.
func fleetCases() []testCase {
	named := func(name func(at *session, peers []*hostv1.Peer)) func(s *stage) {
		return func(s *stage) {
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			gone := s.dispatcher(scriptedOptions{})
			gone.kill()
			peers := []*hostv1.Peer{{DispatcherId: "at " + two.addr, Addresses: []string{gone.addr, two.addr}}}
			s.start(settings{Dispatchers: []string{one.addr}})
			first := one.next()
			name(first, peers)
			second := two.accept()
			second.works()
			equal(s, "instance at the peer", second.hello.GetInstance(), first.hello.GetInstance())
			first.lasts()
			first.works()
		}
	}
	welcome := func(w *hostv1.Welcome) { w.DispatcherId = "one" }
	return []testCase{{
		name:    "peers-of-welcome",
		asks:    "A host dials each peer that Welcome names, by the first of its addresses that works.",
		why:     "dispatchers that no name resolves to have no hosts",
		section: "several-dispatchers",
		play: named(func(at *session, peers []*hostv1.Peer) {
			at.welcome(welcome, func(w *hostv1.Welcome) { w.Peers = peers })
		}),
	}, {
		name:    "peers-of-a-later-welcome",
		asks:    "A later Welcome replaces the peers, and leaves the states of hooks as they are.",
		why:     "a dispatcher that joins the mesh has no hosts",
		section: "several-dispatchers",
		play: named(func(at *session, peers []*hostv1.Peer) {
			at.welcome(welcome)
			at.works()
			at.welcome(welcome, func(w *hostv1.Welcome) { w.Peers, w.Hooks = peers, nil })
		}),
	}, {
		name:    "peers-of-a-drain",
		asks:    "A host dials the peers that DispatcherDrain names.",
		why:     "the last host of a dispatcher that leaves is lost until a name resolves anew",
		section: "several-dispatchers",
		play: named(func(at *session, peers []*hostv1.Peer) {
			at.welcome(welcome)
			at.drainHost(time.Minute, peers...)
		}),
	}, {
		name:    "one-session-for-each-dispatcher",
		asks:    "A host that reaches one dispatcher in two ways keeps the younger session, and drains the older.",
		why:     "the dispatcher sends to one replica twice what it takes",
		section: "several-dispatchers",
		play: func(s *stage) {
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			same := func(w *hostv1.Welcome) { w.DispatcherId = "the same" }
			p := s.start(settings{Dispatchers: []string{one.addr, two.addr}})
			older, younger := one.next(), two.next()
			older.welcome(same)
			older.works()
			held := older.post(pod(`{"hold": "x"}`), call(mutating))
			p.happened("called", mutating, 1)
			younger.welcome(same)
			older.draining()
			p.release("x")
			allowed(s, older.verdict(held, 0))
			older.closedCleanly()
			younger.creditBecomes(64)
			younger.works()
			younger.lasts()
		},
	}, {
		name:    "peer-is-known-already",
		asks:    "A host opens no second session to a dispatcher that a peer names.",
		why:     "dispatchers that name each other are dialled in turns for ever",
		section: "several-dispatchers",
		play: func(s *stage) {
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			s.start(settings{Dispatchers: []string{one.addr, two.addr}})
			peer := func(d *scripted) *hostv1.Peer {
				return &hostv1.Peer{DispatcherId: "at " + d.addr, Addresses: []string{strings.Replace(d.addr, "127.0.0.1", "localhost", 1)}}
			}
			first := one.accept(func(w *hostv1.Welcome) { w.Peers = []*hostv1.Peer{peer(two)} })
			second := two.accept(func(w *hostv1.Welcome) { w.Peers = []*hostv1.Peer{peer(one)} })
			s.pass(1500 * time.Millisecond) // A host may wait a second before it dials a peer.
			first.works()
			second.works()
			equal(s, "number of streams", len(one.dials.all())+len(two.dials.all()), 2)
		},
	}, {
		name:    "one-of-two-dispatchers-killed",
		asks:    "The loss of one dispatcher does not touch the sessions with others.",
		why:     "one dispatcher takes down the whole mesh",
		section: "several-dispatchers",
		play: func(s *stage) {
			one, two := s.dispatcher(scriptedOptions{}), s.dispatcher(scriptedOptions{})
			p := s.start(settings{Dispatchers: []string{one.addr, two.addr}})
			first, second := one.accept(), two.accept()
			first.post(pod(`{"hold": "x"}`), call(mutating))
			held := second.post(pod(`{"hold": "x"}`), call(validating))
			p.happened("called", "", 2)
			one.kill()
			equal(s, "cancelled", p.returned(mutating).Cancelled, true)
			second.ping()
			second.none(held, 0)
			p.release("x")
			allowed(s, second.verdict(held, 0))
			back := s.dispatcher(scriptedOptions{addr: one.addr})
			back.accept().works()
			second.lasts()
		},
	}}
}
