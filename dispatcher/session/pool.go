package session

import (
	"container/list"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// nobody is why a call of a hook without hosts fails.
const nobody = "no host serves the hook"

// pool is the sessions that serve one hook, and the calls that wait for one of them. Its sessions change under the
// registry's lock and are read without one.
type pool struct {
	registry *Registry
	hook     atomic.Pointer[match.Hook]
	sessions atomic.Pointer[[]*Session]
	hedging  atomic.Pointer[hedging] // nil unless the hook's route asks for it

	mu      sync.Mutex // taken after the registry's and before a session's
	waiting list.List  // of *ticket, oldest first
	empty   time.Time  // since when there is no session; zero while there is one
	gone    bool       // the hook was removed

	waits atomic.Int64 // calls in waiting, for who looks without the lock
}

// newPool is a pool without sessions.
func newPool(r *Registry, now time.Time) *pool {
	p := &pool{registry: r, empty: now}
	p.sessions.Store(&[]*Session{})
	return p
}

// configure makes the pool one of a hook as it is configured now.
func (p *pool) configure(h *match.Hook) {
	p.hook.Store(h)
	switch {
	case !h.Route.Hedge.Enabled:
		p.hedging.Store(nil)
	case p.hedging.Load() == nil:
		p.hedging.Store(new(hedging))
	}
}

// pick chooses a session with room for a ticket: the less loaded of two random ones, else any; nil if there is none.
func (p *pool) pick(t *ticket, now time.Time) *Session {
	sessions := *p.sessions.Load()
	fits := func(s *Session) bool { return s.room.Load() > 0 && s != t.avoid && s.takes(t.cluster()) }
	if len(sessions) > 2 {
		i, j := two(len(sessions))
		a, b := sessions[i], sessions[j]
		if b.load.Load() < a.load.Load() {
			a, b = b, a
		}
		for _, s := range [...]*Session{a, b} {
			if fits(s) && !s.suspect(now) {
				return s
			}
		}
	}
	strict := p.mostlyAlive(now)
	var best *Session
	for _, s := range sessions {
		if fits(s) && !(strict && s.suspect(now)) && (best == nil || s.load.Load() < best.load.Load()) {
			best = s
		}
	}
	return best
}

// mostlyAlive reports whether silence may be held against a session: never against more than half of a pool at a time,
// since a pause of our own looks like silence of everybody.
func (p *pool) mostlyAlive(now time.Time) bool {
	sessions, silent := *p.sessions.Load(), 0
	for _, s := range sessions {
		if s.suspect(now) {
			silent++
		}
	}
	return 2*silent <= len(sessions)
}

// wait queues a ticket. It returns why it cannot wait.
func (p *pool) wait(t *ticket, now time.Time) *review.Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.absent(now):
		return notStarted(review.FailureUnavailable, nobody)
	case p.waiting.Len() >= MaxWaiting:
		return notStarted(review.FailureOverload, fmt.Sprintf("every replica is busy and %d calls wait already", MaxWaiting))
	}
	t.queue.Store(p)
	if !t.ended.Load() { // else it was cancelled on the way
		t.element, t.queued = p.waiting.PushBack(t), now
		p.waits.Add(1)
		p.registry.queued.Add(1)
	}
	return nil
}

// absent reports whether nobody has served the hook for longer than a restart takes. The lock is held.
func (p *pool) absent(now time.Time) bool {
	return p.gone || !p.empty.IsZero() && now.Sub(p.empty) >= AbsenceGrace
}

// drain gives waiting calls to sessions that have room, the oldest first. The lock is held all the while: a call is
// always in the queue or on a session, where whoever cancels it or frees a slot finds it.
func (p *pool) drain() {
	if p.registry.queued.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for e := p.waiting.Front(); e != nil && p.room(); {
		t := ticketIn(e)
		e = e.Next()
		if p.seat(t, now) {
			p.unqueue(t)
		}
	}
}

// room reports whether any session has room.
func (p *pool) room() bool {
	return slices.ContainsFunc(*p.sessions.Load(), func(s *Session) bool { return s.room.Load() > 0 })
}

// seat hands a call that waits to a session, if one takes it.
func (p *pool) seat(t *ticket, now time.Time) bool {
	for {
		s := p.pick(t, now)
		if s == nil && t.avoid != nil {
			t.avoid = nil // better the same session again than none
			continue
		}
		if s == nil || s.submit([]*ticket{t}) > 0 {
			return s != nil
		}
	}
}

// forget takes a ticket that was cancelled out of the queue.
func (p *pool) forget(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.queue.Load() == p && t.element != nil {
		p.unqueue(t)
	}
}

// ticketIn is the ticket in an element of the queue; nothing else is put there.
func ticketIn(e *list.Element) *ticket {
	t, _ := e.Value.(*ticket)
	return t
}

// unqueue takes a ticket out of the queue. The lock is held.
func (p *pool) unqueue(t *ticket) {
	p.waiting.Remove(t.element)
	t.element = nil
	p.waits.Add(-1)
	p.registry.queued.Add(-1)
}

// expire fails the calls whose time is over, and those that nobody has come back to serve.
func (p *pool) expire(now time.Time) {
	if p.registry.queued.Load() == 0 {
		return
	}
	p.fail(func(t *ticket) *review.Failure {
		switch {
		case p.absent(now), now.Sub(t.queued) >= AbsenceGrace && !p.serves(t.cluster()):
			return notStarted(review.FailureUnavailable, nobody)
		case now.After(t.call().Deadline):
			return notStarted(review.FailureTimeout, "every replica was busy until the deadline")
		}
		return nil
	})
}

// serves reports whether any session wants reviews of a cluster.
func (p *pool) serves(cluster string) bool {
	return slices.ContainsFunc(*p.sessions.Load(), func(s *Session) bool { return s.takes(cluster) })
}

// abandon fails everything that waits, and that still comes: the hook is gone.
func (p *pool) abandon() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.fail(func(*ticket) *review.Failure { return notStarted(review.FailureUnavailable, nobody) })
}

// fail ends the waiting calls for which why has a reason.
func (p *pool) fail(why func(*ticket) *review.Failure) {
	ended := make(map[*ticket]*review.Failure)
	p.mu.Lock()
	for e := p.waiting.Front(); e != nil; {
		t := ticketIn(e)
		e = e.Next()
		if f := why(t); f != nil {
			ended[t] = f
			p.unqueue(t)
		}
	}
	p.mu.Unlock()
	for t, f := range ended {
		t.finish(review.Result{Failure: f})
	}
}

// set replaces the sessions. The registry's lock is held, as for add and remove.
func (p *pool) set(sessions []*Session, now time.Time) {
	p.sessions.Store(&sessions)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(sessions) > 0:
		p.empty = time.Time{}
	case p.empty.IsZero():
		p.empty = now
	}
}

// add lets a session serve the hook.
func (p *pool) add(s *Session) {
	p.set(append(slices.Clone(*p.sessions.Load()), s), time.Time{})
}

// remove takes a session away.
func (p *pool) remove(s *Session, now time.Time) {
	p.set(slices.DeleteFunc(slices.Clone(*p.sessions.Load()), func(o *Session) bool { return o == s }), now)
}
