package service

import (
	"context"
	"maps"
	"slices"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

// meshState is the configuration with the reports of the dispatchers and hosts about it. It is immutable.
type meshState struct {
	*storedState

	live        store.Configuration
	dispatchers []*configv1.DispatcherReport
	hosts       map[config.Key][]HookHosts     // of the hooks that hosts serve here, by configuration and by HookRoute
	modes       map[config.Key]*modes          // of the objects with hooks
	actions     map[config.Key]string          // actionsOf
	byKey       map[config.Key]config.Problems // of the store and of the configuration in force here, each once
}

// openState admits a call and reads the state for it. leave has to be called at the end of the call.
func (s *Service) openState(ctx context.Context) (m *meshState, leave func(), err error) {
	entered, err := s.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	m, done, err := s.readMesh(ctx)
	if err != nil {
		entered()
		return nil, nil, err
	}
	return m, func() { done(); entered() }, nil
}

// readMesh reads the state for a caller that may read, whose turn begins.
func (s *Service) readMesh(ctx context.Context) (_ *meshState, done func(), err error) {
	st, err := s.readFor(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.gatherInTurn(ctx, st, s.turn)
}

// readFor reads the configuration for a caller that may read.
func (s *Service) readFor(ctx context.Context) (*storedState, error) {
	st, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	return st, st.accessOf(s.o.Identity(ctx), s.o.Operators).mayRead()
}

// gatherInTurn is gather in a turn, which begins.
func (s *Service) gatherInTurn(
	ctx context.Context, st *storedState, turn func(context.Context) (func(), error),
) (_ *meshState, done func(), err error) {
	dispatchers, err := s.dispatchers(ctx)
	if err != nil {
		return nil, nil, err
	}
	done, err = turn(ctx)
	if err != nil {
		return nil, nil, err
	}
	return s.join(st, dispatchers), done, nil
}

// gather adds the reports of the dispatchers and hosts to the configuration.
func (s *Service) gather(ctx context.Context, st *storedState) (*meshState, error) {
	dispatchers, err := s.dispatchers(ctx)
	if err != nil {
		return nil, err
	}
	return s.join(st, dispatchers), nil
}

// dispatchers returns the reports of the live dispatchers; without a store, of this one alone.
func (s *Service) dispatchers(ctx context.Context) ([]*configv1.DispatcherReport, error) {
	if !s.hasStore() {
		return []*configv1.DispatcherReport{s.o.Report()}, nil
	}
	all, err := s.o.Objects.Dispatchers(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

// join adds the reports of the dispatchers, and the hosts of this dispatcher, to the configuration.
func (s *Service) join(st *storedState, dispatchers []*configv1.DispatcherReport) *meshState {
	m := &meshState{storedState: st, live: s.o.Live.Configuration(), dispatchers: dispatchers, hosts: map[config.Key][]HookHosts{}}
	m.modes, m.actions = modesOf(m.live.Snapshot()), actionsOf(m.live.Objects)
	for _, h := range s.o.Hooks() {
		if !h.called() {
			continue
		}
		keys := []config.Key{config.KeyOf(h.Hook)}
		for _, route := range h.Hook.RoutedBy {
			keys = append(keys, config.Key{Kind: kinds.HookRouteKind, Name: route})
		}
		for _, key := range keys {
			m.hosts[key] = append(m.hosts[key], h)
		}
	}
	m.byKey = make(map[config.Key]config.Problems, len(m.problems)+len(m.live.Problems))
	known := make(map[config.Problem]bool, len(m.problems)+len(m.live.Problems))
	for _, p := range slices.Concat(m.problems, m.live.Problems) {
		if !known[p] {
			known[p] = true
			m.byKey[p.Key] = append(m.byKey[p.Key], p)
		}
	}
	return m
}

// equal reports whether all objects look the same in another state.
func (m *meshState) equal(other *meshState) bool {
	return m.state == other.state && m.live.Digest == other.live.Digest && maps.Equal(m.live.Sources, other.live.Sources) &&
		slices.Equal(m.live.Problems, other.live.Problems) && maps.EqualFunc(m.hosts, other.hosts, slices.Equal) &&
		slices.EqualFunc(m.dispatchers, other.dispatchers, etcdstore.SameReport)
}

func (m *meshState) keys() []config.Key {
	keys := make(map[config.Key]bool, len(m.state.Records)+len(m.others))
	for key := range m.state.Records {
		keys[key] = true
	}
	for key := range m.others {
		keys[key] = true
	}
	return config.SortedKeys(keys)
}

// has reports whether there is an object of a key.
func (m *meshState) has(key config.Key) bool {
	_, other := m.others[key]
	return other || m.state.Records[key] != nil
}

// document returns an object of the store, or of another source; a zero Object if neither has it.
func (m *meshState) document(key config.Key) config.Object {
	if o, ok := m.objects[key]; ok {
		return o
	}
	return m.others[key]
}

// object returns an object with its findings and conditions; nil if there is none.
func (m *meshState) object(key config.Key) *configv1.ConfigObject {
	r := m.state.Records[key]
	o, ok := m.objects[key]
	if !ok && r != nil { // being removed, or unreadable
		o, ok = config.Object{Key: key, Manifest: r.Manifest}, true
	}
	if !ok {
		o, ok = m.others[key]
	}
	if !ok {
		return nil
	}
	out := objectOf(&o, r)
	problems := slices.Concat(m.byKey[key], m.noHosts(key), m.withoutCluster(key))
	if key.Kind == kinds.ClusterKind {
		problems = slices.Concat(problems, m.entryDrift(key), m.entriesUnseen(key), m.entriesBehind(key), m.entriesWider(key), m.followed(key))
	}
	for _, p := range problems {
		out.Findings = append(out.Findings, FindingOf(p))
	}
	out.Conditions = m.conditions(key, r)
	return out
}
