package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

const (
	// usageInterval is how often etcd is asked how full it is.
	usageInterval = 5 * time.Second
	// quotaPercent is the part of the quota of etcd above which nothing is staged, so that the configuration can still be written.
	quotaPercent = 50
)

// Bound is a limit of the writes, and a metric label.
type Bound string

// The bounds.
const (
	// Written are the bytes that this dispatcher writes for one cluster, or for all, within the retention.
	Written Bound = "written"
	// Half is half of the quota of etcd, above which nothing is staged.
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

// spend books the bytes of a write to the cluster of its object. The error is a *FullError.
func (s *Store) spend(cluster string, bytes int) error {
	err := s.written.Spend(cluster, bytes)
	var over *etcdstore.WriteError
	if !errors.As(err, &over) {
		return err
	}
	full := &FullError{Bound: Written, InUse: over.InUse, Limit: over.Limit, Cluster: cluster, Retention: over.Retention}
	if over.Quota {
		full.Bound = Half
	}
	return full
}

// measure asks etcd how full it is until ctx ends. While etcd does not answer, its last answer counts.
func (s *Store) measure(ctx context.Context) {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		usage, err := etcdstore.ReadUsage(asking, s.options.Client)
		cancel()
		if err == nil {
			s.usage.Store(&usage)
		}
		clock.Sleep(ctx, usageInterval)
	}
}

// Usage is how full etcd was when it was asked last; nil before it has answered.
func (s *Store) Usage() *etcdstore.Usage { return s.usage.Load() }
