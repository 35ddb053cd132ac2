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
	// MaxWaiters bounds the callers that wait in Fresh at the same time; the next one fails at once.
	MaxWaiters = 20_000
)

// ErrStale is the error of Store.Fresh when nothing may be judged: no listing of every source has succeeded lately.
var ErrStale = errors.New("the configuration is stale")

// StoreOptions configure a Store.
type StoreOptions struct {
	// Sources are where the configuration comes from; at least one, each with a name of its own. The configuration is
	// fresh while that of every source is.
	Sources []Source
	// MaxAge is how long ago the last successful listing may have begun; 0 means DefaultMaxAge.
	MaxAge time.Duration
	// OnSnapshot, if set, is told each new snapshot, in order, right before it comes into force: who serves its hooks knows
	// them before a review does. Reviews by the one before begin until it returns, and go on after that. It must not block.
	OnSnapshot func(*match.Snapshot)
	// OnClusters, if set, is told the Cluster documents of each new configuration, by name, before OnSnapshot is told its
	// snapshot. It must not block either.
	OnClusters func([]*kinds.Cluster)
	// Logger is told what becomes bad and good again; nil means nobody is.
	Logger *slog.Logger
	// Compile makes a snapshot of the objects that come into force, given the last one, which is nil at first; nil means
	// Recompile of this package.
	Compile func(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems)
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Compile == nil {
		o.Compile = Recompile
	}
	return nil
}

// Store keeps the configuration in force. Its methods may be called concurrently; Run is called once.
type Store struct {
	opts    StoreOptions
	current atomic.Pointer[edition]
	shelf   shelf
	waiters atomic.Int64
	ended   chan struct{} // closed when Run returns
	report  *report
}

// edition is a snapshot in force, and the listing that showed it to be the configuration.
type edition struct {
	lent    *lent // nil before the first
	settled *settled
	begun   time.Time     // of the oldest of the listings; zero before the first
	next    chan struct{} // closed when another edition is in force
}

// NewStore returns a store without configuration: Run reads it.
func NewStore(opts StoreOptions) (*Store, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	s := &Store{opts: opts, ended: make(chan struct{}), report: newReport(opts)}
	s.current.Store(&edition{next: make(chan struct{})})
	return s, nil
}

// Fresh returns the snapshot in force. While the last successful listing of every source began at most MaxAge ago it
// does so at once; else it waits until that is so again, and when ctx or the store ends first returns an error that is
// ErrStale. The caller gives the snapshot back with Release. It implements the dispatcher's Snapshots.
func (s *Store) Fresh(ctx context.Context) (*match.Snapshot, error) {
	for {
		e := s.current.Load()
		if !s.fresh(e) {
			return s.wait(ctx)
		}
		if s.lend(e) {
			return e.lent.snapshot, nil
		}
	}
}

func (s *Store) fresh(e *edition) bool { return time.Since(e.begun) <= s.opts.MaxAge }

// wait is the slow road of Fresh.
func (s *Store) wait(ctx context.Context) (*match.Snapshot, error) {
	defer s.waiters.Add(-1)
	if s.waiters.Add(1) > MaxWaiters {
		return nil, fmt.Errorf("%w, and %d callers wait for it already", ErrStale, MaxWaiters)
	}
	for {
		e := s.current.Load()
		if s.fresh(e) && s.lend(e) {
			return e.lent.snapshot, nil
		}
		select {
		case <-e.next:
		case <-s.ended:
			return nil, fmt.Errorf("%w: the store has stopped", ErrStale)
		case <-ctx.Done():
			return nil, errors.Join(s.stale(e), context.Cause(ctx))
		}
	}
}

// stale says why an edition is not fresh.
func (s *Store) stale(e *edition) error {
	why := s.report.failure()
	if e.begun.IsZero() {
		return fmt.Errorf("%w: it has not been read yet%s", ErrStale, why)
	}
	return fmt.Errorf("%w: the last complete listing began %s ago%s", ErrStale, time.Since(e.begun).Round(time.Millisecond), why)
}

// Ready is nil while Fresh answers at once, and else says why it does not.
func (s *Store) Ready() error {
	if e := s.current.Load(); !s.fresh(e) {
		return s.stale(e)
	}
	return nil
}

// Configuration is what is in force, and what is known about it.
func (s *Store) Configuration() Configuration {
	e := s.current.Load()
	c := Configuration{Begun: e.begun, Judging: s.fresh(e), Problems: s.report.all(), next: e.next}
	if e.settled != nil {
		c.settled = *e.settled
	}
	return c
}

// Problems are what the writers of documents and the operators of sources have to know now.
func (s *Store) Problems() Problems { return s.report.all() }

// Run lists the sources, and puts what they hold into force, until ctx ends. It returns when everything that it started
// has ended.
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
		wg.Go(func() { s.report.watched(i, source.Watch(ctx, p.notify)) })
	}
	f := newForge(s)
	for {
		select {
		case r := <-results:
			f.take(r)
		case <-ctx.Done():
			return nil
		}
	}
}

// publish puts an edition into force and wakes who waits for it. Only the goroutine of Run calls it.
func (s *Store) publish(snapshot *match.Snapshot, of *settled, begun time.Time) {
	l := s.current.Load().lent
	fresh := l == nil || l.snapshot != snapshot
	if fresh {
		l = &lent{snapshot: snapshot}
		if s.opts.OnSnapshot != nil {
			s.opts.OnSnapshot(snapshot)
		}
	}
	l.last.Store(of)
	old := s.current.Swap(&edition{lent: l, settled: of, begun: begun, next: make(chan struct{})})
	if fresh {
		s.shelf.put(l)
	}
	close(old.next)
}
