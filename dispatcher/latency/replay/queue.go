package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
)

// Slots is how many calls of a hook the replicas at one dispatcher take at a time.
type Slots struct {
	// Replicas serve the hook, and take Slots calls at a time together.
	Replicas, Slots int
}

// arrival is a recorded call of a hook at one dispatcher.
type arrival struct {
	recording *recording
	index     int // of the call in its review
	at        time.Time
	queued    time.Duration
	served    time.Duration
}

// addReplicas gives the calls of a hook at one dispatcher the wait that they have with more replicas.
//
// The recorded begins are replayed through a queue with the slots that there are, and through one with more: a call waits as long as in the
// second. Calls that are not kept waited in the same queue. The wait that the first queue does not explain is theirs, and shrinks to the share
// of slots that there were: the least that it shrinks, whenever they came.
func addReplicas(calls []arrival, slots Slots, more int) {
	if slots.Replicas == 0 || slots.Slots == 0 || len(calls) == 0 {
		return
	}
	slices.SortFunc(calls, func(a, b arrival) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.queued, b.queued))
	})
	n := slots.Slots + max(1, slots.Slots*more/slots.Replicas)
	before, after := waits(calls, slots.Slots), waits(calls, n)
	share := float64(slots.Slots) / float64(n)
	shrunk := func(d time.Duration) time.Duration { return time.Duration(share * float64(d)) }
	for i, c := range calls {
		predicted := min(shrunk(c.queued), after[i]+shrunk(max(0, c.queued-before[i])))
		if c.recording.queued == nil {
			c.recording.queued = map[int]time.Duration{}
		}
		c.recording.queued[c.index] = predicted
	}
}

// waits is how long calls wait, in the order of their begins, if so many are served at a time.
func waits(calls []arrival, slots int) []time.Duration {
	free := make([]time.Time, slots) // when each slot is free
	out := make([]time.Duration, len(calls))
	for i, c := range calls {
		first := 0
		for s := range free {
			if free[s].Before(free[first]) {
				first = s
			}
		}
		out[i] = max(0, free[first].Sub(c.at))
		free[first] = c.at.Add(out[i] + c.served)
	}
	return out
}

// arrivals are the calls of a hook that waited in the queue of a dispatcher and have a verdict.
func arrivals(all []*recording, hook string) (calls []arrival) {
	for _, r := range all {
		for i := range r.review.Calls {
			c := &r.review.Calls[i]
			if c.Hook.Name == hook && c.Streamed && c.Failure == "" && c.Outcome != latency.OutcomeCancelled && c.Wire+c.Host > 0 {
				calls = append(calls, arrival{r, i, r.review.Begun.Add(c.Begun), c.Queued, c.Wire + c.Host})
			}
		}
	}
	return calls
}
