package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// How a Store keeps its promise (`spec/2`, SEMANTICS C50).
const (
	// DefaultMaxAge is how long ago the last successful listing may have begun for reviews to be judged by it.
	DefaultMaxAge = 5 * time.Second
	// ListInterval is the time from the beginning of one listing to that of the next.
	ListInterval = time.Second
	// WatchDelay is how long a change that a source noticed waits for those that belong to it: files are written one
	// after the other.
	WatchDelay = 20 * time.Millisecond
)

var (
	// ErrStale is the error of Store.Take when nothing may be judged: no listing of every source has succeeded lately.
	ErrStale = errors.New("the configuration is stale")
	// ErrStopped is part of that error once Run has returned.
	ErrStopped = errors.New("the store has stopped")
)

// StoreOptions configure a Store.
type StoreOptions struct {
	// Sources are where the configuration comes from; at least one, each with a name of its own. The configuration is
	// fresh while that of every source is.
	Sources []Source
	// MaxAge is how long ago the last successful listing may have begun, for reviews of clusters whose documents do not say
	// another age (spec.maxConfigurationAge); 0 means DefaultMaxAge.
	MaxAge time.Duration
	// Cover, if set, is the longest that others go on taking this process for alive after it cannot reach them any more:
	// nothing that is older is judged by, whatever a Cluster says. nil means that nobody has to know. It is asked for each
	// review of a cluster with an age of its own, and must be cheap.
	Cover func() time.Duration
	// MaxHeldBytes bounds the bytes of the reviews that wait for a fresh configuration; 0 means DefaultMaxHeldBytes. Of one
	// cluster no more wait than it leaves free for the others: half, if it is alone.
	MaxHeldBytes int64
	// LastGood are objects that were in force before the process was started. Of a document that is bad from the start the version
	// among them comes into force; no other one does.
	LastGood []Object
	// First, if set, is asked about the first configuration before it comes into force, however late that is. Its error ends Run,
	// so that nothing is ever judged by it.
	First func(Configuration) error
	// OnSnapshot, if set, is told each new snapshot, in order, right before it comes into force: who serves its hooks knows
	// them before a review does. Reviews by the one before begin until it returns, and go on after that. It must not block.
	OnSnapshot func(*match.Snapshot)
	// OnClusters, if set, is told the Cluster documents of each new configuration, by name, before OnSnapshot is told its
	// snapshot. It must not block either.
	OnClusters func([]*kinds.Cluster)
	// Logger is told what becomes bad and good again; nil means nobody is.
	Logger *slog.Logger
	// Inspect, if set, finds what there is to say about a snapshot and its objects when they are in force already, beside
	// everything else: it delays no change. Of changes that come faster it sees the latest. ctx ends with Run. It must not panic.
	Inspect func(ctx context.Context, s *match.Snapshot, objects []Object) Problems

	clock clock // nil means elapsedNow
}

// defaults fills what was left out, and returns an error for what must not be.
func (o *StoreOptions) defaults() error {
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
	o.MaxHeldBytes = cmp.Or(o.MaxHeldBytes, DefaultMaxHeldBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.clock == nil {
		o.clock = elapsedNow
	}
	return nil
}

// Store keeps the configuration in force. Its methods may be called concurrently; Run is called once.
type Store struct {
	opts     StoreOptions
	current  atomic.Pointer[generation] // in force; only the goroutine of Run writes it
	retained retained
	waiting  *waitQueue
	allowed  atomic.Pointer[allowance]
	counts   counts
	ended    chan struct{} // closed when Run returns
	report   *report
}

// NewStore returns a store without configuration: Run reads it.
func NewStore(opts StoreOptions) (*Store, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	waiting, err := newWaitQueue(opts.MaxHeldBytes)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, waiting: waiting, ended: make(chan struct{}), report: newReport(opts)}
	s.current.Store(&generation{next: make(chan struct{})})
	s.allowed.Store(&allowance{next: make(chan struct{})})
	return s, nil
}

// Take returns the snapshot that a review of a cluster is judged by, which holds so many bytes. While the last successful
// listing of every source began at most the cluster's maximum age ago, and showed that snapshot or, for MaxCompileTime at
// most, one that is being compiled, it does so at once; else the review is held until that is so again. The error is
// ErrStale: too much is held already, ctx nears its end (AnswerReserve), or the store has ended. The caller gives the
// snapshot back with Release. stale is not empty when the snapshot is too old and a Permit holds: the words for the audit
// log. It implements the dispatcher's Snapshots.
func (s *Store) Take(ctx context.Context, cluster string, bytes int64) (snapshot *match.Snapshot, stale string, err error) {
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

// Fresh is Take for a review of no bytes, of a cluster that nothing is said about.
func (s *Store) Fresh(ctx context.Context) (*match.Snapshot, error) {
	snapshot, _, err := s.Take(ctx, "", 0)
	return snapshot, err
}

// begin has a review begin with a generation, unless another snapshot is in force already.
func (s *Store) begin(g *generation, stale string) bool {
	if !s.acquireSnapshot(g) {
		return false
	}
	if stale != "" {
		s.counts.stale.Add(1)
	}
	return true
}

// Configuration is what is in force, and what is known about it.
func (s *Store) Configuration() Configuration {
	g := s.current.Load()
	c := g.configuration()
	c.Judging, c.Fresh, c.Problems = s.mayJudgeAny(g), s.freshForAny(g), s.report.all()
	return c
}

// Problems are what the writers of documents and the operators of sources have to know now.
func (s *Store) Problems() Problems { return s.report.all() }

// Run lists the sources, and puts what they hold into force, until ctx ends. Listings are taken while a change is decoded and
// compiled: what is in force stays fresh. It returns when everything that it started has ended. The error is that of
// StoreOptions.First.
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
		s.report.released()
	}
}
