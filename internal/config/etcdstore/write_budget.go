package etcdstore

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
)

const (
	// DefaultRetention is how long an old version of a key counts: docs/configuration-store.md has an external etcd compact after that time.
	DefaultRetention = 5 * time.Minute
	// DefaultWrittenBytes is the part of etcd's default quota that one dispatcher writes within DefaultRetention, in bytes.
	DefaultWrittenBytes = 512 << 20
	// leastWrite is the least that a write takes, in bytes: a page of the database. It bounds the number of bookings too.
	leastWrite = 4 << 10
)

// WriteBudgetOptions configure a WriteBudget. All but Usage are required.
type WriteBudgetOptions struct {
	// Total is the most bytes that are written within Retention, by all writers. A writer writes at most as many as it leaves free.
	Total int64
	// Retention is how long etcd keeps old versions.
	Retention time.Duration
	// QuotaPercent is the part of the quota of etcd that may be in use for a write.
	QuotaPercent int64
	// Usage returns how full etcd is; nil, or a nil result, while that is unknown.
	Usage func() *Usage
	// Now is the clock.
	Now func() time.Time
}

// WriteBudget bounds the bytes that are written to etcd over time. A version that was written stays in the database until it is compacted, whether or
// not the object is deleted. So its bytes are booked to its writer, and given back after the retention. It may be used concurrently.
type WriteBudget struct {
	options WriteBudgetOptions
	ledger  *memory.Ledger

	mu     sync.Mutex
	booked []booking // in the order of their ends
}

type booking struct {
	until time.Time
	bytes *memory.Reservation
}

// NewWriteBudget returns a budget of which nothing is spent. The error is about Total.
func NewWriteBudget(o WriteBudgetOptions) (*WriteBudget, error) {
	ledger, err := memory.New(memory.Options{Total: o.Total})
	if err != nil {
		return nil, fmt.Errorf("the bytes that are written within %s: %w", o.Retention, err)
	}
	return &WriteBudget{options: o, ledger: ledger}, nil
}

// WriteError is the error of a write that would be over a budget. Nothing was written.
type WriteError struct {
	// Quota is true if etcd is too full for a write of any writer. Else Writer has written too much within Retention.
	Quota bool
	// InUse counts against the limit without the write; Limit is the most that it may be; both in bytes.
	InUse, Limit int64
	Writer       string
	Retention    time.Duration
}

// Error implements error.
func (e *WriteError) Error() string {
	if e.Quota {
		return fmt.Sprintf("the store has %d bytes in use, and %q may write up to %d: compact it more often, or raise its quota "+
			"(portcullis check tells how full it is)", e.InUse, e.Writer, e.Limit)
	}
	return fmt.Sprintf("%q has written %d of %d bytes that one writer may write within %s: wait, or write fewer or smaller objects at a time",
		e.Writer, e.InUse, e.Limit, e.Retention)
}

// Spend books the bytes of a write. The error is a *WriteError.
func (b *WriteBudget) Spend(writer string, bytes int) error {
	if b.options.Usage != nil {
		if u := b.options.Usage(); u != nil && u.InUse > u.Quota/100*b.options.QuotaPercent {
			return &WriteError{Quota: true, InUse: u.InUse, Limit: u.Quota / 100 * b.options.QuotaPercent, Writer: writer, Retention: b.options.Retention}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.options.Now()
	for ; len(b.booked) > 0 && !b.booked[0].until.After(now); b.booked = b.booked[1:] {
		b.booked[0].bytes.Release()
	}
	r, err := b.ledger.Reserve(writer, int64(max(bytes, leastWrite)))
	if err != nil {
		var full *memory.FullError
		if !errors.As(err, &full) {
			return err
		}
		return &WriteError{InUse: full.InUse, Limit: full.Limit, Writer: writer, Retention: b.options.Retention}
	}
	b.booked = append(b.booked, booking{now.Add(b.options.Retention), r})
	return nil
}

// Written yields the writers that have written within the retention, with their bytes.
func (b *WriteBudget) Written() iter.Seq2[string, int64] { return b.ledger.Clusters() }
