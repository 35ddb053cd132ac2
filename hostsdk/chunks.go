package hostsdk

import (
	"fmt"
	"slices"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// assembly joins the chunks of a review. It is pure; the zero value is idle.
type assembly struct {
	limit int // of the size of a review

	call  uint64 // in progress, or the last one
	total uint64
	hooks uint32
	began time.Time // the review's times count from its first chunk
	data  []byte    // nil between two reviews
}

func (a *assembly) assembling() bool { return a.data != nil }

// addChunk returns the encoded review if the chunk completes it. An error is a violation of the contract, and ends the session.
func (a *assembly) addChunk(now time.Time, c *wire.ChunkView) (review []byte, err error) {
	if !a.assembling() {
		if err := a.startReview(now, c); err != nil {
			return nil, err
		}
	}
	have, more := uint64(len(a.data)), uint64(len(c.Data))
	switch {
	case c.CallID != a.call:
		return nil, fmt.Errorf("a chunk of call %d came while call %d was incomplete", c.CallID, a.call)
	case c.Total != a.total || c.Hooks != a.hooks:
		return nil, fmt.Errorf("the chunks of call %d do not agree on its size", a.call)
	case more == 0:
		return nil, fmt.Errorf("a chunk of call %d was empty", a.call)
	case have+more > a.total:
		return nil, fmt.Errorf("the chunks of call %d are longer than the %d bytes that they say", a.call, a.total)
	}
	a.append(c.Data)
	if have+more < a.total {
		return nil, nil
	}
	review, a.data = a.data, nil
	return review, nil
}

func (a *assembly) startReview(now time.Time, c *wire.ChunkView) error {
	switch {
	case c.Total > uint64(a.limit):
		return fmt.Errorf("call %d has %d bytes, this host takes %d", c.CallID, c.Total, a.limit)
	case c.Hooks > maxReviewHooks:
		return tooManyHooks(c.CallID, int(c.Hooks))
	case c.CallID <= a.call && !a.began.IsZero():
		return fmt.Errorf("call %d came after call %d: each comes once, in the order of their ids", c.CallID, a.call)
	}
	a.call, a.total, a.hooks, a.began = c.CallID, c.Total, c.Hooks, now
	a.data = []byte{}
	return nil
}

// append grows the buffer with the bytes that have come, up to the total: a large total alone takes no memory.
func (a *assembly) append(data []byte) {
	if need := len(a.data) + len(data); need > cap(a.data) {
		grown := make([]byte, len(a.data), min(int(a.total), max(need, 2*cap(a.data))))
		copy(grown, a.data)
		a.data = grown
	}
	a.data = append(a.data, data...)
}

// drop drops an incomplete review, and returns its number of hooks.
func (a *assembly) drop() (hooks uint32) {
	a.data = nil
	return a.hooks
}

// covers reports whether a cancellation names every hook of the incomplete review.
func (a *assembly) covers(c *hostv1.Cancel) bool {
	if len(c.GetHookIndexes()) == 0 {
		return true
	}
	named := slices.DeleteFunc(slices.Clone(c.GetHookIndexes()), func(hook uint32) bool { return hook >= a.hooks })
	slices.Sort(named)
	return len(slices.Compact(named)) == int(a.hooks)
}

func tooManyHooks(call uint64, hooks int) error {
	return fmt.Errorf("call %d asks %d hooks, more than %d", call, hooks, maxReviewHooks)
}
