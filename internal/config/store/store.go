// Package store keeps the configuration in force. A [Store] lists its sources every second, keeps the last good version of objects
// that became invalid, compiles beside the reviews, and lends a snapshot to a review only while it is known to be fresh.
//
// A generation is one set of listings with their snapshot; freshness is the rule by which it may judge.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Times of a Store (`spec/2`, SEMANTICS C50).
const (
	// DefaultMaxAge is how long ago the last successful listing may have begun for reviews to be judged by it.
	DefaultMaxAge = 5 * time.Second
	// ListInterval is the time from the start of one listing to the start of the next.
	ListInterval = time.Second
	// WatchDelay is the pause between a watch event and the listing, so that files that are written together are read together.
	WatchDelay = 20 * time.Millisecond
)

var (
	// ErrStale is the error of Store.Acquire when no fresh configuration came in time.
	ErrStale = errors.New("the configuration is stale")
	// ErrStopped is part of that error once Run has returned.
	ErrStopped = errors.New("the store has stopped")
)

// Options configure a Store.
type Options struct {
	// Sources are where the configuration comes from; at least one, each with a name of its own. The configuration is fresh
	// while each source is.
	Sources []config.Source
	// MaxAge is how long ago the last successful listing may have begun, for reviews of clusters whose documents do not say
	// another age (spec.maxConfigurationAge); 0 means DefaultMaxAge.
	MaxAge time.Duration
	// LeaseCoverage, if set, limits the maximum age that a Cluster may set: it returns how long other processes count this one as alive
	// after they have lost it. nil sets no limit. The store calls it for each review of a cluster with a maximum age of its own,
	// so it must be cheap.
	LeaseCoverage func() time.Duration
	// MaxWaitBytes bounds the bytes of the reviews that wait for a fresh configuration; 0 means DefaultMaxWaitBytes. Of one
	// cluster no more wait than it leaves free for the others: half, if it is alone.
	MaxWaitBytes int64
	// LastGood are objects that were in force before the process was started. One comes into force only in place of a document
	// that is not valid in the first generation.
	LastGood []config.Object
	// First, if set, checks the first configuration before it comes into force. Its error ends Run, and no review is judged.
	First func(Configuration) error
	// OnSnapshot, if set, is called with each new snapshot, in order, before a review can use it. Reviews begin with the snapshot
	// before until it returns. It must not block.
	OnSnapshot func(*match.Snapshot)
	// OnClusters, if set, is called with the Cluster documents, sorted by name, when they have changed, and before OnSnapshot. It
	// must not block.
	OnClusters func([]*kinds.Cluster)
	// Work has building and inspecting take turns with the other work beside reviews; nil: there is none. Inspecting rests, and authors rest from the
	// time of their changes.
	Work *turns.Queue
	// Logger logs generations, problems, and sources that fail and recover; nil means no log.
	Logger *slog.Logger
	// Inspect, if set, returns findings about a snapshot that is in force already. It runs on a goroutine of its own and delays no
	// change; of changes that come faster than it returns, it gets the latest. ctx ends with Run. It must not panic.
	Inspect func(ctx context.Context, s *match.Snapshot, objects []config.Object) config.Problems

	clock elapsedSince // nil means elapsedNow
}

// defaults fills optional fields and checks the sources.
func (o *Options) defaults() error {
	if len(o.Sources) == 0 {
		return errors.New("config: a store needs at least one source")
	}
	names := map[string]bool{}
	for _, s := range o.Sources {
		if names[s.Name()] {
			return fmt.Errorf("config: two sources are called %q", s.Name())
		}
		names[s.Name()] = true
	}
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.MaxWaitBytes = cmp.Or(o.MaxWaitBytes, DefaultMaxWaitBytes)
	o.Work = cmp.Or(o.Work, turns.NewQueue()).Apart()
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.clock == nil {
		o.clock = elapsedNow
	}
	return nil
}

