package pool

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// place hands tickets of one call set to sessions: all tickets that one session can serve go there as one frame. A ticket without a
// free slot waits.
func place(todo []*ticket, now time.Time) {
	for len(todo) > 0 {
		t := todo[0]
		p := t.pool
		if p == nil {
			t.finish(review.Result{Failure: review.NotStarted(review.FailureUnavailable, "no route grants the hook to a host")})
			todo = todo[1:]
			continue
		}
		var s *Replica
		if p.waits.Load() == 0 { // who waits comes first
			s = p.pick(t, now)
		}
		if s == nil {
			waitForSlot(p, t)
			todo = todo[1:]
			continue
		}
		n := stream.Submit(&s.Session, todo[:groupByHost(todo, s)])
		if n == 0 { // another call has just taken the last slot
			waitForSlot(p, t)
			todo = todo[1:]
			continue
		}
		for _, t := range todo[:n] {
			if t.ended.Load() { // cancelled before it had a slot
				t.cancelOnSession()
			}
		}
		todo = todo[n:]
	}
}

// groupByHost puts the tickets that a session serves in front of the others, and returns how many they are. The first one is
// served.
func groupByHost(todo []*ticket, s *Replica) int {
	n, first, pools := 1, todo[0].pool, s.Memberships()
	for i := 1; i < len(todo); i++ {
		t := todo[i]
		if (t.pool == first || len(pools) > 1 && pools[t.pool].joins(t)) && !t.tried(&s.Session) {
			todo[n], todo[i] = t, todo[n]
			n++
		}
	}
	return n
}

// waitForSlot lets a ticket wait for a free replica, or fails it at once. It fails each ticket that does not decide: it must not
// stand in the way of tickets that do. A call that was made ahead of its turn is made again when the turn comes.
func waitForSlot(p *Pool, t *ticket) {
	if t.call.Mode != review.Decide {
		t.finish(review.Result{Failure: review.NotStarted(review.FailureOverload, "no replica has room for a call that does not decide")})
		return
	}
	now := time.Now()
	first, why := p.enqueue(t, now)
	switch {
	case why != nil:
		t.finish(review.Result{Failure: why})
	case first: // a slot may have become free in between; who waits in another line is found by who frees one
		p.drainLine(t.cluster(), now)
	}
}
