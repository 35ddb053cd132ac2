package pool

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// noHost is why a call of a hook without hosts fails.
const noHost = "no host serves the hook: start one, or find in its log why it is not let in"

// Pool is the replicas that serve one hook, and the calls that wait for a replica. Members change under the owner's
// lock and are read without one.
type Pool struct {
	hook    atomic.Pointer[match.Hook]
	members members
	health  atomic.Pointer[health]
	hedging atomic.Pointer[hedge.Hook]  // nil unless the hook's route asks for it
	answer  atomic.Pointer[ProbeAnswer] // of the host that counts; nil before one has answered the hook's probe

	mu         sync.Mutex               // guards the queue
	waiting    fairqueue.Queue[*ticket] // by cluster
	absentFrom time.Time                // until when a session is waited for; zero while one takes calls
	gone       bool                     // the hook was removed

	waits    atomic.Int64  // calls in waiting, for who looks without the lock
	allWaits *atomic.Int64 // likewise, of all pools
	open     atomic.Int64  // members that take new calls once they have a free slot; it changes under the owner's lock
}

// New makes a pool without replicas; its hook comes by [Pool.Configure]. allWaits counts the calls that wait, in all pools of the owner.
func New(allWaits *atomic.Int64, now time.Time) *Pool {
	return &Pool{allWaits: allWaits, absentFrom: now.Add(AbsenceGrace)}
}

// Configure gives the pool the hook as the configuration has it now. The owner calls it, one call at a time.
func (p *Pool) Configure(h *match.Hook) {
	p.hook.Store(h)
	switch {
	case !h.Route.Hedge.Enabled:
		p.hedging.Store(nil)
	case p.hedging.Load() == nil:
		p.hedging.Store(new(hedge.Hook))
	}
}

// pick chooses a session with a free slot for a ticket; nil if there is none.
func (p *Pool) pick(t *ticket, now time.Time) *Replica {
	if x := p.members.pick(t, now, rand.IntN); x != nil {
		return x.replica
	}
	return nil
}

// mostlyAlive reports whether silence may be held against a session. It is known once for every moment that is asked
// about: all sessions are looked after at the same one.
func (p *Pool) mostlyAlive(now time.Time) bool {
	if h := p.health.Load(); h != nil && h.at.Equal(now) {
		return h.mostlyAlive
	}
	h := &health{now, p.members.mostlyAlive(now)}
	p.health.Store(h)
	return h.mostlyAlive
}

// health is how the sessions of a pool were at a moment.
type health struct {
	at          time.Time
	mostlyAlive bool
}

// enqueue queues a ticket. It reports whether no other ticket of its cluster waits, or why it cannot wait.
func (p *Pool) enqueue(t *ticket, now time.Time) (first bool, why *review.Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.absent(now):
		return false, review.NotStarted(review.FailureUnavailable, noHost)
	case p.full(t.cluster()):
		return false, review.NotStarted(review.FailureOverload, fmt.Sprintf(
			"every replica is busy, and %d calls wait already, too many of them of the same cluster", p.waiting.Len()))
	}
	t.queue.Store(p)
	if t.ended.Load() { // it was cancelled on the way
		return false, nil
	}
	t.queued = now
	p.addWaiting(+1)
	t.waiting = p.waiting.Push(t.cluster(), t)
	return p.waiting.LenOf(t.cluster()) == 1, nil
}

// full reports whether the queue takes no more calls of a cluster: as many of it wait as there is room left. One cluster that
// floods gets half of [MaxWaiting], two get a third each, and as much is left for the others. The lock is held.
func (p *Pool) full(cluster string) bool {
	return p.waiting.LenOf(cluster) >= MaxWaiting-p.waiting.Len()
}

// absent reports whether no session has taken calls of the hook for longer than a host takes to come. The lock is held.
func (p *Pool) absent(now time.Time) bool {
	return p.gone || !p.absentFrom.IsZero() && !now.Before(p.absentFrom)
}

// ServeWaiting submits waiting calls to sessions with free slots.
func (p *Pool) ServeWaiting(now time.Time) {
	p.serveWaiting(p.hasFreeSlot, func(t *ticket) bool { return p.submitWaiting(t, now) })
}

// drainTo submits waiting calls to one session.
func (p *Pool) drainTo(s *Replica) {
	p.serveWaiting(func() bool { return s.FreeSlots() > 0 }, func(t *ticket) bool {
		return s.hasSlotFor(t.cluster()) && stream.Submit(&s.Session, []*ticket{t}) > 0
	})
}

// drainLine gives the waiting calls of a cluster to sessions with free slots.
func (p *Pool) drainLine(cluster string, now time.Time) {
	p.serveQueue(func() { p.waiting.ServeTenant(cluster, func(t *ticket) bool { return p.submitWaiting(t, now) }) })
}

// serveWaiting submits waiting calls in the order of the queue, while there are free slots.
func (p *Pool) serveWaiting(free func() bool, submit func(t *ticket) bool) {
	p.serveQueue(func() { p.waiting.Serve(free, submit) })
}

