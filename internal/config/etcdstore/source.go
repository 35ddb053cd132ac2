package etcdstore

import (
	"context"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// SourceName is the name of the source.
const SourceName = "etcd"

// Source is the store as a source of configuration. Its methods may be called concurrently.
type Source struct {
	store *Store

	mu    sync.Mutex
	known known
	state *State // of the last listing

	decoding sync.Mutex
	decoder  *Decoder
}

var _ config.Source = (*Source)(nil)

// Source returns the store as a source, whose manifests the decoder reads.
func (s *Store) Source(documents *config.Decoder) *Source {
	return &Source{store: s, decoder: NewDecoder(documents)}
}

// Name implements config.Source.
func (s *Source) Name() string { return SourceName }

// List implements config.Source. It is linearizable, and reads two keys while nothing changes. The revision is etcd's number.
// Objects that are being removed are left out.
func (s *Source) List(ctx context.Context) (config.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := s.store.Read(ctx, s.state)
	if err != nil {
		return config.Listing{}, s.known.missing(err)
	}
	if err := s.known.check(state.ID); err != nil {
		return config.Listing{}, err
	}
	s.state = state
	return config.Listing{
		Revision: strconv.FormatInt(state.Revision, 10),
		Decode:   func() ([]config.Object, config.Problems) { return s.decode(state) },
	}, nil
}

func (s *Source) decode(state *State) ([]config.Object, config.Problems) {
	s.decoding.Lock()
	defer s.decoding.Unlock()
	return s.decoder.Decode(state)
}

// Watch implements config.Source. It notifies of each transaction, and begins a new watch when one ends.
func (s *Source) Watch(ctx context.Context, notify func()) error {
	for ctx.Err() == nil {
		s.watch(ctx, notify)
		clock.Sleep(ctx, retryAfter)
	}
	return nil
}

// watch is one watch. It returns no error, since a listing fails for the same reason.
func (s *Source) watch(ctx context.Context, notify func()) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := s.store.watcher.Watch(ctx, s.store.keys.generation())
	notify() // for changes from before
	for answer := range changes {
		if answer.Err() != nil {
			return
		}
		notify()
	}
}

// Announced returns the source for a dispatcher that judges by it. A listing begins once the dispatcher is visible to others,
// and fails with ErrUnannounced before. A later change waits for the dispatcher, and an earlier one is in the listing.
func (s *Source) Announced(p *Presence) config.Source { return announced{s, p} }

type announced struct {
	*Source

	presence *Presence
}

func (a announced) List(ctx context.Context) (config.Listing, error) {
	if err := a.presence.WaitRegistered(ctx); err != nil {
		return config.Listing{}, err
	}
	return a.Source.List(ctx)
}
