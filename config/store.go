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
	// Compile makes a snapshot of the objects that come into force, given the last one, which is nil at first; nil means
	// Recompile of this package.
	Compile func(last *match.Snapshot, revision string, objects []Object) (*match.Snapshot, Problems)
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
	if o.Compile == nil {
		o.Compile = Recompile
	}
	if o.clock == nil {
		o.clock = elapsedNow
	}
	return nil
}

// Store keeps the configuration in force. Its methods may be called concurrently; Run is called once.
type Store struct {
	opts    StoreOptions
	current atomic.Pointer[edition]
	shelf   shelf
	hold    *hold
	allowed atomic.Pointer[allowance]
	counts  counts
	ended   chan struct{} // closed when Run returns
	report  *report
}

// edition is a snapshot in force, and what the listings have shown of it.
type edition struct {
	lent    *lent // nil before the first
	settled *settled
	standing
	next chan struct{} // closed when another edition is in force
}

// NewStore returns a store without configuration: Run reads it.
func NewStore(opts StoreOptions) (*Store, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	held, err := newHold(opts.MaxHeldBytes)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, hold: held, ended: make(chan struct{}), report: newReport(opts)}
	s.current.Store(&edition{next: make(chan struct{})})
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
		e := s.current.Load()
		said, ok := s.judges(e, cluster)
		if !ok {
			return s.await(ctx, cluster, bytes)
		}
		if s.begin(e, said) {
			return e.lent.snapshot, said, nil
		}
	}
}

// Fresh is Take for a review of no bytes, of a cluster that nothing is said about.
func (s *Store) Fresh(ctx context.Context) (*match.Snapshot, error) {
	snapshot, _, err := s.Take(ctx, "", 0)
	return snapshot, err
}

// age is how long ago the oldest of the listings of an edition began.
func (s *Store) age(e *edition) time.Duration { return s.opts.clock(e.begun).longer() }

// judges reports whether a review of a cluster may begin with an edition now, and if that is by a permit alone, what the
// audit log is told.
func (s *Store) judges(e *edition, cluster string) (stale string, ok bool) {
	age := s.age(e)
	if age <= s.limit(e, cluster) {
		return "", true
	}
	if p := s.permits(e); p != nil {
		return p.audit(age), true
	}
	return "", false
}

// begin has a review begin with an edition, unless another one is in force already.
func (s *Store) begin(e *edition, stale string) bool {
	if !s.lend(e) {
		return false
	}
	if stale != "" {
		s.counts.stale.Add(1)
	}
	return true
}

// await is the slow road of Take.
func (s *Store) await(ctx context.Context, cluster string, bytes int64) (snapshot *match.Snapshot, stale string, err error) {
	leave, err := s.hold.enter(cluster, bytes)
	if err != nil {
		s.counts.full.Add(1)
		return nil, "", fmt.Errorf("%w, and no more reviews may wait for it: %w", ErrStale, err)
	}
	defer leave()
	waiting, cancel := early(ctx)
	defer cancel()
	for {
		allowed, e := s.allowed.Load(), s.current.Load()
		said, ok := s.judges(e, cluster)
		switch {
		case !ok:
			s.report.held(e, s.tooOld)
		case s.begin(e, said):
			return e.lent.snapshot, said, nil
		}
		select {
		case <-e.next:
		case <-allowed.next:
		case <-s.ended:
			return nil, "", s.stopped()
		case <-waiting.Done():
			select {
			case <-s.ended: // a store that ends with an error ends what waits for it too
				return nil, "", s.stopped()
			default:
			}
			s.counts.over(ctx)
			return nil, "", errors.Join(s.tooOld(e), context.Cause(waiting))
		}
	}
}

// stopped is the error of a review that is held when the store ends.
func (s *Store) stopped() error {
	s.counts.stopped.Add(1)
	return fmt.Errorf("%w: %w", ErrStale, ErrStopped)
}

// tooOld says why an edition is not fresh.
func (s *Store) tooOld(e *edition) error {
	why := s.report.failure()
	if e.begun.IsZero() {
		return fmt.Errorf("%w: it has not been read yet%s", ErrStale, why)
	}
	if !e.superseded.IsZero() {
		why += fmt.Sprintf("; a newer configuration was listed %s ago and is not compiled yet", Since(e.superseded).Round(time.Millisecond))
	}
	return fmt.Errorf("%w: the last complete listing began %s ago%s", ErrStale, s.age(e).Round(time.Millisecond), why)
}

// Ready is nil while the reviews of some cluster are judged, and else says why none are: with clusters that are judged by an
// older configuration than others, a process that turned unready for the others would not be asked about these either.
func (s *Store) Ready() error {
	if e := s.current.Load(); !s.judging(e) {
		return s.tooOld(e)
	}
	return nil
}

// Notes are what has to be known of a store that is ready.
func (s *Store) Notes() []string {
	var notes []string
	e := s.current.Load()
	if p := s.Permitted(); p != nil {
		notes = append(notes, fmt.Sprintf("a stale configuration may judge until %s, by permit of %s: %s",
			p.Until.UTC().Format(time.RFC3339), p.Actor, p.Reason))
	}
	if s.age(e) > s.opts.MaxAge {
		notes = append(notes, s.tooOld(e).Error())
	}
	return notes
}

// judging reports whether the reviews of some cluster may begin with an edition now.
func (s *Store) judging(e *edition) bool {
	return s.age(e) <= s.longest(e) || s.permits(e) != nil
}

// Configuration is what is in force, and what is known about it.
func (s *Store) Configuration() Configuration {
	e := s.current.Load()
	c := Configuration{Begun: e.begun, Judging: s.judging(e), Fresh: s.age(e) <= s.longest(e), Problems: s.report.all(), next: e.next}
	if e.settled != nil {
		c.settled = *e.settled
	}
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
	in := newIntake(s)
	wg.Go(func() { in.forge.run(ctx) })
	wg.Go(func() { in.inspections.run(ctx, s) })
	return in.run(ctx, results)
}

// publish puts an edition into force and wakes who waits for it. Only the goroutine of Run calls it.
func (s *Store) publish(snapshot *match.Snapshot, of *settled, at standing) {
	l := s.current.Load().lent
	fresh := l == nil || l.snapshot != snapshot
	if fresh {
		l = &lent{snapshot: snapshot}
		if s.opts.OnSnapshot != nil {
			s.opts.OnSnapshot(snapshot)
		}
	}
	l.last.Store(of)
	e := &edition{lent: l, settled: of, standing: at, next: make(chan struct{})}
	old := s.current.Swap(e)
	if fresh {
		s.shelf.put(l)
	}
	close(old.next)
	if s.age(e) <= s.opts.MaxAge { // one source may be listed while another one is not
		s.report.released()
	}
}
