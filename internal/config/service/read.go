package service

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// defaultChanges is the limit of ListChanges for a request without one.
const defaultChanges = 100

// Get implements configv1.ConfigServiceServer.
func (s *Service) Get(ctx context.Context, r *configv1.GetRequest) (*configv1.GetResponse, error) {
	m, leave, err := s.openState(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	key := requestedKey(r.GetKey())
	if o := m.object(key); o != nil {
		return &configv1.GetResponse{Object: o}, nil
	}
	if bad := m.byKey[key]; len(bad) > 0 {
		return nil, status.Errorf(codes.NotFound, "no version of %s is in force: %s", key, bad[0].String())
	}
	return nil, notFound(key, m.keys())
}

func requestedKey(k *configv1.ConfigKey) config.Key {
	return config.Key{Kind: k.GetKind(), Name: k.GetName()}
}

// notFound is the error of an object that is not among the known ones.
func notFound(key config.Key, known []config.Key) error {
	var names []string
	for _, k := range known {
		if k.Kind == key.Kind {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return status.Errorf(codes.NotFound, "there is no %s: `portcullis get %s` lists all%s", key, key.Kind, suggest.DidYouMean(key.Name, names))
}

// List implements configv1.ConfigServiceServer.
func (s *Service) List(ctx context.Context, r *configv1.ListRequest) (*configv1.ListResponse, error) {
	m, leave, err := s.openState(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	out := &configv1.ListResponse{Revision: &configv1.Revision{Digest: m.live.Digest, Sources: m.live.Sources}}
	for _, key := range m.keys() {
		if r.GetKind() == "" || r.GetKind() == key.Kind {
			out.Objects = append(out.Objects, m.object(key))
		}
	}
	for _, p := range m.live.Problems {
		if !m.has(p.Key) && (r.GetKind() == "" || p.Key.Kind == "" || p.Key.Kind == r.GetKind()) {
			out.Findings = append(out.Findings, FindingOf(p))
		}
	}
	return out, nil
}

// ListDispatchers implements configv1.ConfigServiceServer.
func (s *Service) ListDispatchers(ctx context.Context, _ *configv1.ListDispatchersRequest) (*configv1.ListDispatchersResponse, error) {
	m, leave, err := s.openState(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	out := &configv1.ListDispatchersResponse{Dispatchers: statusesOf(m.dispatchers), NoStore: !s.hasStore(), Store: s.storeUsage()}
	for _, d := range out.GetDispatchers() {
		if !reached(d, m.state.Revision) {
			out.Behind = append(out.Behind, d.GetDispatcherId())
		}
	}
	return out, nil
}

// storeUsage is how full the store is; nil if that is unknown.
func (s *Service) storeUsage() *configv1.StoreUsage {
	if s.o.StoreUsage == nil {
		return nil
	}
	u := s.o.StoreUsage()
	if u == nil {
		return nil
	}
	return &configv1.StoreUsage{InUseBytes: u.InUse, QuotaBytes: u.Quota, Full: u.Full}
}

// ListChanges implements configv1.ConfigServiceServer.
func (s *Service) ListChanges(ctx context.Context, r *configv1.ListChangesRequest) (*configv1.ListChangesResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := s.readFor(ctx); err != nil {
		return nil, err
	}
	if err := s.needStore("no history of changes is kept; %s has its own", s.o.Sources); err != nil {
		return nil, err
	}
	all, err := s.o.Objects.Changes(ctx, etcdstore.MaxHistory)
	if err != nil {
		return nil, unavailable(err)
	}
	done, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	limit, out := cmp.Or(int(r.GetLimit()), defaultChanges), &configv1.ListChangesResponse{}
	wanted := requestedKey(r.GetKey()).String()
	for i := range all {
		if c := &all[i]; r.GetKey() == nil || slices.Contains(c.Keys, wanted) {
			out.Changes = append(out.Changes, changeOf(c))
		}
		if len(out.GetChanges()) == limit {
			break
		}
	}
	return out, nil
}
