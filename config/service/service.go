// Package service is ConfigService: operators write the configuration through it, read it, and learn when a change is in
// force. What an apply does is decided by [draft], which is pure; the methods read the store, ask it, and commit.
package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/identity"
)

// Limits of a request.
const (
	// MaxManifests bounds the objects of one apply.
	MaxManifests = 1000
	// MaxApplyBytes bounds the manifests of one apply, in bytes.
	MaxApplyBytes = 8 << 20
	// MaxApplyCompileTime bounds the time that compiling the matchConditions of one apply takes. Their number and length, which
	// config.DocumentLimit bounds for an apply as for a document, take a tenth of it: this one is for what nobody thought of.
	MaxApplyCompileTime = 10 * time.Second
	// maxAttempts bounds how often an apply is checked anew because another one was faster.
	maxAttempts = 20
)

// Objects is what the service keeps objects in. *etcdstore.Store is one; its methods may be called concurrently.
type Objects interface {
	Read(ctx context.Context, last *etcdstore.State) (*etcdstore.State, error)
	Commit(ctx context.Context, base *etcdstore.State, e etcdstore.Edit) (revision int64, err error)
	Changes(ctx context.Context, limit int) ([]etcdstore.Change, error)
	Dispatchers(ctx context.Context) ([]etcdstore.Status, error)
}

// Live is the configuration in force in this dispatcher. *config.Store is one; it may be asked concurrently.
type Live interface {
	Configuration() config.Configuration
}

// Options are what a Service works with. Objects, Live, Identity and Inspect are required.
type Options struct {
	// Objects keeps what is written.
	Objects Objects
	// Live is what is in force.
	Live Live
	// Identity is who calls, from the certificate of the channel; nobody when that cannot be told.
	Identity func(ctx context.Context) identity.Peer
	// Operators have the role of an operator whatever the configuration says: whoever writes the first Role.
	Operators identity.Grant
	// Inspect finds what there is to say about some of the objects and the snapshot of all of them, dangers among it:
	// lint.Options.InspectOnly.
	Inspect func(ctx context.Context, s *match.Snapshot, objects []config.Object, only func(config.Key) bool) config.Problems
	// Hosts is how the hosts of this dispatcher serve the hooks in force, in any order; nil when nobody knows. It may be called
	// concurrently.
	Hosts func() []HookHosts
	// Decoder reads manifests; nil means one of its own. What the source of the store shares is not compiled again.
	Decoder *config.Decoder
	// SendTimeout is how long a reader of Watch and Wait may take for a message before its stream ends with ABORTED; 0 means
	// DefaultSendTimeout.
	SendTimeout time.Duration
	// Backup writes the whole store, for who may restore it; nil when the store is not ours to back up. It may be called
	// concurrently.
	Backup func(w io.Writer) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger is told who changed what; nil means nobody is.
	Logger *slog.Logger
}

// Service implements configv1.ConfigServiceServer. It may be used concurrently.
type Service struct {
	configv1.UnimplementedConfigServiceServer

	o       Options
	streams streams
	calls   *memory.Ledger // under way, by identity
	roster  *roster
	turns   *turns

	mu      sync.Mutex // of what follows
	last    *base      // of the latest state that was read; nil before the first
	decoder etcdstore.Decoder
}

// New returns a service. It does no I/O.
func New(o Options) (*Service, error) {
	if o.Objects == nil || o.Live == nil || o.Identity == nil || o.Inspect == nil {
		return nil, errors.New("service: Objects, Live, Identity and Inspect are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Hosts == nil {
		o.Hosts = func() []HookHosts { return nil }
	}
	o.SendTimeout = cmp.Or(o.SendTimeout, DefaultSendTimeout)
	o.Decoder = cmp.Or(o.Decoder, config.NewDecoder())
	calls, err := memory.New(memory.Options{Total: MaxCalls})
	if err != nil {
		return nil, err
	}
	open, err := memory.New(memory.Options{Total: MaxStreams})
	if err != nil {
		return nil, err
	}
	return &Service{
		o: o, calls: calls, roster: newRoster(), streams: streams{timeout: o.SendTimeout, open: open, stopping: make(chan struct{})},
		turns: newTurns(), decoder: etcdstore.Decoder{Documents: o.Decoder},
	}, nil
}

// Drain ends the streams of Watch and Wait, which would hold up a stop, and refuses new ones. Other calls are answered on.
func (s *Service) Drain() { s.streams.stop() }

// MayCall is nil for who has a role, or had one when the store was last read: whoever has none is not worth reading a request
// of. Who asks calls a method afterwards, which asks the store.
func (s *Service) MayCall(ctx context.Context) error {
	leave, err := s.enter(ctx)
	if err == nil {
		leave()
	}
	return err
}

// base is what the store holds now, read linearizably, and what other sources hold beside it. It is immutable: bases of one
// state share what they know of it.
type base struct {
	state    *etcdstore.State
	objects  map[config.Key]config.Object // of the store
	others   map[config.Key]config.Object // of other sources, as they are in force here
	roles    []*kinds.RoleSpec            // of both
	problems config.Problems              // of the store's objects
	compiled *match.Snapshot              // what is in force here, for what is compiled after it; nil before the first
}

// read reads the base of a decision.
func (s *Service) read(ctx context.Context) (*base, error) {
	begun := s.o.Now()
	stored, err := s.stored(ctx)
	if err != nil {
		return nil, err
	}
	b := *stored
	b.roles = slices.Clone(b.roles)
	live := s.o.Live.Configuration()
	b.others, b.compiled = map[config.Key]config.Object{}, live.Snapshot()
	for key, o := range live.Objects {
		if o.Source != etcdstore.SourceName {
			b.others[key] = o
			b.grant(&o)
		}
	}
	s.roster.saw(b.roles, begun)
	return &b, nil
}

// stored is what the store holds now, without what other sources hold.
func (s *Service) stored(ctx context.Context) (*base, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	var known *etcdstore.State
	if last != nil {
		known = last.state
	}
	state, err := s.o.Objects.Read(ctx, known)
	switch {
	case err != nil:
		return nil, unavailable(err)
	case state == known:
		return last, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, problems := s.decoder.Decode(state)
	b := &base{state: state, problems: problems, objects: make(map[config.Key]config.Object, len(objects))}
	for i := range objects {
		b.objects[objects[i].Key] = objects[i]
		b.grant(&objects[i])
	}
	if s.last == nil || state.Revision >= s.last.state.Revision {
		s.last = b
	}
	return b, nil
}

// grant adds the role of an object, if it is one.
func (b *base) grant(o *config.Object) {
	if o.Role != nil {
		b.roles = append(b.roles, &o.Role.Spec)
	}
}

// with are those objects of the store and those of other sources, in the order of their keys.
func (b *base) with(stored map[config.Key]config.Object) []config.Object {
	all := make([]config.Object, 0, len(b.others)+len(stored))
	all = slices.AppendSeq(slices.AppendSeq(all, maps.Values(b.others)), maps.Values(stored))
	slices.SortFunc(all, func(x, y config.Object) int { return cmp.Or(x.Compare(y.Key), cmp.Compare(x.Source, y.Source)) })
	return all
}

// unavailable is the answer when the store does not say anything.
func unavailable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Errorf(codes.Unavailable, "the store of the configuration does not answer: %v", err)
}
