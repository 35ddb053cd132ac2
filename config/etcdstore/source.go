package etcdstore

import (
	"context"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// SourceName is the name of the source.
const SourceName = "etcd"

// Source is the store as a place that configuration comes from. Its methods may be called concurrently.
type Source struct {
	store *Store

	mu    sync.Mutex
	known known
	state *State // of the last listing

	decoding sync.Mutex
	decoder  Decoder
}

var _ config.Source = (*Source)(nil)

// Source returns the store as a source.
func (s *Store) Source() *Source { return &Source{store: s, decoder: Decoder{Documents: s.decoder}} }

// Name implements config.Source.
func (s *Source) Name() string { return SourceName }

// List implements config.Source. It is linearizable, and while nothing changes it asks for two keys. The revision is
// etcd's, a number. What is being removed is not in it.
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

// decode reads the manifests of a state.
func (s *Source) decode(state *State) ([]config.Object, config.Problems) {
	s.decoding.Lock()
	defer s.decoding.Unlock()
	return s.decoder.Decode(state)
}

// Watch implements config.Source: it tells of every transaction as soon as etcd has committed it. A watch that ends is
// begun anew.
func (s *Source) Watch(ctx context.Context, notify func()) error {
	for ctx.Err() == nil {
		s.watch(ctx, notify)
		clock.Sleep(ctx, retryAfter)
	}
	return nil
}

// watch is one watch. Why it ends does not matter: what lists says so too.
func (s *Source) watch(ctx context.Context, notify func()) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := s.store.watcher.Watch(ctx, s.store.keys.generation())
	notify() // for what changed before
	for answer := range changes {
		if answer.Err() != nil {
			return
		}
		notify()
	}
}

// Announced is the source for a dispatcher that judges by it: a listing begins once others know of the dispatcher, and fails
// with ErrUnannounced while they do not. A change that comes later waits for the dispatcher, one that came before is in
// the listing.
func (s *Source) Announced(p *Presence) config.Source { return announced{s, p} }

type announced struct {
	*Source

	presence *Presence
}

// List implements config.Source.
func (a announced) List(ctx context.Context) (config.Listing, error) {
	if err := a.presence.Known(ctx); err != nil {
		return config.Listing{}, err
	}
	return a.Source.List(ctx)
}
