package service

import (
	"context"
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// InForce describes the configuration in force to the writer of statuses. It is immutable.
type InForce struct {
	m     *meshState
	alone bool // there is no store
}

// InForce reads the configuration in force, and the reports of the dispatchers. It asks for no identity.
func (s *Service) InForce(ctx context.Context) (*InForce, error) {
	st, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.gather(ctx, st)
	if err != nil {
		return nil, err
	}
	return &InForce{m: m, alone: !s.hasStore()}, nil
}

// Revision is the revision of a source in the configuration in force here.
func (r *InForce) Revision(source string) string { return r.m.live.Sources[source] }

// Object is the version of an object that is in force here; false if none is.
func (r *InForce) Object(key config.Key) (config.Object, bool) {
	o, ok := r.m.live.Objects[key]
	return o, ok
}

// Error is an error of a document of an object, or nil.
func (r *InForce) Error(key config.Key) *config.Problem {
	for _, p := range r.m.byKey[key] {
		if p.Severity == match.SeverityError && p.Code != config.CodeKept {
			return &p
		}
	}
	return nil
}

// Effective is the condition of that name, and how many dispatchers there are. Without a store it is about this dispatcher alone, and
// alone is true.
func (r *InForce) Effective(key config.Key) (c *configv1.Condition, dispatchers int, alone bool) {
	return r.m.effective(key, nil), len(r.m.dispatchers), r.alone
}

// Served is the condition of that name, nil if hosts serve no hook of the object, and the number of hosts here of the hook that has
// the fewest.
func (r *InForce) Served(key config.Key) (c *configv1.Condition, hosts string) {
	if c = r.m.served(key); c == nil {
		return nil, ""
	}
	least := r.m.hosts[key][0].Hosts
	for _, h := range r.m.hosts[key] {
		least = min(least, h.Hosts)
	}
	return c, fmt.Sprint(least)
}

// Deciding is the condition of that name, nil for an object that has neither hooks in shadow nor validationActions.
func (r *InForce) Deciding(key config.Key) *configv1.Condition { return r.m.deciding(key) }

// Registered is the condition of that name, nil for an object that is no Cluster with spec.registration.
func (r *InForce) Registered(key config.Key) *configv1.Condition { return r.m.registered(key) }
