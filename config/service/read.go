package service

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/etcdstore"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// defaultChanges is how many changes are answered to who does not say.
const defaultChanges = 100

// Get implements configv1.ConfigServiceServer.
func (s *Service) Get(ctx context.Context, r *configv1.GetRequest) (*configv1.GetResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	key := config.Key{Kind: r.GetKey().GetKind(), Name: r.GetKey().GetName()}
	if o := v.object(key); o != nil {
		return &configv1.GetResponse{Object: o}, nil
	}
	return nil, notFound(key)
}

// notFound is the answer about an object that no source has.
func notFound(key config.Key) error {
	return status.Errorf(codes.NotFound, "there is no %s: `portcullis get %s` lists what there is", key, key.Kind)
}

// List implements configv1.ConfigServiceServer.
func (s *Service) List(ctx context.Context, r *configv1.ListRequest) (*configv1.ListResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	out := &configv1.ListResponse{Revision: &configv1.Revision{Digest: v.live.Digest, Sources: v.live.Sources}}
	for _, key := range v.keys() {
		if r.GetKind() == "" || r.GetKind() == key.Kind {
			out.Objects = append(out.Objects, v.object(key))
		}
	}
	for _, p := range v.live.Problems {
		if p.Key.Kind == "" || p.Key.Name == "" {
			out.Findings = append(out.Findings, FindingOf(p))
		}
	}
	return out, nil
}

// view is the configuration as somebody who may read sees it.
type view struct {
	*base

	live        config.Configuration
	dispatchers []etcdstore.Status
	hosts       map[config.Key][]HookHosts     // of the hooks that hosts serve here, by configuration
	about       map[config.Key]config.Problems // the problems of the store and of what is in force here, each once
}

// view reads everything, for who may.
func (s *Service) view(ctx context.Context) (*view, error) {
	b, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.accessOf(s.o.Identity(ctx), s.o.Operators).mayRead(); err != nil {
		return nil, err
	}
	v := &view{base: b, live: s.o.Live.Configuration()}
	if v.dispatchers, err = s.o.Objects.Dispatchers(ctx); err != nil {
		return nil, unavailable(err)
	}
	v.hosts = hostsOf(s.o.Hosts())
	v.about = make(map[config.Key]config.Problems, len(v.problems)+len(v.live.Problems))
	for _, problems := range []config.Problems{v.problems, v.live.Problems} {
		for _, p := range problems {
			if known := v.about[p.Key]; !slices.Contains(known, p) {
				v.about[p.Key] = append(known, p)
			}
		}
	}
	return v, nil
}

// same reports whether objects look in v as they do in another view.
func (v *view) same(other *view) bool {
	return v.state == other.state && v.live.Digest == other.live.Digest && maps.Equal(v.live.Sources, other.live.Sources) &&
		slices.Equal(v.live.Problems, other.live.Problems) && maps.EqualFunc(v.hosts, other.hosts, slices.Equal) &&
		slices.EqualFunc(v.dispatchers, other.dispatchers, func(a, b etcdstore.Status) bool {
			a.Begun, a.Said = b.Begun, b.Said
			return reflect.DeepEqual(a, b)
		})
}

// keys are all objects, by kind and name.
func (v *view) keys() []config.Key {
	keys := make([]config.Key, 0, len(v.state.Records)+len(v.others))
	for key := range v.state.Records {
		keys = append(keys, key)
	}
	for key := range v.others {
		if v.state.Records[key] == nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, config.Key.Compare)
	return keys
}

// object is an object with all that is known about it; nil when there is none.
func (v *view) object(key config.Key) *configv1.ConfigObject {
	r := v.state.Records[key]
	var out *configv1.ConfigObject
	switch o, stored := v.objects[key]; {
	case stored:
		out = objectOf(&o, r)
	case r != nil: // being removed, or not to be read
		out = objectOf(&config.Object{Key: key, Manifest: r.Manifest}, r)
	default:
		other, ok := v.others[key]
		if !ok {
			return nil
		}
		out = objectOf(&other, nil)
	}
	for _, p := range slices.Concat(v.about[key], v.noHosts(key), v.entryDrift(key)) {
		out.Findings = append(out.Findings, FindingOf(p))
	}
	out.Conditions = v.conditions(key, r)
	return out
}

// ListDispatchers implements configv1.ConfigServiceServer.
func (s *Service) ListDispatchers(ctx context.Context, _ *configv1.ListDispatchersRequest) (*configv1.ListDispatchersResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	out := &configv1.ListDispatchersResponse{Dispatchers: statusesOf(v.dispatchers)}
	for i := range v.dispatchers {
		if !reached(&v.dispatchers[i], v.state.Revision) {
			out.Behind = append(out.Behind, v.dispatchers[i].ID)
		}
	}
	return out, nil
}

func statusesOf(all []etcdstore.Status) []*configv1.DispatcherStatus {
	out := make([]*configv1.DispatcherStatus, 0, len(all))
	for i := range all {
		out = append(out, statusOf(&all[i]))
	}
	return out
}

// statusOf is what a dispatcher says, as the contract has it.
func statusOf(d *etcdstore.Status) *configv1.DispatcherStatus {
	out := &configv1.DispatcherStatus{
		DispatcherId: d.ID, Version: d.Version, Judging: d.Judging, Diverging: d.Diverging,
		Applied:     &configv1.Revision{Digest: d.Digest, Sources: d.Sources},
		ConfigAgeMs: uint32(max(d.Said.Sub(d.Begun).Milliseconds(), 0)),
		Held:        revisionText(d.Held), Said: timestamppb.New(d.Said),
	}
	if !d.StaleUntil.IsZero() {
		out.ServesStaleUntil = timestamppb.New(d.StaleUntil)
	}
	return out
}

// ListChanges implements configv1.ConfigServiceServer.
func (s *Service) ListChanges(ctx context.Context, r *configv1.ListChangesRequest) (*configv1.ListChangesResponse, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if _, err := s.view(ctx); err != nil {
		return nil, err
	}
	changes, err := s.o.Objects.Changes(ctx, etcdstore.MaxHistory)
	if err != nil {
		return nil, unavailable(err)
	}
	limit, out := cmp.Or(int(r.GetLimit()), defaultChanges), &configv1.ListChangesResponse{}
	wanted := config.Key{Kind: r.GetKey().GetKind(), Name: r.GetKey().GetName()}.String()
	for i := range changes {
		c := &changes[i]
		if r.GetKey() == nil || slices.Contains(c.Keys, wanted) {
			out.Changes = append(out.Changes, changeOf(c))
		}
		if len(out.GetChanges()) == limit {
			break
		}
	}
	return out, nil
}

// changeOf is a change as the contract has it.
func changeOf(c *etcdstore.Change) *configv1.Change {
	out := &configv1.Change{
		Revision: revisionText(c.Revision), At: timestamppb.New(c.At), Actor: c.Actor, Actions: c.Actions, Acknowledged: c.Acknowledged,
	}
	for _, key := range c.Keys {
		kind, name, _ := strings.Cut(key, "/")
		out.Keys = append(out.Keys, &configv1.ConfigKey{Kind: kind, Name: name})
	}
	return out
}
