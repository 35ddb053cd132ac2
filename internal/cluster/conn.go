package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// clients are the clients of one cluster, which share their connections.
type clients struct {
	config      *rest.Config
	client      *http.Client
	transport   http.RoundTripper
	lists       *rest.RESTClient
	namespaces  metadata.ResourceInterface
	apiServices metadata.ResourceInterface
	definitions apiextensionsclient.CustomResourceDefinitionInterface
	reviews     authorizationclient.AuthorizationV1Interface // MaxAccessReviews at a time
	memory      *memory.Ledger                               // nil books nothing
	cluster     string
}

// newClients makes the clients of a cluster over a transport for all of its answers.
func newClients(config *rest.Config, whole answers.Transport) (*clients, error) {
	itemByItem := whole
	itemByItem.ItemByItem = true
	httpClient := &http.Client{Transport: whole}
	lists, err := newListClient(config, itemByItem)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	extensions, err := apiextensionsclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	reviews, err := authorizationclient.NewForConfigAndClient(config, &http.Client{Transport: bounded(MaxAccessReviews, whole)})
	if err != nil {
		return nil, err
	}
	return &clients{
		config: config, client: httpClient, transport: whole, lists: lists, memory: whole.Memory, cluster: whole.Cluster,
		namespaces:  objects.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")),
		apiServices: objects.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}),
		definitions: extensions.CustomResourceDefinitions(),
		reviews:     reviews,
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
	catalog     catalog // of crds
	discovery   *discoverer
	apiServices objectCache[*metav1.PartialObjectMetadata, struct{}] // a change means that discovery has changed
	permissions *permissions
	objects     *selectedObjects
}

// newConn makes a connection whose information counts for age; 0 is FreshFor.
func newConn(c *clients, builtin Builtin, logger *slog.Logger, age time.Duration) *clusterConn {
	conn := &clusterConn{
		host: c.config.Host, clients: c, logger: logger,
		namespaces: namespacesOf(c), discovery: newDiscoverer(builtin, logger), objects: newSelectedObjects(c),
		permissions: newPermissions(c),
	}
	for _, f := range []*freshness{&conn.namespaces.cache.freshness, &conn.discovery.freshness, &conn.crds.freshness, &conn.apiServices.freshness} {
		f.age = age
	}
	for _, reservation := range []*func() (*memory.Reservation, error){
		&conn.namespaces.cache.reservation, &conn.crds.reservation, &conn.apiServices.reservation, &conn.discovery.reservation,
	} {
		*reservation = c.reserve
	}
	conn.crds.read = readDefinition
	conn.crds.changed = conn.catalog.replace
	conn.apiServices.read = func(*metav1.PartialObjectMetadata) (struct{}, int64) { return struct{}{}, 0 }
	conn.apiServices.changed = func(struct{}, struct{}) { conn.discovery.poke() }
	return conn
}

// readDefinition reads a CustomResourceDefinition. It returns nil if the API server does not serve the definition, since another one
// has its names (crdHandler.ServeHTTP of k8s.io/apiextensions-apiserver).
func readDefinition(crd *apiextensionsv1.CustomResourceDefinition) (*definition, int64) {
	if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) &&
		!apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return nil, 0
	}
	d := define(crd)
	return d, d.bytes()
}

// reserve makes a reservation of the cluster.
func (c *clients) reserve() (*memory.Reservation, error) {
	if c.memory == nil {
		return nil, nil //nolint:nilnil // a nil reservation books nothing
	}
	return c.memory.Reserve(c.cluster, 0)
}

// release gives the memory back that the connection has not handed to the next one.
func (c *clusterConn) release() {
	if c.err == nil {
		c.namespaces.cache.release()
		c.crds.release()
		c.apiServices.release()
		c.discovery.release()
		c.objects.release()
		c.permissions.release()
	}
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
	wg.Go(func() { c.objects.sweep(ctx) })
	if whole {
		wg.Go(func() { c.discovery.run(ctx, c.clients.config, c.clients.transport) })
		wg.Go(func() {
			of := &lister[apiextensionsv1.CustomResourceDefinition, *apiextensionsv1.CustomResourceDefinition, *definition]{
				c.clients.definitions, c.clients.lists, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", acceptObjects, &c.crds,
			}
			watchInto(ctx, "customresourcedefinitions", of, &apiextensionsv1.CustomResourceDefinition{}, &c.crds)
		})
		wg.Go(func() {
			of := &lister[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata, struct{}]{
				c.clients.apiServices, c.clients.lists, "/apis/apiregistration.k8s.io/v1/apiservices", acceptMetadata, &c.apiServices,
			}
			watchInto(ctx, "apiservices", of, &metav1.PartialObjectMetadata{}, &c.apiServices)
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

// freshnessOf returns the freshness of a part of a connection, and the data in it for an error text.
func (c *clusterConn) freshnessOf(part string) (of *freshness, data string) {
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
	return &c.catalog, nil
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
	return custom.ofResource(resource.GroupResource()), nil
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
