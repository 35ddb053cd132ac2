// Package memory accounts for the bytes that reviews hold, from the first byte read to the last byte written: a [Ledger] has a limit for all reviews
// and one for each cluster, and a [Reservation] is the part of one review.
//
// The package neither allocates nor frees the memory, and never waits: a reservation that does not fit fails at once. All methods may be called
// concurrently. There is no lock: a reservation takes a few atomic operations on counters of the ledger and of its cluster.
package memory

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
)

// Bound is a limit of a ledger, and a metric label.
type Bound string

const (
	// Cluster is the limit of one cluster.
	Cluster Bound = "cluster"
	// Total is the limit of all clusters together.
	Total Bound = "total"
)

// FullError is the error of a reservation that does not fit.
type FullError struct {
	// Bound is the limit that was reached.
	Bound Bound
	// Cluster is the cluster of the review.
	Cluster string
	// Wanted is the number of bytes that were asked for.
	Wanted int64
	// InUse is the number of bytes that count against the bound.
	InUse int64
	// Limit is the largest possible InUse; for a cluster, with the present use of the others.
	Limit int64
	// Hopeless is true if the review alone exceeds the limit of its cluster without other reviews: a retry does not help.
	Hopeless bool
}

// Error implements error.
func (e *FullError) Error() string {
	who := "all clusters together hold"
	if e.Bound == Cluster {
		who = fmt.Sprintf("cluster %q holds", e.Cluster)
	}
	return fmt.Sprintf("no memory for %d bytes of a review: %s %d of %d bytes", e.Wanted, who, e.InUse, e.Limit)
}

// Options are the limits of a ledger, in bytes.
type Options struct {
	// Total is the limit of all reviews. Required.
	Total int64
	// PerCluster is the limit of the reviews of one cluster; 0 means only the limit that always applies: a cluster holds no
	// more than it leaves free.
	PerCluster int64
}

// Ledger counts the bytes that reviews hold, in total and by cluster.
//
// A reservation succeeds if its cluster then holds at most as much as is left free. So one cluster alone gets half of the total, two get a third each
// with a third left free, and n get one part in n+1 each: no flood leaves nothing for another cluster, and neither shares nor idle clusters have to
// be configured. A reservation may grow until its cluster holds growthParts times the free memory, so that reviews in flight end before new ones
// begin.
type Ledger struct {
	total, perCluster int64 // read-only

	used     atomic.Int64
	accounts sync.Map // of *account by cluster; those with reservations only

	refusedByCluster, refusedByTotal atomic.Int64
}

// New makes a ledger.
func New(o Options) (*Ledger, error) {
	if o.Total <= 0 || o.PerCluster < 0 || o.PerCluster > o.Total {
		return nil, fmt.Errorf("memory: a budget of %d bytes, of which one cluster may hold %d: "+
			"want a budget above zero, and a share of one cluster between zero and that", o.Total, o.PerCluster)
	}
	return &Ledger{total: o.Total, perCluster: cmp.Or(o.PerCluster, o.Total)}, nil
}

// Reserve reserves n bytes for a review of a cluster, until its [Reservation] ends. If they are not available now, it fails
// with a [*FullError]. n may be 0, to grow later.
func (l *Ledger) Reserve(cluster string, n int64) (*Reservation, error) {
	r := &Reservation{ledger: l, account: l.open(cluster)}
	r.holders.Store(1)
	if err := r.grow(n, arrivalParts); err != nil {
		r.Release()
		return nil, err
	}
	return r, nil
}

// Share returns the most bytes that a cluster may hold while no other holds any: the largest possible review.
func (l *Ledger) Share() int64 { return l.largestShare(arrivalParts) }

// InUse returns the bytes that all reviews hold.
func (l *Ledger) InUse() int64 { return l.used.Load() }

// Clusters yields the clusters that have reservations, and their bytes.
func (l *Ledger) Clusters() iter.Seq2[string, int64] {
	return func(yield func(cluster string, bytes int64) bool) {
		l.accounts.Range(func(_, value any) bool {
			a, ok := value.(*account)
			return ok && yield(a.cluster, a.bytes.Load())
		})
	}
}

// Refused returns the number of reservations that failed at a bound.
func (l *Ledger) Refused(by Bound) int64 {
	if by == Cluster {
		return l.refusedByCluster.Load()
	}
	return l.refusedByTotal.Load()
}

// The limit of a cluster, as a multiple of the memory left free: for a new reservation, and for growth of a reservation.
const (
	arrivalParts = 1
	growthParts  = 3
)

// take adds n bytes to a cluster and to the total, or to neither. It counts them for the cluster first, so that a refusal by the cluster's limit
// never reduces the free memory that others see.
func (l *Ledger) take(a *account, n, parts int64) *FullError {
	a.bytes.Add(n)
	for {
		used, held := l.used.Load(), a.bytes.Load()
		free := l.total - used - n // after this reservation
		switch {
		case free < 0:
			a.bytes.Add(-n)
			l.refusedByTotal.Add(1)
			return &FullError{Bound: Total, Cluster: a.cluster, Wanted: n, InUse: used, Limit: l.total}
		case held > min(l.perCluster, parts*free):
			a.bytes.Add(-n)
			l.refusedByCluster.Add(1)
			return &FullError{
				Bound: Cluster, Cluster: a.cluster, Wanted: n, InUse: held - n, Limit: min(l.perCluster, parts*(free+held)/(parts+1)),
			}
		case l.used.CompareAndSwap(used, used+n):
			return nil
		}
	}
}

// largestShare returns the most bytes that a cluster may hold while no other holds any.
func (l *Ledger) largestShare(parts int64) int64 { return min(l.perCluster, parts*(l.total/(parts+1))) }

// add adds n bytes, which may be negative, to a cluster and to the total without a check.
func (l *Ledger) add(a *account, n int64) {
	a.bytes.Add(n)
	l.used.Add(n)
}

// account counts the bytes and the reservations of one cluster. Its last reservation closes it, and removes it from the ledger.
type account struct {
	cluster      string
	bytes        atomic.Int64
	reservations atomic.Int64 // closed once there are none
}

// closed is the number of reservations of a closed account. It stays negative whatever is added.
const closed = math.MinInt64

// open returns the account of a cluster with one more reservation.
func (l *Ledger) open(cluster string) *account {
	for {
		found, ok := l.accounts.Load(cluster)
		if !ok {
			found, _ = l.accounts.LoadOrStore(cluster, &account{cluster: cluster})
		}
		a, ok := found.(*account)
		if ok && a.addReservation() {
			return a
		}
		l.accounts.CompareAndDelete(cluster, found) // closed: removeReservation is about to do so
	}
}

// addReservation counts a reservation; false if the account is closed.
func (a *account) addReservation() bool {
	for n := a.reservations.Load(); n >= 0; n = a.reservations.Load() {
		if a.reservations.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (l *Ledger) removeReservation(a *account) {
	if a.reservations.Add(-1) == 0 && a.reservations.CompareAndSwap(0, closed) {
		l.accounts.CompareAndDelete(a.cluster, a)
	}
}
