package conversion

import (
	"errors"
	"fmt"
)

// Allowance bounds the time and the memory of the work on the objects of one review: a context and a lease of package memory. nil sets no bound.
type Allowance interface {
	// Err returns why the work has to stop, and is nil while it may go on.
	Err() error
	// Grow books n bytes of memory before they are taken, or returns why there is no memory.
	Grow(n int64) error
	// Charge books n bytes whether they are to be had or not, for work that has to be ended.
	Charge(n int64)
	// Shrink gives n bytes back.
	Shrink(n int64)
}

// ErrStopped means that the time of a review was over before a patch was applied: the hook gave its answer too late to be used.
var ErrStopped = errors.New("conversion: no time left to apply the patch")

func stopped(a Allowance) error {
	if a == nil {
		return nil
	}
	if err := a.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, err)
	}
	return nil
}

func grow(a Allowance, n int64) error {
	if a == nil {
		return nil
	}
	return a.Grow(n)
}

func shrink(a Allowance, n int64) {
	if a != nil {
		a.Shrink(n)
	}
}
