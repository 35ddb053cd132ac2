package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// clients are the clients of one cluster, which share their connections.
type clients struct {
	config      *rest.Config
	client      *http.Client
	transport   http.RoundTripper
	namespaces  metadata.ResourceInterface
	apiServices metadata.ResourceInterface
	definitions apiextensionsclient.CustomResourceDefinitionInterface
}

func newClients(config *rest.Config, httpClient *http.Client) (*clients, error) {
	objects, err := metadata.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	extensions, err := apiextensionsclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &clients{
		config: config, client: httpClient, transport: httpClient.Transport,
		namespaces:  objects.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")),
		apiServices: objects.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}),
		definitions: extensions.CustomResourceDefinitions(),
	}, nil
}

// clusterConn is a connection to a cluster, or the error of the attempt to make one.
type clusterConn struct {
	err error

	host        string
	clients     *clients
	logger      *slog.Logger
	namespaces  *watchedNamespaces
	crds        objectCache[*apiextensionsv1.CustomResourceDefinition, *definition]
	catalog     atomic.Pointer[catalog] // of crds
	discovery   *discoverer
	apiServices objectCache[*metav1.PartialObjectMetadata, struct{}] // a change means that discovery has changed
	permissions func() (authorizer.Authorizer, error)
}

// newConn makes a connection whose information counts for age; 0 is FreshFor.
func newConn(c *clients, builtin Builtin, logger *slog.Logger, age time.Duration) *clusterConn {
	conn := &clusterConn{
		host: c.config.Host, clients: c, logger: logger,
		namespaces: newWatchedNamespaces(c.namespaces),
		discovery:  newDiscoverer(builtin, logger),
		permissions: sync.OnceValues(func() (authorizer.Authorizer, error) {
			return newPermissions(c.config, c.transport)
		}),
	}
	for _, f := range []*freshness{&conn.namespaces.cache.freshness, &conn.discovery.freshness, &conn.crds.freshness, &conn.apiServices.freshness} {
		f.age = age
	}
	conn.crds.read = readDefinition
	conn.crds.changed = func(items map[string]*definition) { conn.catalog.Store(newCatalog(items)) }
	conn.apiServices.read = func(*metav1.PartialObjectMetadata) struct{} { return struct{}{} }
	conn.apiServices.changed = func(map[string]struct{}) { conn.discovery.poke() }
	return conn
}

// readDefinition reads a CustomResourceDefinition. It returns nil for one that the API server does not serve, since its names
// belong to another (crdHandler.ServeHTTP of k8s.io/apiextensions-apiserver).
func readDefinition(crd *apiextensionsv1.CustomResourceDefinition) *definition {
	if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) &&
		!apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return nil
	}
	return define(crd)
}

func (c *clusterConn) seedFrom(other *clusterConn) {
	c.namespaces.cache.seedFrom(&other.namespaces.cache)
	c.crds.seedFrom(&other.crds)
	c.discovery.seedFrom(other.discovery)
}

// watch keeps the caches of the cluster fresh until ctx ends: the namespaces alone, unless whole is set.
func (c *clusterConn) watch(ctx context.Context, whole bool) {
	ctx = logr.NewContextWithSlogLogger(ctx, c.logger)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.namespaces.watch(ctx) })
	if whole {
		wg.Go(func() { c.discovery.run(ctx, c.clients.config, c.clients.transport) })
		wg.Go(func() {
			watchInto(ctx, "customresourcedefinitions", c.clients.definitions, &apiextensionsv1.CustomResourceDefinition{}, &c.crds)
		})
		wg.Go(func() {
			watchInto(ctx, "apiservices", c.clients.apiServices, &metav1.PartialObjectMetadata{}, &c.apiServices)
		})
	}
}

// check returns an error unless a part is known and fresh.
func (c *clusterConn) check(part string) error {
	if c.err != nil {
		return c.err
	}
	of, what := c.freshnessOf(part)
	return of.check(what)
}

// confirmedAt is when the cluster last confirmed a part; zero if it never did.
func (c *clusterConn) confirmedAt(part string) time.Time {
	if c.err != nil {
		return time.Time{}
	}
	of, _ := c.freshnessOf(part)
	return of.confirmedAt()
}

// freshnessOf is that of a part of a connection without an error, and what the part is.
func (c *clusterConn) freshnessOf(part string) (of *freshness, what string) {
	switch part {
	case PartResources:
		return &c.discovery.freshness, "the resources that the cluster serves"
	case PartCustomResources:
		return &c.crds.freshness, "the CustomResourceDefinitions of the cluster"
	}
	return &c.namespaces.cache.freshness, "the namespaces of the cluster"
}

func (c *clusterConn) definitions() (*catalog, error) {
	if err := c.check(PartCustomResources); err != nil {
		return nil, err
	}
	return c.catalog.Load(), nil
}

// custom returns the definition of a custom resource; nil for a built-in one, also while custom resources are unknown.
func (c *clusterConn) custom(resource schema.GroupVersionResource) (*definition, error) {
	if c.check(PartResources) == nil && c.discovery.current.Load().isBuiltin(resource) {
		return nil, nil //nolint:nilnil // not a custom resource is no error, and documented
	}
	custom, err := c.definitions()
	if err != nil {
		return nil, err
	}
	return custom.resources[resource.GroupResource()], nil
}

// equivalents returns the ways to reach a resource. Custom resources do not depend on discovery. For a resource that the
// cluster is not known to serve, it starts a new discovery.
func (c *clusterConn) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	d, err := c.custom(resource)
	if err != nil {
		return nil, err
	}
	var ways []conversion.ResourceKind
	if d != nil {
		ways, err = d.equivalents(resource, subresource)
	} else if err = c.check(PartResources); err == nil {
		ways, err = c.discovery.current.Load().equivalents(resource, subresource)
	}
	if missing := (*notServedError)(nil); errors.As(err, &missing) {
		c.discovery.poke()
		return nil, fmt.Errorf("%w: it is asked again; try again", err)
	}
	return ways, err
}
