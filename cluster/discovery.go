package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
)

const (
	// DiscoverEvery is how often a cluster is asked what it serves when nothing says that this has changed.
	DiscoverEvery = 30 * time.Second
	// discoverTimeout bounds one discovery, as client-go bounds its requests.
	discoverTimeout = 32 * time.Second
	// discoverPause lies between two discoveries, however often what is served changes.
	discoverPause = time.Second
	// discoverRetry lies between a discovery that failed and the next.
	discoverRetry = 5 * time.Second
)

// served is what an API server serves, by its discovery. It never changes.
type served struct {
	builtin Equivalents
	// ways are those to reach each resource, within its group.
	ways map[place][]conversion.ResourceKind
	// failed are the groups of which not all is known: their own server does not answer.
	failed map[string]error
}

// place is a resource without its version.
type place struct {
	resource    schema.GroupResource
	subresource string
}

// newServed reads discovery: the lists of each group in the order of its versions.
func newServed(lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error, builtin Builtin) *served {
	s := &served{builtin: builtin.Discovered(lists), ways: map[place][]conversion.ResourceKind{}, failed: map[string]error{}}
	for gv, err := range failed {
		s.failed[gv.Group] = err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // a server that says so serves nothing under it
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
	at := place{resource: way.Resource.GroupResource(), subresource: subresource}
	s.ways[at] = append(s.ways[at], way)
}

// isBuiltin tells whether a resource is built into the API server.
func (s *served) isBuiltin(resource schema.GroupVersionResource) bool {
	return len(s.builtin.For(resource, "")) > 0
}

// equivalents returns the ways to reach a resource that is no custom one. Those of a server behind the API server are the
// versions of its group: it knows no other resources.
func (s *served) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if s.isBuiltin(resource) {
		return among(s.builtin.For(resource, subresource), resource, subresource)
	}
	if err := s.failed[resource.Group]; err != nil {
		return nil, fmt.Errorf("the cluster's discovery of %s failed: %w", resource.Group, err)
	}
	return among(s.ways[place{resource: resource.GroupResource(), subresource: subresource}], resource, subresource)
}

// discoverer keeps what a cluster serves.
type discoverer struct {
	builtin Builtin
	logger  *slog.Logger

	current atomic.Pointer[served] // nil before the first discovery
	pulse   pulse
	poked   chan struct{} // holds one token while there is a reason to ask again
}

func newDiscoverer(builtin Builtin, logger *slog.Logger) *discoverer {
	return &discoverer{builtin: builtin, logger: logger, poked: make(chan struct{}, 1)}
}

// inherit takes over what another discoverer of the same cluster knows.
func (d *discoverer) inherit(from *discoverer) {
	d.current.Store(from.current.Load())
	d.pulse.inherit(&from.pulse)
}

// poke says that what is served may have changed.
func (d *discoverer) poke() {
	select {
	case d.poked <- struct{}{}:
	default:
	}
}

// run discovers until ctx ends: again and again, and sooner when it is poked.
func (d *discoverer) run(ctx context.Context, config *rest.Config, transport http.RoundTripper) {
	for {
		wait := DiscoverEvery
		if !d.refresh(ctx, config, transport) {
			wait = discoverRetry
		}
		if !pause(ctx, discoverPause) || !d.rest(ctx, wait-discoverPause) {
			return
		}
	}
}

// rest waits until it is time, or somebody pokes; it reports false when ctx has ended.
func (d *discoverer) rest(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.poked:
	case <-ctx.Done():
		return false
	}
	return true
}

// refresh discovers once. What it finds was so when it began.
func (d *discoverer) refresh(ctx context.Context, config *rest.Config, transport http.RoundTripper) bool {
	begun := time.Now()
	lists, failed, err := discover(ctx, config, transport)
	if ctx.Err() != nil {
		return false
	}
	if before := d.pulse.why(); err != nil && (before == nil || before.Error() != err.Error()) {
		d.logger.Warn("the cluster does not tell what it serves", "error", err)
	}
	d.pulse.fails(err)
	if err != nil {
		return false
	}
	d.current.Store(newServed(lists, failed, d.builtin))
	d.pulse.beat(begun)
	return true
}

// roundTripper makes a function an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// discover asks a cluster for all that it serves, in the order in which it names its groups and their versions. client-go
// knows no contexts here, and forgets that order when it gets all lists in one answer.
func discover(ctx context.Context, config *rest.Config, transport http.RoundTripper) ([]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	bound := roundTripper(func(r *http.Request) (*http.Response, error) { return transport.RoundTrip(r.WithContext(ctx)) })
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, &http.Client{Transport: bound})
	if err != nil {
		return nil, nil, fmt.Errorf("discovery: %w", err)
	}
	groups, lists, err := client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	switch {
	case err != nil && !partial:
		return nil, nil, fmt.Errorf("discovery: %w", err)
	case len(lists) == 0:
		return nil, nil, errors.New("discovery: the answer names no resource: is there an API server behind the address?")
	}
	return inOrder(groups, lists), failed, nil
}

// inOrder sorts lists by the groups and versions that they belong to.
func inOrder(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) []*metav1.APIResourceList {
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, list := range lists {
		byVersion[list.GroupVersion] = list
	}
	sorted := make([]*metav1.APIResourceList, 0, len(lists))
	for _, group := range groups {
		for _, version := range group.Versions {
			if list := byVersion[version.GroupVersion]; list != nil {
				sorted = append(sorted, list)
			}
		}
	}
	return sorted
}
