package bridge

import (
	"hash/maphash"
	"sync"
	"time"
)

// rememberedRetries is how many refused reviews are remembered at a time.
const rememberedRetries = 1024

// retries remembers the deadlines of reviews that were refused with Retry-After. An API server tries again with the same uid and the
// same ?timeout=, although it has less time then: taken for a new review it would be asked to try again until its own time is over,
// and its user would read that in place of the reason. A review that another one has displaced is taken for a new one; so a caller
// that floods the table costs others a reason, and no verdict. The methods may be called concurrently.
type retries struct {
	seed maphash.Seed

	mu    sync.Mutex
	slots [rememberedRetries]refusedReview
}

type refusedReview struct {
	key      uint64 // of cluster and uid
	deadline time.Time
}

// firstDeadline returns the deadline of the first attempt of a review, whose uid may be empty, and the given one if this is the first.
func (r *retries) firstDeadline(cluster, uid string, deadline time.Time) time.Time {
	if uid == "" {
		return deadline
	}
	key := maphash.Comparable(r.seed, [2]string{cluster, uid})
	r.mu.Lock()
	defer r.mu.Unlock()
	slot := &r.slots[key%rememberedRetries]
	if slot.key == key && deadline.Sub(slot.deadline) < MaxTimeout {
		return slot.deadline
	}
	*slot = refusedReview{key, deadline}
	return deadline
}
