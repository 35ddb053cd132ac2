package service

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// reading is the line of the work to decode the state of the store, which all callers share.
const reading = "store"

// storedState is the content of the store, read linearizably, beside the objects of other sources. It is immutable; two of
// one etcd state share its maps.
type storedState struct {
	state    *etcdstore.State
	objects  map[config.Key]config.Object // of the store
	others   map[config.Key]config.Object // of other sources, as they are in force here
	roles    []*kinds.RoleSpec            // of both
	problems config.Problems              // of the store's objects
	compiled *match.Snapshot              // in force here, from which the next is compiled; nil before the first
}

// read returns the state that a decision is based on.
func (s *Service) read(ctx context.Context) (*storedState, error) {
	begun := s.now()
	stored, err := s.readStore(ctx)
	if err != nil {
		return nil, err
	}
	st := *stored
	st.roles = slices.Clone(st.roles)
	live := s.o.Live.Configuration()
	st.others, st.compiled = map[config.Key]config.Object{}, live.Snapshot()
	for key, o := range live.Objects {
		if o.Source != etcdstore.SourceName {
			st.others[key] = o
			st.addRole(&o)
		}
	}
	s.roles.update(st.roles, begun)
	return &st, nil
}

// readStore returns the state without the objects of other sources.
func (s *Service) readStore(ctx context.Context) (*storedState, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if !s.hasStore() {
		return last, nil
	}
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
	done, err := wait(ctx, s.shared, reading, false) // for all who read
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.state.Revision >= state.Revision {
		return s.last, nil // another call has decoded it meanwhile, or a later one: the decoder would hold objects that are deleted
	}
	objects, problems := s.decoder.Decode(state)
	s.last = &storedState{state: state, problems: problems, objects: make(map[config.Key]config.Object, len(objects))}
	for i := range objects {
		s.last.objects[objects[i].Key] = objects[i]
		s.last.addRole(&objects[i])
	}
	return s.last, nil
}

func (st *storedState) addRole(o *config.Object) {
	if o.Role != nil {
		st.roles = append(st.roles, &o.Role.Spec)
	}
}

// allWith returns these objects of the store and the objects of other sources, in the order of their keys.
func (st *storedState) allWith(stored map[config.Key]config.Object) []config.Object {
	all := make([]config.Object, 0, len(st.others)+len(stored))
	all = slices.AppendSeq(slices.AppendSeq(all, maps.Values(st.others)), maps.Values(stored))
	slices.SortFunc(all, func(x, y config.Object) int { return cmp.Or(x.Compare(y.Key), cmp.Compare(x.Source, y.Source)) })
	return all
}

func unavailable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Errorf(codes.Unavailable, "the store of the configuration does not answer: %v", err)
}
