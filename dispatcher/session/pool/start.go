package pool

import (
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// Hooks knows the pools by their hooks.
type Hooks interface {
	// Pool returns the pool of a hook; nil when hosts may not serve it.
	Pool(h *match.Hook) *Pool
}

// Start places the calls of a call set. Each one ends with done, once; the returned function cancels a call. hedges counts second
// attempts.
func Start(b *review.CallSet, hooks Hooks, hedges *hedge.Metrics, done func(int, review.Result)) func(int) {
	now := time.Now()
	tickets := make([]ticket, len(b.Calls))
	var few [8]*ticket // on the stack, unless there are more
	todo := few[:0]
	body := stream.NewBody(b)
	var hedged *hedge.CallSet
	for i := range tickets {
		t := &tickets[i]
		t.request, t.body, t.call, t.index, t.done, t.begun = b.Request, body, &b.Calls[i], i, done, now
		t.pool = hooks.Pool(t.call.Hook)
		hedged = hedgeCall(hedged, t, hedges)
		todo = append(todo, t)
	}
	place(todo, now)
	if hedged != nil {
		hedged.Arm()
	}
	return func(i int) { tickets[i].cancel() }
}

// hedgeCall lets a ticket that has not been placed have a second attempt, if the route of its hook asks for that.
func hedgeCall(b *hedge.CallSet, t *ticket, m *hedge.Metrics) *hedge.CallSet {
	o := t.call.Hook.Route.Hedge
	if !o.Enabled || t.pool == nil || t.call.Mode != review.Decide || !t.call.Hook.WithoutSideEffects(t.request) {
		return b
	}
	if t.hook = t.pool.hedging.Load(); t.hook == nil { // the configuration has just changed
		return b
	}
	delay := t.hook.Earn(o)
	if delay == 0 {
		return b
	}
	if b == nil {
		b = hedge.NewCallSet(m)
	}
	t.hedged = b.Add(t, t.hook, t.begun.Add(delay))
	return b
}
