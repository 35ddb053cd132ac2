// Package initializer holds CREATE requests until their initializers have acted.
//
// The life cycle of a staged object is a set of pure functions: [Create], [Update], [Sync], [Delete] and [Progress] decide which
// changes are allowed, and know neither clock nor store. A [Stager] applies them for the dispatcher that holds a review: each [Hold] is the
// object of one review in etcd, from its first initializer to the answer. The package does not decide which initializers a review
// has, in which order they act, or how a failure ends: the chain of the dispatcher does.
//
// Staged objects are messages of gen, which are never written once they are shared. A Stager may be used concurrently.
package initializer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// Defaults of Limits.
const (
	// DefaultHolds is how many reviews a dispatcher holds.
	DefaultHolds = 2000
	// DefaultBytes is the size of all objects that a dispatcher has staged, in bytes.
	DefaultBytes = 128 << 20
	// DefaultObjectBytes is the size of one object, in bytes. etcd takes requests of 1.5 MiB unless it is configured otherwise.
	DefaultObjectBytes = 1 << 20
)

const (
	// longestReview is the time of a review without a deadline.
	longestReview = 30 * time.Second
	// releaseTimeout bounds the attempts to end a lease. After that it lapses.
	releaseTimeout = 10 * time.Second
)

// Limits bound the objects that one dispatcher stages. Of reviews and bytes a cluster holds at most as much as it leaves free for
// others, whatever its own limits are.
type Limits struct {
	// Holds bounds the held reviews; 0 means DefaultHolds.
	Holds int
	// HoldsPerCluster bounds the held reviews of one cluster; 0 means Holds.
	HoldsPerCluster int
	// Bytes bounds the size of the staged objects, in bytes; 0 means DefaultBytes.
	Bytes int64
	// BytesPerCluster bounds the staged objects of one cluster, in bytes; 0 means Bytes.
	BytesPerCluster int64
	// ObjectBytes bounds one object, in bytes; 0 means DefaultObjectBytes.
	ObjectBytes int
}

// Options are the parts of a Stager. Store and ID are required.
type Options struct {
	// Store keeps the objects. Its Run is the caller's.
	Store *staged.Store
	// ID identifies the dispatcher.
	ID string
	// Limits bound the staged objects.
	Limits Limits
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger receives failures of etcd; nil logs nothing.
	Logger *slog.Logger
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
}

// Stager holds reviews.
type Stager struct {
	options Options // complete
	holds   *memory.Ledger
	bytes   *memory.Ledger
	metrics *instrumentation
	running sync.WaitGroup // goroutines of holds
}

// NewStager returns a Stager. It does no I/O.
func NewStager(o Options) (*Stager, error) {
	if o.Store == nil || o.ID == "" {
		return nil, errors.New("initializer: Store and ID are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &o.Limits
	l.Holds, l.Bytes = cmp.Or(l.Holds, DefaultHolds), cmp.Or(l.Bytes, DefaultBytes)
	l.ObjectBytes = cmp.Or(l.ObjectBytes, DefaultObjectBytes)
	s := &Stager{options: o}
	var err error
	if s.holds, err = memory.New(memory.Options{Total: int64(l.Holds), PerCluster: int64(l.HoldsPerCluster)}); err != nil {
		return nil, fmt.Errorf("initializer: the held reviews: %w", err)
	}
	if s.bytes, err = memory.New(memory.Options{Total: l.Bytes, PerCluster: l.BytesPerCluster}); err != nil {
		return nil, fmt.Errorf("initializer: the bytes of staged objects: %w", err)
	}
	if s.metrics, err = newInstrumentation(s, o.Metrics); err != nil {
		return nil, fmt.Errorf("initializer: %w", err)
	}
	return s, nil
}

// Close waits until nothing of the holds goes on. Each has been released before.
func (s *Stager) Close() { s.running.Wait() }

// Bound is a limit of a Stager, and a metric label.
type Bound string

// The bounds.
const (
	// Cluster is the number of the held reviews of one cluster.
	Cluster Bound = "cluster"
	// Total is the number of all held reviews.
	Total Bound = "total"
	// Bytes is the size of the staged objects, of one cluster or of all.
	Bytes Bound = "bytes"
	// Object is the size of one object.
	Object Bound = "object"
)

// FullError is the error of Stage when a limit is reached.
type FullError struct {
	// Bound is the limit.
	Bound Bound
	// Cluster is the cluster of the review.
	Cluster string
	// InUse counts against the limit without the review, or is the size of the object; Limit is the most that it may be. Both are in reviews
	// or bytes.
	InUse, Limit int64
}

// Error implements error.
func (e *FullError) Error() string {
	switch e.Bound {
	case Object:
		return fmt.Sprintf("the object is too large to be staged: it has %d bytes, and may have %d", e.InUse, e.Limit)
	case Bytes:
		return fmt.Sprintf("no room for another staged object of cluster %q: %d of %d bytes are in use", e.Cluster, e.InUse, e.Limit)
	case Cluster:
		return fmt.Sprintf("too many held reviews of cluster %q: %d of %d", e.Cluster, e.InUse, e.Limit)
	case Total:
	}
	return fmt.Sprintf("too many held reviews: %d of %d", e.InUse, e.Limit)
}

// Stage makes room for one held review, and returns its hold, which the caller ends with Release. It does no I/O.
//
// Errors: *FullError, or that the object is not JSON.
func (s *Stager) Stage(r *review.Request) (*Hold, error) {
	a := r.Admission
	name, err := nameOf(a)
	if err != nil {
		return nil, err
	}
	size := len(a.GetObject().GetRaw())
	if large := s.tooLarge(a.GetCluster(), size); large != nil {
		return nil, s.metrics.refused(large)
	}
	slot, err := s.holds.Reserve(a.GetCluster(), 1)
	if err != nil {
		return nil, s.metrics.refused(full(err, ""))
	}
	room, err := s.bytes.Reserve(a.GetCluster(), int64(size))
	if err != nil {
		slot.Release()
		return nil, s.metrics.refused(full(err, Bytes))
	}
	now, until := s.options.Now(), r.Deadline
	if until.IsZero() {
		until = now.Add(longestReview)
	}
	return &Hold{
		stager: s, slot: slot, room: room, bytes: int64(size), until: until, gone: make(chan struct{}),
		machine: machine{name: name, base: &initializerv1.StagedObject{
			Key: &initializerv1.StagedKey{
				Cluster: a.GetCluster(), Resource: cmp.Or(a.GetRequestResource(), a.GetResource()), Namespace: a.GetNamespace(), Name: name.next(),
			},
			Uid: uuid.NewString(), Creator: a.GetUserInfo(), Kind: a.GetKind(), Created: timestamppb.New(now), Expires: timestamppb.New(until),
			ReviewUid: a.GetUid(), DispatcherId: s.options.ID,
		}},
	}, nil
}

// tooLarge is the error of an object that is larger than one may be; nil if it is not.
func (s *Stager) tooLarge(cluster string, size int) *FullError {
	limit := s.options.Limits.ObjectBytes
	if size <= limit {
		return nil
	}
	return &FullError{Bound: Object, Cluster: cluster, InUse: int64(size), Limit: int64(limit)}
}

// full converts the error of a ledger that has refused a review. Its bound is the given one, or the ledger's if that is empty.
func full(err error, bound Bound) *FullError {
	var e *memory.FullError
	if !errors.As(err, &e) {
		return &FullError{Bound: bound}
	}
	return &FullError{Bound: cmp.Or(bound, Bound(e.Bound)), Cluster: e.Cluster, InUse: e.InUse, Limit: e.Limit}
}
