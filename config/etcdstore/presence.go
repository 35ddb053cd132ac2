package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Times of a Presence.
const (
	// DefaultLeaseTTL is how long what a dispatcher has said of itself counts after it was said last. It is longer than a
	// configuration may be old: a dispatcher whose lease has lapsed could not list either, and judges nothing.
	DefaultLeaseTTL = 10 * time.Second
	// retryAfter is the pause after etcd did not answer.
	retryAfter = 500 * time.Millisecond
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
	// StaleUntil is until when reviews are judged by a configuration that is too old; zero is the usual case.
	StaleUntil time.Time `json:"staleUntil,omitzero"`
	// Said is when it said so.
	Said time.Time `json:"said"`
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

	mu   sync.Mutex
	next *Status       // what is to be said
	news chan struct{} // holds one token while it has not been said
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
	return &Presence{store: s, options: o, news: make(chan struct{}, 1)}, nil
}

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
		pause(ctx, retryAfter)
	}
	return nil
}

// live is one life of a lease.
func (p *Presence) live(ctx context.Context) error {
	lease, err := p.store.leases.Grant(ctx, int64(p.options.TTL/time.Second))
	if err != nil {
		return fmt.Errorf("a lease of etcd: %w", err)
	}
	defer p.leave(ctx, lease.ID)
	beat := time.NewTicker(p.options.TTL / 3)
	defer beat.Stop()
	if err := p.say(ctx, lease.ID); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.news:
			err = p.say(ctx, lease.ID)
		case <-beat.C:
			_, err = p.store.leases.KeepAliveOnce(ctx, lease.ID)
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("the lease of etcd has lapsed: %w", err)
		}
		if err != nil {
			p.options.Logger.Warn("other dispatchers cannot be told what is in force here", "error", err)
			pause(ctx, retryAfter)
			p.again()
		}
	}
}

// say writes the status under the lease.
func (p *Presence) say(ctx context.Context, lease clientv3.LeaseID) error {
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
	ctx, cancel := context.WithTimeout(ctx, p.options.TTL)
	defer cancel()
	_, err = p.store.kv.Put(ctx, p.store.keys.dispatcher(p.options.ID), string(value), clientv3.WithLease(lease))
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
	answer, err := s.kv.Get(ctx, s.keys.dispatchers(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
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

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