// Store keeps the configuration in force. Its methods may be called concurrently; Run is called once.
//
// Readers load current and take no lock. The goroutine of Run owns the listing loop and is the only writer of current; pollers,
// watches, the builder and inspections run beside it.
type Store struct {
	opts     Options
	current  atomic.Pointer[generation] // in force; only the goroutine of Run writes it
	retained retained
	waiting  *waitQueue
	allowed  atomic.Pointer[allowance]
	counts   counts
	ended    chan struct{} // closed when Run returns
	problems *problemLog
}

// New returns a store without configuration: Run reads it.
func New(opts Options) (*Store, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	waiting, err := newWaitQueue(opts.MaxWaitBytes)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, waiting: waiting, ended: make(chan struct{}), problems: newProblemLog(opts)}
	s.current.Store(&generation{next: make(chan struct{})})
	s.allowed.Store(&allowance{next: make(chan struct{})})
	return s, nil
}

// Acquire returns the snapshot that judges a review of a cluster; bytes is the size of the review. It returns at once while the
// generation in force is fresh for the cluster (freshness.go). Else the review waits until one is, or until a Permit allows
// a stale one: stale is the text for the audit log then. The error is ErrStale: too many reviews wait already, ctx nears its
// end (AnswerReserve), or the store has ended. The caller calls Release with the snapshot. Acquire implements the dispatcher's
// Snapshots.
func (s *Store) Acquire(ctx context.Context, cluster string, bytes int64) (snapshot *match.Snapshot, stale string, err error) {
	for {
		g := s.current.Load()
		said, ok := s.mayJudge(g, cluster)
		if !ok {
			return s.await(ctx, cluster, bytes)
		}
		if s.begin(g, said) {
			return g.snapshot, said, nil
		}
	}
}

// Fresh is Acquire for a review of no bytes, of a cluster without a maximum age of its own.
func (s *Store) Fresh(ctx context.Context) (*match.Snapshot, error) {
	snapshot, _, err := s.Acquire(ctx, "", 0)
	return snapshot, err
}

// begin counts a review that begins with a generation. It returns false when another snapshot is in force already.
func (s *Store) begin(g *generation, stale string) bool {
	if !s.acquireSnapshot(g) {
		return false
	}
	if stale != "" {
		s.counts.stale.Add(1)
	}
	return true
}

// Configuration is the public view of the generation in force.
func (s *Store) Configuration() Configuration {
	g := s.current.Load()
	c := g.configuration()
	c.Judging, c.Fresh, c.Problems = s.mayJudgeAny(g), s.freshForAny(g), s.problems.all()
	return c
}

// Run lists the sources and puts their configuration into force until ctx ends. Listings go on while a change is decoded and
// compiled, so the generation in force stays fresh. It returns when all its goroutines have ended. The error is an error of
// Options.First.
func (s *Store) Run(ctx context.Context) error {
	defer close(s.ended)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan listed)
	for i, source := range s.opts.Sources {
		p := newPoller(source, i, s.opts.MaxAge)
		wg.Go(func() { p.poll(ctx, results) })
		wg.Go(func() { s.watch(ctx, i, p.notify) })
	}
	loop := newListingLoop(s)
	wg.Go(func() { loop.builder.run(ctx) })
	wg.Go(func() { loop.inspections.run(ctx, s) })
	return loop.run(ctx, results)
}

// publish puts a generation into force and wakes the reviews that wait. Only the goroutine of Run calls it, once for each value.
func (s *Store) publish(g *generation) {
	old := s.current.Load()
	g.ref, g.next = old.ref, make(chan struct{})
	another := g.ref == nil || g.ref.snapshot != g.snapshot
	if another {
		g.ref = &snapshotRef{snapshot: g.snapshot}
		if s.opts.OnSnapshot != nil {
			s.opts.OnSnapshot(g.snapshot)
		}
	}
	g.ref.latest.Store(g)
	s.current.Store(g)
	if another {
		s.retained.add(g.ref)
	}
	close(old.next)
	if s.age(g) <= s.opts.MaxAge { // one source may be listed while another one is not
		s.problems.waitEnded()
	}
}