// serveQueue lets calls out of the queue. The lock is held all the while: a call is always in the queue or on a session,
// where a cancel, or a slot that becomes free, finds it.
func (p *Pool) serveQueue(serve func()) {
	if p.waits.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.waiting.Len()
	serve()
	p.addWaiting(p.waiting.Len() - before)
}

// addWaiting counts the change of the queue. The lock is held.
func (p *Pool) addWaiting(more int) {
	p.waits.Add(int64(more))
	p.allWaits.Add(int64(more))
}

func (p *Pool) hasFreeSlot() bool {
	return p.members.some(func(s *Replica) bool { return s.FreeSlots() > 0 })
}

// submitWaiting submits a waiting call to a session, if one takes it.
func (p *Pool) submitWaiting(t *ticket, now time.Time) bool {
	for {
		s := p.pick(t, now)
		if s == nil || stream.Submit(&s.Session, []*ticket{t}) > 0 {
			return s != nil
		}
	}
}

// dequeue takes a ticket that was cancelled out of the queue.
func (p *Pool) dequeue(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.queue.Load() == p {
		p.dequeueLocked(t)
	}
}

// dequeueLocked takes a ticket out of the queue, if it is there. The lock is held.
func (p *Pool) dequeueLocked(t *ticket) {
	if p.waiting.Remove(t.waiting) {
		p.addWaiting(-1)
	}
}

// Expire fails the calls that are past their deadline, and those that no host will serve.
func (p *Pool) Expire(now time.Time) {
	if p.waits.Load() == 0 {
		return
	}
	p.failWaiting(now, func(t *ticket) *review.Failure {
		switch {
		case p.absent(now), now.Sub(t.queued) >= AbsenceGrace && p.open.Load() > 0 && !p.serves(t.cluster()):
			return review.NotStarted(review.FailureUnavailable, noHost)
		case now.After(t.call.Deadline):
			return review.NotStarted(review.FailureTimeout, "every replica was busy until the deadline")
		}
		return nil
	})
}

// serves reports whether any session that takes calls wants reviews of a cluster.
func (p *Pool) serves(cluster string) bool {
	return p.members.some(func(s *Replica) bool { return s.Open() && s.Takes(cluster) })
}

// Abandon fails all calls, waiting and new: the hook is gone.
func (p *Pool) Abandon() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.failWaiting(time.Now(), func(*ticket) *review.Failure { return review.NotStarted(review.FailureUnavailable, noHost) })
}

func (p *Pool) failWaiting(now time.Time, why func(*ticket) *review.Failure) {
	ended := make(map[*ticket]*review.Failure)
	p.mu.Lock()
	for e := range p.waiting.All() {
		if f := why(e.Value); f != nil {
			ended[e.Value] = f
			p.dequeueLocked(e.Value)
		}
	}
	p.mu.Unlock()
	for t, f := range ended {
		t.finish(review.Result{Failure: f, Timing: review.Timing{Queued: now.Sub(t.begun)}})
	}
}

// addMember lets a replica serve the hook. The owner's lock is held, as for removeMember and noteOpen.
func (p *Pool) addMember(x *Member) {
	x.joined = true
	p.members.insert(x)
	p.noteOpen(x, x.replica.Open(), time.Time{})
}

// removeMember takes a replica away. Where it was the last open one, the hook is absent from a moment on.
func (p *Pool) removeMember(x *Member, absentFrom time.Time) {
	p.noteOpen(x, false, absentFrom)
	p.members.delete(x)
}

// noteOpen records whether a member takes new calls. Where the last one does not any more, the hook is absent from a moment on: until
// then calls wait for another host.
func (p *Pool) noteOpen(x *Member, open bool, absentFrom time.Time) {
	switch {
	case open == x.open:
		return
	case open:
		if p.open.Add(1) == 1 {
			p.setAbsentFrom(time.Time{})
		}
	case p.open.Add(-1) == 0:
		p.setAbsentFrom(absentFrom)
	}
	x.open = open
}

func (p *Pool) setAbsentFrom(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absentFrom = t
}

// Hook is the hook, as the configuration has it now.
func (p *Pool) Hook() *match.Hook { return p.hook.Load() }

// OpenMembers is how many members take new calls once they have a free slot.
func (p *Pool) OpenMembers() int { return int(p.open.Load()) }

// Size is how many members the pool has.
func (p *Pool) Size() int { return p.members.len() }

// Slots is how many calls the members take that take new ones. It may be old at once: sessions change their slots meanwhile.
func (p *Pool) Slots() (n int) {
	for i := range p.members.len() {
		if x := p.members.at(i); x != nil && x.replica.Open() {
			n += int(x.replica.UsedSlots() + x.replica.FreeSlots())
		}
	}
	return n
}

// Unserved reports whether no member has taken calls for longer than a host takes to come back: they fail at once.
func (p *Pool) Unserved(now time.Time) bool {
	if p.open.Load() > 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.absent(now)
}
