package etcdstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// Times of a Presence.
const (
	// defaultLeaseTTL is how long the status of a dispatcher counts after it was last renewed. A dispatcher whose lease has
	// lapsed could not list for longer than a configuration may be old, so it judges nothing.
	defaultLeaseTTL = leasePerAge * store.DefaultMaxAge
	// leasePerAge is the lease's time to live divided by the maximum age of a configuration. A lease is renewed three times in
	// its life: if a dispatcher is cut off, its lease outlives its last review by a third of the lease at most.
	leasePerAge = 2
	// retryAfter is the pause after etcd did not answer.
	retryAfter = 500 * time.Millisecond
	// requestTimeout bounds a request of etcd, so that it can be repeated while the lease lasts.
	requestTimeout = 2 * time.Second
)

// The reasons of a pending hook.
const (
	// PendingNobody: no route grants the hook to a host.
	PendingNobody = "NobodyGranted"
	// PendingMissing: no host that may serve the hook is connected.
	PendingMissing = "HostsMissing"
	// PendingUnanswered: no host has answered its probe yet.
	PendingUnanswered = "Unanswered"
	// PendingNotReady: the host that answered last is not ready; the message is the host's.
	PendingNotReady = "HostNotReady"
	// PendingReady: a host is ready, and the store does not have that yet.
	PendingReady = "HostReady"
)

// PresenceOptions configure a Presence.
type PresenceOptions struct {
	// ID is the dispatcher's; required.
	ID string
	// Logger receives failures to reach etcd; nil logs nothing.
	Logger *slog.Logger
}

// Presence publishes the status of this dispatcher in etcd, under a lease, for other dispatchers and ConfigService. Its methods
// may be called concurrently; Run is called once.
type Presence struct {
	store   *Store
	options PresenceOptions
	said    string // the status that was written last; owned by the goroutine of Run

	mu       sync.Mutex
	next     *configv1.DispatcherReport // to be written
	until    time.Time                  // end of the lease under which the status is written; zero while there is none
	extended chan struct{}              // closed when until changes

	news chan struct{} // holds one token while next has to be written
	ttl  atomic.Int64  // of the lease, in ns
}

// Presence returns a presence that has published nothing yet.
func (s *Store) Presence(o PresenceOptions) (*Presence, error) {
	if o.ID == "" {
		return nil, errors.New("etcdstore: a dispatcher needs an id to be known by")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	p := &Presence{store: s, options: o, news: make(chan struct{}, 1), extended: make(chan struct{})}
	p.ttl.Store(int64(defaultLeaseTTL))
	return p, nil
}

// LeaseCoverage is the maximum age of a configuration for which other dispatchers still count this one as alive. It grows with
// max_configuration_age once etcd has granted a longer lease. It never shrinks, since others may have seen the longer one.
func (p *Presence) LeaseCoverage() time.Duration { return time.Duration(p.ttl.Load()) / leasePerAge }

// Tell replaces the report, which nothing changes any more. Its status has the ID of the options. Tell does not wait for etcd.
func (p *Presence) Tell(report *configv1.DispatcherReport) {
	p.mu.Lock()
	p.next = report
	p.mu.Unlock()
	p.rewrite()
}

// Run publishes the status until ctx ends, and then revokes the lease. While etcd does not answer, it retries.
func (p *Presence) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			p.options.Logger.Warn("the report to other dispatchers cannot be written", "error", err)
		}
		clock.Sleep(ctx, retryAfter)
	}
	return nil
}

// publish keeps the status in etcd under a lease until the lease lapses.
func (p *Presence) publish(ctx context.Context) error {
	held, err := p.beginLease(ctx)
	if err != nil {
		return err
	}
	defer func() {
		p.extend(time.Time{})
		p.revoke(ctx, held.id)
	}()
	renewal := time.NewTimer(held.untilRenewal())
	defer renewal.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.news:
			held, err = p.update(ctx, held)
		case <-renewal.C:
			held, err = p.renew(ctx, held)
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("the lease of etcd has lapsed: %w", err)
		}
		if err != nil {
			p.options.Logger.Warn("the report to other dispatchers cannot be written", "error", err)
			clock.Sleep(ctx, retryAfter)
			p.rewrite()
		}
		renewal.Reset(held.untilRenewal())
	}
}

// lease is a lease of etcd, with the earliest time at which it lapses.
type lease struct {
	id    clientv3.LeaseID
	ttl   time.Duration
	until time.Time
}

// untilRenewal is the time until a third of the lease is over.
func (l lease) untilRenewal() time.Duration { return max(retryAfter, time.Until(l.until)-2*l.ttl/3) }

// extend sets the end of the lease under which the status is written.
func (p *Presence) extend(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
	close(p.extended)
	p.extended = make(chan struct{})
}

