// Package session serves the streams that hosts dialled, in layers that know only the layers below:
//
//   - Package stream has the session of one live stream: a pure state behind a lock, with one reader and one writer.
//   - Package pool picks a replica for each call of a hook, lets calls wait for a free slot, and retries them. Package hedge
//     decides about second attempts.
//   - The [Router] knows which sessions may serve which hooks.
//   - The [Server] is the gRPC edge.
//
// Locks are taken from the top: the router's, a pool's, a session's.
//
// Default deny: a host serves a hook only if a HookRoute grants it to the identity of its certificate, whatever it
// offers.
package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/pool"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// ErrClosed is the error of sessions that come after the router began to drain.
var ErrClosed = errors.New("session: closed")

// Options configure a router. The zero value is usable.
type Options struct {
	// ID names this dispatcher to hosts, unique per process start; empty means a random one.
	ID string
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
	// Logger gets sessions that come and go; nil means nowhere.
	Logger *slog.Logger
	// Beat is called about every TickInterval/TickShards of package stream while the router runs, with the time since the call before:
	// that is longer when the process did not get to run. It must not block; it may be nil.
	Beat func(now time.Time, since time.Duration)
}

// Router holds the sessions of one dispatcher and carries calls to them. It is a [review.Backend], and safe for
// concurrent use. [Router.Run] has to be running: it ends silent sessions, and calls that have waited for too long.
type Router struct {
	id      string
	log     *slog.Logger
	metrics *instrumentation
	beat    func(now time.Time, since time.Duration) // may be nil
	digests pool.Digests
	readied chan struct{}
	hooks   atomic.Pointer[hookTable]
	queued  atomic.Int64 // calls that wait, in all pools

	absences absences // of the goroutine of Run

	mu       sync.Mutex // the fields below, and every change of the hook table and of pools' members
	index    sessionIndex
	found    time.Time      // when the first session came
	peers    []*hostv1.Peer // never changed in place
	draining bool
}

var (
	_ review.Backend  = (*Router)(nil)
	_ review.Capacity = (*Router)(nil)
)

// New makes a router without hooks.
func New(o Options) (*Router, error) {
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	r := &Router{id: o.ID, log: o.Logger, beat: o.Beat, readied: make(chan struct{}, 1), digests: pool.NewDigests(), index: newSessionIndex()}
	r.hooks.Store(newHookTable(r.digests))
	var err error
	r.metrics, err = newInstrumentation(o.Metrics, r)
	return r, err
}

// Run looks after silence and waiting calls until ctx ends.
func (r *Router) Run(ctx context.Context) error {
	t := time.NewTicker(stream.TickInterval / stream.TickShards)
	defer t.Stop()
	var w watch
	for {
		select {
		case <-t.C:
			now := time.Now() // t is the time of a tick, which may have waited
			if since := now.Sub(w.last); r.beat != nil && !w.last.IsZero() {
				r.beat(now, since)
			}
			turn, missed := w.tick(now)
			if missed > 0 {
				r.discountStall(now, missed)
			}
			r.maintain(now, turn)
		case <-ctx.Done():
			return nil
		}
	}
}

// discountStall subtracts time in which this process did not run from the silence of all hosts.
func (r *Router) discountStall(now time.Time, missed time.Duration) {
	r.log.Warn("the dispatcher did not get to run; the silence of its hosts does not count", "for", missed)
	for turn := range stream.TickShards {
		for _, s := range r.shard(turn) {
			s.DiscountStall(now, missed)
		}
	}
}

// maintain checks the sessions of a shard, and with the first shard everything else.
func (r *Router) maintain(now time.Time, turn int) {
	for _, s := range r.shard(turn) {
		s.tick(now)
	}
	if turn > 0 {
		return
	}
	r.maintainQueues(now)
	r.logAbsences(now)
	if r.hooks.Load().expired(now) {
		r.forgetRemoved()
	}
}

// shard returns the sessions of a shard.
func (r *Router) shard(turn int) []*hostSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(make([]*hostSession, 0, len(r.index.shards[turn])), maps.Keys(r.index.shards[turn]))
}

// maintainQueues fails calls that have waited for too long, and submits others: a silent session may be good enough by now.
func (r *Router) maintainQueues(now time.Time) {
	if r.queued.Load() == 0 {
		return
	}
	for _, p := range r.hooks.Load().pools {
		p.Expire(now)
		p.ServeWaiting(now)
	}
}

func (r *Router) all() []*hostSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*hostSession, 0, len(r.index.sessions))
	for _, s := range r.index.sessions {
		out = append(out, s)
	}
	return out
}

// Start implements [review.Backend].
func (r *Router) Start(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	return pool.Start(b, r.hooks.Load(), r.metrics.hedges, done)
}

// Spare implements [review.Capacity].
func (r *Router) Spare(h *match.Hook, mode review.Mode, cluster string) bool {
	p := r.hooks.Load().Pool(h)
	return p != nil && p.HasSpare(mode, cluster)
}

// absentFrom is until when calls wait for another host, where the last host of their hook leaves now: a host that restarts or,
// where hosts have just begun to come, a host that has not found this dispatcher yet. The lock is held.
func (r *Router) absentFrom(now time.Time) time.Time {
	from := now.Add(pool.AbsenceGrace)
	if all := r.found.Add(StartGrace); all.After(from) {
		return all
	}
	return from
}

// Ready reports whether every hook that is served over streams has a session that takes calls, and the names of those that have none. It does
// not wait for hooks in shadow and for pending ones, which decide nothing.
func (r *Router) Ready() (missing []string) {
	v := r.hooks.Load()
	for id, p := range v.pools {
		if _, removed := v.removed[id]; !removed && p.OpenMembers() == 0 && p.Hook().Decides() {
			missing = append(missing, hookName(id))
		}
	}
	slices.Sort(missing)
	return missing
}

// Drain tells every host that this dispatcher is leaving, lets calls in flight finish, and ends the sessions. It returns
// when none is left or ctx ends; [Router.Run] has to be running.
func (r *Router) Drain(ctx context.Context, grace time.Duration) {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	now := time.Now()
	for _, s := range r.all() {
		s.Drain(now.Add(grace))
	}
	t := time.NewTicker(stream.TickInterval)
	defer t.Stop()
	for len(r.all()) > 0 {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
