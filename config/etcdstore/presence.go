package etcdstore

import (
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

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// Times of a Presence.
const (
	// DefaultLeaseTTL is how long what a dispatcher has said of itself counts after it was said last. It is leasePerAge times
	// as long as a configuration may be old: a dispatcher whose lease has lapsed could not list either, and judges nothing.
	DefaultLeaseTTL = leasePerAge * config.DefaultMaxAge
	// leasePerAge is how many times the maximum age of a configuration a lease lives. It is renewed three times in its life:
	// of a dispatcher that is cut off at the worst moment it lives a third of that longer than anything is judged.
	leasePerAge = 2
	// retryAfter is the pause after etcd did not answer.
	retryAfter = 500 * time.Millisecond
	// sayTimeout bounds what is asked of etcd, so that it is asked again while the lease lasts.
	sayTimeout = 2 * time.Second
	// leaveTimeout bounds the farewell.
	leaveTimeout = 2 * time.Second
)

// Status is what a dispatcher says of itself.
type Status struct {
	// ID is the dispatcher's, unique per process start.
	ID string `json:"id"`
	// Version is that of the program.
	Version string `json:"version"`
	// Digest names the configuration that new reviews are judged by, and Sources what each source calls it.
	Digest  string            `json:"digest"`
	Sources map[string]string `json:"sources"`
	// Held is the oldest revision of etcd that a review is still judged by.
	Held int64 `json:"held"`
	// Begun is when the oldest of the listings began that show the configuration to be in force.
	Begun time.Time `json:"begun"`
	// Judging is false while that is too long ago.
	Judging bool `json:"judging"`
	// Diverging are the objects, as KIND/NAME, of which an older version is in force here.
	Diverging []string `json:"diverging,omitempty"`
	// MaxAge is how old the configuration may be that the reviews of some cluster are judged by; zero is the usual age. The
	// lease becomes as long as that takes.
	MaxAge time.Duration `json:"maxAge,omitzero"`
	// Pending are hooks that wait for a host, and why, as far as there is room.
	Pending []PendingHook `json:"pending,omitempty"`
	// Unserved are hooks that no host of this dispatcher serves, as far as there is room, and UnservedMore how many others there
	// are.
	Unserved     []HookName `json:"unserved,omitempty"`
	UnservedMore int        `json:"unservedMore,omitempty"`
	// EntryDrifts are the clusters whose API servers call this dispatcher by entries that were made from another configuration than
	// the one in force here, as far as there is room.
	EntryDrifts []EntryDrift `json:"entryDrifts,omitempty"`
	// StaleUntil is until when reviews are judged by a configuration that is too old; zero is the usual case.
	StaleUntil time.Time `json:"staleUntil,omitzero"`
	// Said is when it said so.
	Said time.Time `json:"said"`
}

// HookName names a hook in a status.
type HookName struct {
	// Object is the configuration, as KIND/NAME, and Hook the name of the hook.
	Object string `json:"object"`
	Hook   string `json:"hook"`
}

// EntryDrift is how the entries of a cluster differ from the configuration.
type EntryDrift struct {
	// Cluster is its name.
	Cluster string `json:"cluster"`
	// Unplanned are hooks that the entries were not made from, as far as there is room, and UnplannedMore how many others there are.
	Unplanned     []HookName `json:"unplanned,omitempty"`
	UnplannedMore int        `json:"unplannedMore,omitempty"`
	// Gone is how many hooks the entries were made from that are no longer there as they were.
	Gone int `json:"gone,omitempty"`
}

// What a pending hook waits for, as a dispatcher knows it.
const (
	// PendingNobody: no route grants the hook to a host.
	PendingNobody = "NobodyGranted"
	// PendingMissing: no host that may serve the hook is connected.
	PendingMissing = "HostsMissing"
	// PendingUnanswered: no host has answered its probe yet.
	PendingUnanswered = "Unanswered"
	// PendingNotReady: the host that answered last is not ready; it has said why.
	PendingNotReady = "HostNotReady"
	// PendingReady: a host is ready, and the store has not been told yet.
	PendingReady = "HostReady"
)

// PendingHook is a hook that is not in rotation yet.
type PendingHook struct {
	// Object is the configuration, as KIND/NAME, and Hook the name of the hook.
	Object string `json:"object"`
	Hook   string `json:"hook"`
	// Reason is one of the Pending constants, and Message the same for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// PresenceOptions configure a Presence.
type PresenceOptions struct {
	// ID is the dispatcher's; required.
	ID string
	// TTL is how long a status counts; 0 means DefaultLeaseTTL. Whole seconds, at least as long as a configuration may be old.
	TTL time.Duration
	// Logger is told when the others cannot be told; nil means nobody is.
	Logger *slog.Logger
}

// Presence tells the other dispatchers and ConfigService what this one has in force, for as long as it lives. Tell may be
// called concurrently; Run is called once.
type Presence struct {
	store   *Store
	options PresenceOptions
	said    string // last; of the goroutine of Run

	mu       sync.Mutex
	next     *Status       // what is to be said
	until    time.Time     // when what was said counts no more; zero while nothing is said
	extended chan struct{} // closed when until is another one

	news chan struct{} // holds one token while what is next has not been said
	ttl  atomic.Int64  // of the lease under which it is said, in ns
}

// Presence returns a presence that has said nothing yet.
func (s *Store) Presence(o PresenceOptions) (*Presence, error) {
	if o.ID == "" {
		return nil, errors.New("etcdstore: a dispatcher needs an id to be known by")
	}
	if o.TTL == 0 {
		o.TTL = DefaultLeaseTTL
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Presence{store: s, options: o, news: make(chan struct{}, 1), extended: make(chan struct{})}
	p.ttl.Store(int64(o.TTL))
	return p, nil
}

// Covers is how old a configuration may be, at most, that this dispatcher judges by: others wait for it until it judges by
// none that is older. It grows with Status.MaxAge once etcd has granted a longer lease, and never shrinks: who has been told
// of the longer one goes on waiting.
func (p *Presence) Covers() time.Duration { return time.Duration(p.ttl.Load()) / leasePerAge }

// Tell replaces what is said. It does not wait; of several the last one counts.
func (p *Presence) Tell(status Status) {
	p.mu.Lock()
	p.next = &status
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// Run says what was told, and that this dispatcher lives, until ctx ends; then it says that it has left. While etcd does
// not answer it tries on.
func (p *Presence) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.live(ctx); err != nil && ctx.Err() == nil {
			p.options.Logger.Warn("other dispatchers cannot be told what is in force here", "error", err)
		}
		clock.Sleep(ctx, retryAfter)
	}
	return nil
}

// live says what there is to say under a lease, and under a longer one when that is needed, until etcd knows the lease no
// more.
func (p *Presence) live(ctx context.Context) error {
	held, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		p.extend(time.Time{})
		p.leave(ctx, held.id)
	}()
	beat := time.NewTimer(held.beat())
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.news:
			held, err = p.tell(ctx, held)
		case <-beat.C:
			held, err = p.renew(ctx, held)
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("the lease of etcd has lapsed: %w", err)
		}
		if err != nil {
			p.options.Logger.Warn("other dispatchers cannot be told what is in force here", "error", err)
			clock.Sleep(ctx, retryAfter)
			p.again()
		}
		beat.Reset(held.beat())
	}
}