// WaitRegistered waits until the lease lasts for as long as this dispatcher may judge by a listing that begins now, so that a
// caller that waits for all live dispatchers does not miss this one. The error wraps ErrUnannounced and the cause of ctx.
func (p *Presence) WaitRegistered(ctx context.Context) error {
	for {
		p.mu.Lock()
		left, extended := -store.Since(p.until), p.extended // a lease goes on while a machine is suspended
		p.mu.Unlock()
		if left >= p.LeaseCoverage() {
			return nil
		}
		select {
		case <-extended:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnannounced, context.Cause(ctx))
		}
	}
}

// neededTTL returns the time to live of a lease that covers the status.
func (p *Presence) neededTTL() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	ttl := time.Duration(p.ttl.Load())
	return max(ttl, leasePerAge*p.next.GetMaxConfigurationAge().AsDuration())
}

// beginLease writes the status under a new lease.
func (p *Presence) beginLease(ctx context.Context) (lease, error) {
	ttl, begun := p.neededTTL(), time.Now()
	granted, err := p.grant(ctx, ttl)
	if err != nil {
		return lease{}, fmt.Errorf("a lease of etcd: %w", err)
	}
	held := lease{granted.ID, ttl, begun.Add(ttl)}
	if err := p.write(ctx, held); err != nil {
		p.revoke(ctx, granted.ID)
		return lease{}, err
	}
	p.ttl.Store(int64(ttl))
	return held, nil
}

// update writes the status, under a longer lease if it needs one. The old lease ends after the status is written under the new
// one, so that this dispatcher is visible at all times.
func (p *Presence) update(ctx context.Context, held lease) (lease, error) {
	if p.neededTTL() == held.ttl {
		return held, p.write(ctx, held)
	}
	longer, err := p.beginLease(ctx)
	if err != nil {
		return held, err
	}
	p.revoke(ctx, held.id)
	return longer, nil
}

// grant returns a lease. If its answer is lost, the lease lapses by itself.
func (p *Presence) grant(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return Attempt(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return p.store.leases.Grant(ctx, int64((ttl+time.Second-1)/time.Second)) // etcd counts whole seconds
	})
}

// renew renews a lease. It reads the status first: a member that hung may have written an older one, and while no member
// answers, the client would repeat the renewal without a pause.
func (p *Presence) renew(ctx context.Context, held lease) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	there, err := p.store.get(ctx, p.store.keys.dispatcher(p.options.ID))
	if err != nil {
		return held, err
	}
	if p.said != "" && (len(there.Kvs) == 0 || string(there.Kvs[0].Value) != p.said) {
		p.rewrite()
	}
	begun := time.Now()
	_, err = Attempt(ctx, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		return p.store.leases.KeepAliveOnce(ctx, held.id)
	})
	if err != nil {
		return held, err
	}
	held.until = begun.Add(held.ttl)
	if p.said != "" {
		p.extend(held.until)
	}
	return held, nil
}

// write writes the status, if there is one, under a lease.
func (p *Presence) write(ctx context.Context, held lease) error {
	p.mu.Lock()
	report := p.next
	p.mu.Unlock()
	if report == nil {
		return nil
	}
	value, err := encodeReport(report)
	if err != nil {
		return fmt.Errorf("a report that cannot be stored: %w", err)
	}
	p.said = string(value)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = Attempt(ctx, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return p.store.kv.Put(ctx, p.store.keys.dispatcher(p.options.ID), p.said, clientv3.WithLease(held.id))
	})
	if err == nil {
		p.extend(held.until)
	}
	return err
}

// rewrite has Run write the status again.
func (p *Presence) rewrite() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// revoke ends a lease, so that nothing waits for a dispatcher that has stopped.
func (p *Presence) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	_, _ = p.store.leases.Revoke(ctx, lease)
}

// Dispatchers returns the report of each live dispatcher, in the order of their ids. Each has a status.
func (s *Store) Dispatchers(ctx context.Context) ([]*configv1.DispatcherReport, error) {
	answer, err := s.get(ctx, s.keys.dispatchers(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	out := make([]*configv1.DispatcherReport, len(answer.Kvs))
	for i, kv := range answer.Kvs {
		if out[i], err = decodeReport(kv.Value); err != nil {
			return nil, fmt.Errorf("etcd holds the report of a dispatcher in a form that cannot be read: %w", err)
		}
	}
	return out, nil
}

// decodeAll reads the JSON values of an answer.
func decodeAll[T any](answer *clientv3.GetResponse, what string) ([]T, error) {
	out := make([]T, len(answer.Kvs))
	for i, kv := range answer.Kvs {
		if err := json.Unmarshal(kv.Value, &out[i]); err != nil {
			return nil, fmt.Errorf("etcd holds %s in a form that cannot be read: %w", what, err)
		}
	}
	return out, nil
}
