package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/cluster/discovery"
)

const (
	// DiscoverEvery is the longest interval of discovery while there is no sign of a change.
	DiscoverEvery = 30 * time.Second
	// discoverTimeout bounds one discovery, as client-go bounds its requests.
	discoverTimeout = 32 * time.Second
	// discoverPause is the shortest time between two discoveries.
	discoverPause = time.Second
	// discoverRetry is the interval after a discovery that failed.
	discoverRetry = 5 * time.Second
)

// served is the result of one discovery. It is immutable.
type served struct {
	builtin Equivalents
	// ways to reach each resource within its group.
	ways map[resourceKey][]conversion.ResourceKind
	// kinds are the resources of kinds.
	kinds map[schema.GroupVersionKind]kindResource
	// failed are the groups whose API server does not answer, so that not all of their resources are known.
	failed map[string]error
}

// resourceKey is a resource without its version.
type resourceKey struct {
	resource    schema.GroupResource
	subresource string
}

// newServed reads discovery: the lists of each group in the order of its versions.
func newServed(lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error, builtin Builtin) *served {
	s := &served{
		builtin: builtin.Discovered(lists), ways: map[resourceKey][]conversion.ResourceKind{}, kinds: map[schema.GroupVersionKind]kindResource{},
		failed: map[string]error{},
	}
	for gv, err := range failed {
		s.failed[gv.Group] = err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // nothing can be served under an invalid version
		}
		for i := range list.APIResources {
			s.add(gv, &list.APIResources[i])
		}
	}
	return s
}

func (s *served) add(gv schema.GroupVersion, r *metav1.APIResource) {
	name, subresource, _ := strings.Cut(r.Name, "/")
	way := conversion.ResourceKind{Resource: gv.WithResource(name), Subresource: subresource, Kind: gv.WithKind(r.Kind)}
	if r.Version != "" {
		way.Kind.Group, way.Kind.Version = r.Group, r.Version
	}
	if _, known := s.kinds[way.Kind]; subresource == "" && !known {
		s.kinds[way.Kind] = kindResource{way.Resource, r.Namespaced}
	}
	at := resourceKey{resource: way.Resource.GroupResource(), subresource: subresource}
	s.ways[at] = append(s.ways[at], way)
}

func (s *served) isBuiltin(resource schema.GroupVersionResource) bool {
	return len(s.builtin.For(resource, "")) > 0
}

// equivalents returns the ways to reach a resource that is not a custom one. For an aggregated API server these are the versions
// of the group.
func (s *served) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if s.isBuiltin(resource) {
		return among(s.builtin.For(resource, subresource), resource, subresource)
	}
	if err := s.failed[resource.Group]; err != nil {
		return nil, fmt.Errorf("the cluster's discovery of %s failed: %w", resource.Group, err)
	}
	return among(s.ways[resourceKey{resource: resource.GroupResource(), subresource: subresource}], resource, subresource)
}

// discoverer repeats the discovery of a cluster and holds the latest result.
type discoverer struct {
	builtin Builtin
	logger  *slog.Logger
	// reservation opens an empty reservation of the cluster's memory; nil books nothing.
	reservation func() (*memory.Reservation, error)
	booked      *memory.Reservation // for current

	current   atomic.Pointer[served] // nil before the first discovery
	freshness freshness
	poked     chan struct{} // holds one token while there is a reason to ask again
}

func newDiscoverer(builtin Builtin, logger *slog.Logger) *discoverer {
	return &discoverer{builtin: builtin, logger: logger, poked: make(chan struct{}, 1)}
}

func (d *discoverer) seedFrom(other *discoverer) {
	d.current.Store(other.current.Load())
	d.freshness.seedFrom(&other.freshness)
	d.booked, other.booked = other.booked, nil
}

// release gives the memory of the result back, unless another discoverer has taken it over.
func (d *discoverer) release() {
	d.booked.Release()
	d.booked = nil
}

func (d *discoverer) poke() {
	select {
	case d.poked <- struct{}{}:
	default:
	}
}

// run repeats discovery until ctx ends, sooner when it is poked.
func (d *discoverer) run(ctx context.Context, config *rest.Config, transport http.RoundTripper) {
	for {
		wait := d.freshness.renewEvery(DiscoverEvery)
		if !d.refresh(ctx, config, transport) {
			wait = discoverRetry
		}
		if !clock.Sleep(ctx, discoverPause) {
			return
		}
		select {
		case <-time.After(wait - discoverPause):
		case <-d.poked:
		case <-ctx.Done():
			return
		}
	}
}

// refresh discovers once, and reports success. The result is as old as the start of the request.
func (d *discoverer) refresh(ctx context.Context, config *rest.Config, transport http.RoundTripper) bool {
	begun := time.Now()
	next, booked, err := d.discover(ctx, config, transport)
	if ctx.Err() != nil {
		booked.Release()
		return false
	}
	if before := d.freshness.lastError(); err != nil && (before == nil || before.Error() != err.Error()) {
		d.logger.Warn("the cluster does not answer which resources it serves", "error", err)
	}
	d.freshness.markFailed(err)
	if err != nil {
		return false
	}
	d.current.Store(next)
	d.booked.Release()
	d.booked = booked
	d.freshness.markFresh(begun)
	return true
}

// discover asks once. The result is booked until it is replaced.
func (d *discoverer) discover(ctx context.Context, config *rest.Config, transport http.RoundTripper) (*served, *memory.Reservation, error) {
	var booked *memory.Reservation
	if d.reservation != nil {
		var err error
		if booked, err = d.reservation(); err != nil {
			return nil, nil, fmt.Errorf("discovery: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	found, err := discovery.Ask(answers.Booked(ctx, booked), config, transport)
	if err != nil {
		booked.Release()
		return nil, nil, err
	}
	booked.Shrink(booked.Bytes() - found.Bytes())
	return newServed(found.Lists, found.Failed, d.builtin), booked, nil
}