// lease is a lease of etcd, and when it lapses at the earliest.
type lease struct {
	id    clientv3.LeaseID
	ttl   time.Duration
	until time.Time
}

// beat is how long it is until a lease has to be renewed, which is when a third of its life has gone.
func (l lease) beat() time.Duration { return max(retryAfter, time.Until(l.until)-2*l.ttl/3) }

// extend sets until when others know of this dispatcher.
func (p *Presence) extend(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
	close(p.extended)
	p.extended = make(chan struct{})
}

// Known waits until others know of this dispatcher for as long as it may judge by what it lists from now on. Who waits for
// all live dispatchers must not miss one that judges. The error is ErrUnannounced, and why ctx has ended.
func (p *Presence) Known(ctx context.Context) error {
	for {
		p.mu.Lock()
		left, extended := -config.Since(p.until), p.extended // a lease goes on while a machine is suspended
		p.mu.Unlock()
		if left >= p.Covers() {
			return nil
		}
		select {
		case <-extended:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnannounced, context.Cause(ctx))
		}
	}
}

// needed is how long a lease has to be for what is to be said.
func (p *Presence) needed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	ttl := time.Duration(p.ttl.Load())
	if p.next != nil {
		ttl = max(ttl, leasePerAge*p.next.MaxAge)
	}
	return ttl
}

