// Package service implements ConfigService, through which operators write the configuration, read it, and wait until a
// change is in force. [applyPlan] is the pure part: it decides which objects an apply writes. The methods read the store,
// make a plan and commit it.
package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
	"weak"

	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Objects stores objects; *etcdstore.Store does. Its methods may be called concurrently.
type Objects interface {
	Read(ctx context.Context, last *etcdstore.State) (*etcdstore.State, error)
	Commit(ctx context.Context, base *etcdstore.State, e etcdstore.Edit) (revision int64, err error)
	Changes(ctx context.Context, limit int) ([]etcdstore.Change, error)
	Dispatchers(ctx context.Context) ([]*configv1.DispatcherReport, error)
}

// Live returns the configuration in force in this dispatcher; *store.Store does. It may be called concurrently.
type Live interface {
	Configuration() store.Configuration
}

// Options configure a Service. Objects or Report, Live, Identity, Inspect and Decoder are required.
type Options struct {
	// Objects stores the objects; nil without a store. Then the configuration in force can be read, and nothing be written.
	Objects Objects
	// Report returns the report of this dispatcher. It is called without a store, where there are no reports of others; concurrently.
	Report func() *configv1.DispatcherReport
	// Sources names the places of the configuration beside the store, for people who look for the file to edit.
	Sources string
	// Live returns the configuration in force.
	Live Live
	// Identity returns the caller, from the certificate of the channel; the zero Peer if there is none.
	Identity func(ctx context.Context) identity.Peer
	// Operators have the role of an operator whatever the configuration contains, so that an operator can write the first Role.
	Operators identity.Grant
	// Inspect returns findings, dangers among them, about the objects that only selects: lint.Options.InspectOnly. The snapshot
	// is compiled from all objects.
	Inspect func(ctx context.Context, s *match.Snapshot, objects []config.Object, only func(config.Key) bool) config.Problems
	// ID names this dispatcher.
	ID string
	// Hooks returns how the hosts of this dispatcher serve the hooks in force, and those that were removed, in the order of the
	// configuration; nil if that is unknown. It may be called concurrently.
	Hooks func() []HookHosts
	// Hosts returns at most limit of the hosts of this dispatcher, in the order of their sessions, from behind a session on, and
	// whether others follow; of a hook alone unless its name is empty. nil if that is unknown. It may be called concurrently.
	Hosts func(hook, after string, limit int) (hosts []*configv1.Host, more bool)
	// Offers reports whether a connected host of this dispatcher offers a hook and may serve it by its route, which need not be in force; nil
	// if that is unknown. It may be called concurrently.
	Offers func(*match.Hook) bool
	// Latencies has where the time of recent reviews went; nil if that is unknown.
	Latencies *latency.Recorder
	// Shadows has the verdicts of hooks in shadow; nil if they are unknown.
	Shadows *shadow.Recorder
	// Decoder reads manifests; required. Expressions that the source of the store compiled with the same decoder are
	// not compiled again.
	Decoder *config.Decoder
	// Backup writes the whole store; nil when the store is not ours to back up. It may be called concurrently.
	Backup func(w io.Writer) error
	// Written bounds the bytes that authors, and the copies of each cluster's webhook configurations, write to the store over time; nil does not. Writes
	// of operators do not count.
	Written *etcdstore.WriteBudget
	// StoreUsage returns how full the store is; nil if that is unknown. It may be called concurrently.
	StoreUsage func() *etcdstore.Usage
	// Work has one call at a time occupy a processor, and callers rest in between; nil makes a queue that no other service shares.
	Work *turns.Queue
	// Logger receives the author and the objects of each change; nil logs nothing.
	Logger *slog.Logger
}

// Service implements configv1.ConfigServiceServer. It may be used concurrently.
type Service struct {
	configv1.UnimplementedConfigServiceServer
	analysisv1.UnimplementedAnalysisServiceServer

	o           Options
	now         func() time.Time
	started     time.Time
	sendTimeout time.Duration

	calls    *memory.Ledger // in flight, by identity
	streams  *memory.Ledger // open, by identity
	stopping chan struct{}  // closed by Drain
	drain    func()
	roles    *roleCache
	applies  *turns.Queue // one apply at a time is decided, so that the store has not moved meanwhile
	work     *turns.Queue // one call at a time occupies a processor
	shared   *turns.Queue // the same for work that callers share, which none of them holds up by its rest

	watching chan struct{}         // held while watched is read and made
	watched  weak.Pointer[watched] // of the latest listing: the watches hold it

	reporting   chan struct{}      // held while lastReports is read and made
	lastReports *dispatcherReports // nil before the first Wait

	mu      sync.Mutex   // guards the fields below
	last    *storedState // the latest that was read; nil before the first, and empty without a store
	decoder *etcdstore.Decoder
}

// New returns a service. It does no I/O.
func New(o Options) (*Service, error) {
	if o.Objects == nil && o.Report == nil || o.Live == nil || o.Identity == nil || o.Inspect == nil || o.Decoder == nil {
		return nil, errors.New("service: Objects or Report, Live, Identity, Inspect and Decoder are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Hooks == nil {
		o.Hooks = func() []HookHosts { return nil }
	}
	if o.Hosts == nil {
		o.Hosts = func(string, string, int) ([]*configv1.Host, bool) { return nil, false }
	}
	calls, err := memory.New(memory.Options{Total: MaxCalls})
	if err != nil {
		return nil, err
	}
	streams, err := memory.New(memory.Options{Total: MaxStreams})
	if err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	work := cmp.Or(o.Work, turns.NewQueue())
	var last *storedState
	if o.Objects == nil { // it never changes
		last = &storedState{state: &etcdstore.State{}, objects: map[config.Key]config.Object{}}
	}
	return &Service{
		o: o, now: time.Now, started: time.Now(), sendTimeout: sendTimeout, calls: calls, streams: streams,
		stopping: stopping, drain: sync.OnceFunc(func() { close(stopping) }),
		roles: newRoleCache(), applies: work.Beside(), work: work, shared: work.Apart(), watching: make(chan struct{}, 1),
		reporting: make(chan struct{}, 1), decoder: etcdstore.NewDecoder(o.Decoder), last: last,
	}, nil
}

// Drain ends the streams of Watch and Wait, which would delay a stop, and refuses new ones. Other calls are still answered.
func (s *Service) Drain() { s.drain() }

// MayCall returns nil if the caller has a role, or had one when the store was last read. A request of any other caller need
// not be read. The method that is called afterwards checks against the store.
func (s *Service) MayCall(ctx context.Context) error {
	leave, err := s.enter(ctx)
	if err == nil {
		leave()
	}
	return err
}
