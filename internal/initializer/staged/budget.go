package staged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

const (
	// DefaultRetention is how long an old version of a key counts: docs/configuration-store.md has an external etcd compact after that time.
	DefaultRetention = 5 * time.Minute
	// DefaultWrittenBytes is the part of etcd's default quota that one dispatcher writes within DefaultRetention, in bytes.
	DefaultWrittenBytes = 512 << 20
	// leastWrite is the least that a write takes, in bytes: a page of the database. It bounds the number of bookings too.
	leastWrite = 4 << 10
	// usageInterval is how often etcd is asked how full it is.
	usageInterval = 5 * time.Second
)

// Bound is a limit of the writes, and a metric label.
type Bound string

// The bounds.
const (
	// Written are the bytes that this dispatcher writes for one cluster, or for all, within the retention.
	Written Bound = "written"
	// Half is half of the quota of etcd. Above it nothing is staged, so that the configuration can still be written.
	Half Bound = "store"
	// Memory is the memory of a dispatcher: its error is a *memory.FullError.
	Memory Bound = "memory"
)

// FullError is the error of a write that would be over a bound. Nothing was written.
type FullError struct {
	// Bound is the limit.
	Bound Bound
	// InUse counts against the limit without the write; Limit is the most that it may be; both in bytes.
	InUse, Limit int64
	// Cluster is the cluster of the object.
	Cluster string
	// Retention is the time in which bytes count that were written.
	Retention time.Duration
}

// Error implements error.
func (e *FullError) Error() string {
	if e.Bound == Half {
		return fmt.Sprintf("the store has %d bytes in use, and nothing is staged above %d, half of its quota: "+
			"compact it more often, or raise its quota (portcullis check tells how full it is)", e.InUse, e.Limit)
	}
	return fmt.Sprintf("the staged objects of cluster %q take %d of %d bytes that may be written within %s: create fewer or smaller objects at a time",
		e.Cluster, e.InUse, e.Limit, e.Retention)
}

// budget bounds the bytes that are written to etcd over time. A version that was written stays in the database until it is compacted, whether or not
// the object is deleted. So its bytes are booked to its cluster, and given back after the retention. A cluster has at most as many as it leaves free.
type budget struct {
	ledger    *memory.Ledger
	retention time.Duration
	now       func() time.Time
	usage     atomic.Pointer[etcdstore.Usage] // as it was read last; nil before

	mu     sync.Mutex
	booked []booking // in the order of their ends
}

type booking struct {
	until time.Time
	bytes *memory.Reservation
}

func newBudget(written int64, retention time.Duration, now func() time.Time) (*budget, error) {
	ledger, err := memory.New(memory.Options{Total: written})
	if err != nil {
		return nil, fmt.Errorf("the bytes that are written within %s: %w", retention, err)
	}
	return &budget{ledger: ledger, retention: retention, now: now}, nil
}

// spend books the bytes of a write of a cluster. The error is a *FullError.
func (b *budget) spend(cluster string, bytes int) error {
	if u := b.usage.Load(); u != nil && u.InUse > u.Quota/2 {
		return &FullError{Bound: Half, InUse: u.InUse, Limit: u.Quota / 2, Cluster: cluster}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for ; len(b.booked) > 0 && !b.booked[0].until.After(now); b.booked = b.booked[1:] {
		b.booked[0].bytes.Release()
	}
	r, err := b.ledger.Reserve(cluster, int64(max(bytes, leastWrite)))
	if err != nil {
		var full *memory.FullError
		if !errors.As(err, &full) {
			return err
		}
		return &FullError{Bound: Written, InUse: full.InUse, Limit: full.Limit, Cluster: cluster, Retention: b.retention}
	}
	b.booked = append(b.booked, booking{now.Add(b.retention), r})
	return nil
}

// measure asks etcd how full it is until ctx ends. While etcd does not answer, its last answer counts.
func (s *Store) measure(ctx context.Context) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		usage, err := etcdstore.ReadUsage(asking, s.options.Client)
		cancel()
		if err == nil {
			s.budget.usage.Store(&usage)
		}
		clock.Sleep(ctx, usageInterval)
	}
}

// Usage is how full etcd was when it was asked last; nil before it has answered.
func (s *Store) Usage() *etcdstore.Usage { return s.budget.usage.Load() }
