// Package memory accounts for the bytes that reviews hold, from the first byte that is read of one to the last that is
// written: a [Ledger] has a bound for all of them and one for each cluster, and a [Lease] is what one review holds of it.
//
// Nothing here allocates or frees what is accounted for, and nothing waits: what does not fit is refused at once, and the
// caller says so to whoever asks. Everything may be used from any goroutine. There is no lock: a reservation is a few
// atomic operations on words that all clusters share, and a few on those of its own cluster.
package memory

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
)

// Bound says which limit a reservation has met.
type Bound string

// The bounds of a ledger.
const (
	// Cluster: one cluster holds as much as it may.
	Cluster Bound = "cluster"
	// Total: all clusters together do.
	Total Bound = "total"
)

// FullError is why there was no room.
type FullError struct {
	// Bound is the limit that was met.
	Bound Bound
	// Cluster is who asked.
	Cluster string
	// Wanted is how many bytes were asked for.
	Wanted int64
	// InUse is how many bytes were held against the bound.
	InUse int64
	// Limit is how many there could have been: for a cluster what it might hold while the others held what they did.
	Limit int64
	// Hopeless says that the review alone wants more than there would be if no other held anything: trying again does not help.
	Hopeless bool
}

// Error says what was wanted and what there was.
func (e *FullError) Error() string {
	who := "all clusters together hold"
	if e.Bound == Cluster {
		who = fmt.Sprintf("cluster %q holds", e.Cluster)
	}
	return fmt.Sprintf("no memory for %d bytes of a review: %s %d of %d bytes", e.Wanted, who, e.InUse, e.Limit)
}

// Options is how much a ledger gives.
type Options struct {
	// Total is how many bytes all reviews may hold. Required.
	Total int64
	// PerCluster is how many the reviews of one cluster may hold; 0 is no bound but the one that always applies: a cluster
	// holds no more than it leaves free for the others.
	PerCluster int64
}

// Ledger knows how many bytes are held, in all and by each cluster.
//
// A review comes in if its cluster then holds at most as much as is left free, whatever PerCluster says. One alone gets half
// of the total; of two that take what they can each gets a third, and a third is free; of n, each gets one in n+1. So no
// flood of any number of clusters leaves nothing for the next, no share has to be set when a cluster comes, and none is kept
// for one that is idle. Reviews that are in may grow further, to growthParts times what is left free: what has been begun
// is ended before more is begun.
type Ledger struct {
	total, perCluster int64 // read-only

	used     atomic.Int64
	accounts sync.Map // of *account by cluster; those with leases alone, so that clusters that went leave nothing behind

	refusedByCluster, refusedByTotal atomic.Int64
}

// New makes a ledger that nobody holds anything of.
func New(o Options) (*Ledger, error) {
	if o.Total <= 0 || o.PerCluster < 0 || o.PerCluster > o.Total {
		return nil, fmt.Errorf("memory: a budget of %d bytes, of which one cluster may hold %d: "+
			"want a budget above zero, and a share of one cluster between zero and that", o.Total, o.PerCluster)
	}
	return &Ledger{total: o.Total, perCluster: cmp.Or(o.PerCluster, o.Total)}, nil
}

// Reserve takes n bytes for a review of a cluster, which holds them until its lease has ended. It fails with a [*FullError]
// when they are not to be had now. n may be 0, to see later what is needed.
func (l *Ledger) Reserve(cluster string, n int64) (*Lease, error) {
	lease := &Lease{ledger: l, account: l.open(cluster)}
	lease.holders.Store(1)
	if err := lease.take(n, arrivalParts); err != nil {
		lease.Release()
		return nil, err
	}
	return lease, nil
}

// Share is how many bytes a cluster may hold while no other holds any: what a single review must fit.
func (l *Ledger) Share() int64 { return min(l.perCluster, l.total/2) }

// InUse is how many bytes are held in all.
func (l *Ledger) InUse() int64 { return l.used.Load() }

// Clusters goes over the clusters that have leases, and how many bytes each holds.
func (l *Ledger) Clusters() iter.Seq2[string, int64] {
	return func(yield func(cluster string, bytes int64) bool) {
		l.accounts.Range(func(_, value any) bool {
			a, ok := value.(*account)
			return ok && yield(a.cluster, a.held.Load())
		})
	}
}

// Refused is how many reservations have met a bound.
func (l *Ledger) Refused(by Bound) int64 {
	if by == Cluster {
		return l.refusedByCluster.Load()
	}
	return l.refusedByTotal.Load()
}

// How many times what it leaves free a cluster may hold, with a review that comes in and with one that is in.
const (
	arrivalParts = 1
	growthParts  = 3
)

// take books n bytes on a cluster and on the total, or on neither. The cluster's own come first: who is refused for its
// cluster has not stood in the way of another for a moment.
func (l *Ledger) take(a *account, n, parts int64) *FullError {
	a.held.Add(n)
	for {
		used, held := l.used.Load(), a.held.Load()
		free := l.total - used - n // as it would be
		switch {
		case free < 0:
			a.held.Add(-n)
			l.refusedByTotal.Add(1)
			return &FullError{Bound: Total, Cluster: a.cluster, Wanted: n, InUse: used, Limit: l.total}
		case held > min(l.perCluster, parts*free):
			a.held.Add(-n)
			l.refusedByCluster.Add(1)
			return &FullError{
				Bound: Cluster, Cluster: a.cluster, Wanted: n, InUse: held - n, Limit: min(l.perCluster, parts*(free+held)/(parts+1)),
			}
		case l.used.CompareAndSwap(used, used+n):
			return nil
		}
	}
}

// most is how many bytes a cluster may hold while no other holds any.
func (l *Ledger) most(parts int64) int64 { return min(l.perCluster, parts*(l.total/(parts+1))) }

// charge books n bytes on a cluster and on the total, past all bounds.
func (l *Ledger) charge(a *account, n int64) {
	a.held.Add(n)
	l.used.Add(n)
}

// give takes n bytes back.
func (l *Ledger) give(a *account, n int64) {
	l.used.Add(-n)
	a.held.Add(-n)
}

// account is what the leases of one cluster hold.
type account struct {
	cluster string
	held    atomic.Int64 // bytes
	leases  atomic.Int64 // below zero once the account is closed
}

// open finds the account of a cluster for one lease more, or makes it.
func (l *Ledger) open(cluster string) *account {
	for {
		found, ok := l.accounts.Load(cluster)
		if !ok {
			found, _ = l.accounts.LoadOrStore(cluster, &account{cluster: cluster})
		}
		a, ok := found.(*account)
		if ok && a.enter() {
			return a
		}
		l.accounts.CompareAndDelete(cluster, found) // its last lease is about to do so
	}
}

// enter counts a lease; false for an account that is being closed.
func (a *account) enter() bool {
	for n := a.leases.Load(); n >= 0; n = a.leases.Load() {
		if a.leases.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// leave is the end of a lease. The last one closes the account.
func (l *Ledger) leave(a *account) {
	if a.leases.Add(-1) == 0 && a.leases.CompareAndSwap(0, closed) {
		l.accounts.CompareAndDelete(a.cluster, a)
	}
}

// closed is the number of leases of an account that takes no more.
const closed = math.MinInt64
