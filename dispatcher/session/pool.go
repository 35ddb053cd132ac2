package session

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// errNobody is why a call of a hook without hosts fails.
var errNobody = errors.New("no host serves the hook")

// pool is the sessions that serve one hook, and the calls that wait for one of them. Its sessions change under the
// registry's lock and are read without one.
type pool struct {
	registry *Registry
	hook     atomic.Pointer[match.Hook]
	sessions atomic.Pointer[[]*Session]

	mu      sync.Mutex // taken after the registry's and before a session's
	waiting list.List  // of *ticket, oldest first
	empty   time.Time  // since when there is no session; zero while there is one
}

// newPool is a pool without sessions.
func newPool(r *Registry, now time.Time) *pool {
	p := &pool{registry: r, empty: now}
	p.sessions.Store(&[]*Session{})
	return p
}

// pick chooses a session with room for a ticket: the less loaded of two random ones, else any; nil if there is none.
func (p *pool) pick(t *ticket, now time.Time) *Session {
	sessions := *p.sessions.Load()
	strict := p.mostlyAlive(sessions, now)
	fits := func(s *Session) bool {
		return s != t.avoid && s.takes(t.cluster()) && !(strict && s.suspect(now)) && s.room.Load() > 0
	}
	if len(sessions) > 2 {
		i, j := two(len(sessions))
		a, b := sessions[i], sessions[j]
		if b.load.Load() < a.load.Load() {
			a, b = b, a
		}
		for _, s := range [...]*Session{a, b} {
			if fits(s) {
				return s
			}
		}
	}
	var best *Session
	for _, s := range sessions {
		if fits(s) && (best == nil || s.load.Load() < best.load.Load()) {
			best = s
		}
	}
	return best
}

// mostlyAlive reports whether silence may keep sessions from being picked: never more than half of a pool at a time, since
// a pause of our own looks like silence of everybody.
func (p *pool) mostlyAlive(sessions []*Session, now time.Time) bool {
	silent := 0
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
		return &review.Failure{Kind: review.FailureUnavailable, Err: errNobody, NotStarted: true}
	case p.waiting.Len() >= MaxWaiting:
		return &review.Failure{
			Kind: review.FailureOverload, NotStarted: true,
			Err: fmt.Errorf("every replica is busy and %d calls wait already", MaxWaiting),
		}
	}
	p.enqueue(t, p.waiting.PushBack)
	return nil
}

// absent reports whether nobody has served the hook for longer than a restart takes. The lock is held.
func (p *pool) absent(now time.Time) bool {
	return !p.empty.IsZero() && now.Sub(p.empty) >= AbsenceGrace
}

// drain gives waiting calls to sessions that have room.
func (p *pool) drain() {
	for {
		t, s := p.next(time.Now())
		if t == nil {
			return
		}
		if s.submit([]*ticket{t}) == 0 { // the slot went to somebody else
			p.requeue(t)
			return
		}
	}
}

// next takes the oldest waiting ticket that a session has room for, and the session.
func (p *pool) next(now time.Time) (*ticket, *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.waiting.Front(); e != nil; e = e.Next() {
		t := ticketIn(e)
		s := p.pick(t, now)
		if s == nil && t.avoid != nil {
			t.avoid = nil // better the same session again than none
			s = p.pick(t, now)
		}
		if s != nil {
			p.unqueue(t)
			return t, s
		}
	}
	return nil, nil
}

// requeue puts a ticket back where it was: it has waited longest.
func (p *pool) requeue(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueue(t, p.waiting.PushFront)
}

// enqueue puts a ticket into the queue, unless it was cancelled on the way. The lock is held.
func (p *pool) enqueue(t *ticket, push func(any) *list.Element) {
	t.queue.Store(p)
	if t.ended.Load() {
		return
	}
	t.element = push(t)
	p.registry.queued.Add(1)
}

// forget takes a ticket that was cancelled out of the queue.
func (p *pool) forget(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.element != nil {
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
	p.registry.queued.Add(-1)
}

// expire fails the calls whose time is over, and all of them if nobody has come back.
func (p *pool) expire(now time.Time) {
	if p.registry.queued.Load() == 0 {
		return
	}
	p.fail(func(t *ticket) bool {
		return p.absent(now) || now.After(t.call().Deadline)
	})
}

// abandon fails everything that waits: the hook is gone.
func (p *pool) abandon() { p.fail(func(*ticket) bool { return true }) }

// fail ends the waiting calls that over says are over.
func (p *pool) fail(over func(*ticket) bool) {
	var ended []*ticket
	p.mu.Lock()
	for e := p.waiting.Front(); e != nil; {
		next := e.Next()
		if t := ticketIn(e); over(t) {
			ended = append(ended, t)
			p.unqueue(t)
		}
		e = next
	}
	p.mu.Unlock()
	for _, t := range ended {
		t.finish(review.Result{Failure: &review.Failure{
			Kind: review.FailureUnavailable, Err: errNobody, NotStarted: true,
		}})
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