// begin says what there is to say under a new lease.
func (p *Presence) begin(ctx context.Context) (lease, error) {
	ttl, begun := p.needed(), time.Now()
	granted, err := p.grant(ctx, ttl)
	if err != nil {
		return lease{}, fmt.Errorf("a lease of etcd: %w", err)
	}
	held := lease{granted.ID, ttl, begun.Add(ttl)}
	if err := p.say(ctx, held); err != nil {
		p.leave(ctx, granted.ID)
		return lease{}, err
	}
	p.ttl.Store(int64(ttl))
	return held, nil
}

// tell says what there is to say, under a longer lease if that is needed. The old one ends once it is said under the new
// one: at no moment does nobody know of this dispatcher.
func (p *Presence) tell(ctx context.Context, held lease) (lease, error) {
	if p.needed() == held.ttl {
		return held, p.say(ctx, held)
	}
	longer, err := p.begin(ctx)
	if err != nil {
		return held, err
	}
	p.leave(ctx, held.id)
	return longer, nil
}

// grant returns a lease. One that was granted and not told of lapses by itself.
func (p *Presence) grant(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	return attempt(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return p.store.leases.Grant(ctx, int64((ttl+time.Second-1)/time.Second)) // etcd counts whole seconds
	})
}

// renew has a lease live on. It looks first at what is said there: a member that hung may have written something older, and
// while none answers the client would ask for the lease without a pause.
func (p *Presence) renew(ctx context.Context, held lease) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	there, err := p.store.get(ctx, p.store.keys.dispatcher(p.options.ID))
	if err != nil {
		return held, err
	}
	if p.said != "" && (len(there.Kvs) == 0 || string(there.Kvs[0].Value) != p.said) {
		p.again()
	}
	begun := time.Now()
	_, err = attempt(ctx, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
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

// say writes the status under the lease, if there is one to be said.
func (p *Presence) say(ctx context.Context, held lease) error {
	p.mu.Lock()
	status := p.next
	p.mu.Unlock()
	if status == nil {
		return nil
	}
	status.ID = p.options.ID
	value, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("a status that cannot be stored: %w", err)
	}
	p.said = string(value)
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	_, err = attempt(ctx, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return p.store.kv.Put(ctx, p.store.keys.dispatcher(p.options.ID), p.said, clientv3.WithLease(held.id))
	})
	if err == nil {
		p.extend(held.until)
	}
	return err
}

// again makes what could not be said due again.
func (p *Presence) again() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// leave gives the lease back, so that nobody waits for a dispatcher that has gone.
func (p *Presence) leave(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_, _ = p.store.leases.Revoke(ctx, lease)
}

// Dispatchers are what the live dispatchers say of themselves, in the order of their ids.
func (s *Store) Dispatchers(ctx context.Context) ([]Status, error) {
	answer, err := s.get(ctx, s.keys.dispatchers(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	out := make([]Status, 0, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		status := Status{}
		if err := json.Unmarshal(kv.Value, &status); err != nil {
			return nil, fmt.Errorf("etcd holds the status of a dispatcher in a form that cannot be read: %w", err)
		}
		out = append(out, status)
	}
	return out, nil
}
