package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

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

// clients talk to one cluster, all over the same connections.
type clients struct {
	config      *rest.Config
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
		config: config, transport: httpClient.Transport,
		namespaces:  objects.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")),
		apiServices: objects.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}),
		definitions: extensions.CustomResourceDefinitions(),
	}, nil
}

// link is a connection to a cluster, or the reason why there is none.
type link struct {
	err error

	host        string
	clients     *clients
	logger      *slog.Logger
	namespaces  *watchedNamespaces
	crds        mirror[*definition]
	catalog     atomic.Pointer[catalog] // of what crds holds
	discovery   *discoverer
	apiServices mirror[struct{}] // tells that discovery has changed, and nothing else
	permissions func() (authorizer.Authorizer, error)
}

// newLink returns a link that knows nothing yet.
func newLink(c *clients, builtin Builtin, logger *slog.Logger) *link {
	l := &link{
		host: c.config.Host, clients: c, logger: logger,
		namespaces: newWatchedNamespaces(c.namespaces),
		discovery:  newDiscoverer(builtin, logger),
		permissions: sync.OnceValues(func() (authorizer.Authorizer, error) {
			return newPermissions(c.config, c.transport)
		}),
	}
	l.crds.read = readDefinition
	l.crds.changed = func(items map[string]*definition) { l.catalog.Store(newCatalog(items)) }
	l.apiServices.read = func(any) (struct{}, error) { return struct{}{}, nil }
	l.apiServices.changed = func(map[string]struct{}) { l.discovery.poke() }
	return l
}

// readDefinition reads a CustomResourceDefinition; nil is one that the API server does not serve, because its names belong
// to another (crdHandler.ServeHTTP of k8s.io/apiextensions-apiserver).
func readDefinition(obj any) (*definition, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("the watch of CustomResourceDefinitions told of a %T", obj)
	}
	if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) &&
		!apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return nil, nil //nolint:nilnil // not served is no error, and documented
	}
	return define(crd), nil
}

// inherit takes over what another link to the same cluster knows, and since when.
func (l *link) inherit(from *link) {
	l.namespaces.mirror.inherit(&from.namespaces.mirror)
	l.crds.inherit(&from.crds)
	l.discovery.inherit(from.discovery)
}

// follow begins to follow the cluster until ctx ends. The returned function waits until that has ended.
func (l *link) follow(ctx context.Context, whole bool) (wait func()) {
	ctx = logr.NewContextWithSlogLogger(ctx, l.logger)
	var wg sync.WaitGroup
	wg.Go(func() { l.namespaces.follow(ctx) })
	if whole {
		wg.Go(func() { l.discovery.run(ctx, l.clients.config, l.clients.transport) })
		wg.Go(func() {
			follow(ctx, "customresourcedefinitions", l.clients.definitions, &apiextensionsv1.CustomResourceDefinition{}, &l.crds)
		})
		wg.Go(func() {
			follow(ctx, "apiservices", l.clients.apiServices, &metav1.PartialObjectMetadata{}, &l.apiServices)
		})
	}
	return wg.Wait
}

// check returns why a part is not known.
func (l *link) check(part string) error {
	switch {
	case l.err != nil:
		return l.err
	case part == PartResources:
		return l.discovery.pulse.check("the resources that the cluster serves")
	case part == PartCustomResources:
		return l.crds.pulse.check("the CustomResourceDefinitions of the cluster")
	}
	return l.namespaces.mirror.pulse.check("the namespaces of the cluster")
}

// definitions are the custom resources.
func (l *link) definitions() (*catalog, error) {
	if err := l.check(PartCustomResources); err != nil {
		return nil, err
	}
	return l.catalog.Load(), nil
}

// custom returns the definition of a custom resource; nil for a resource that is none. Built-in resources do not depend on
// what is known of custom ones.
func (l *link) custom(resource schema.GroupVersionResource) (*definition, error) {
	if l.check(PartResources) == nil && l.discovery.current.Load().isBuiltin(resource) {
		return nil, nil //nolint:nilnil // not a custom resource is no error, and documented
	}
	custom, err := l.definitions()
	if err != nil {
		return nil, err
	}
	return custom.resources[resource.GroupResource()], nil
}

// equivalents returns the ways to reach a resource. Custom resources do not depend on discovery.
func (l *link) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	d, err := l.custom(resource)
	if err != nil {
		return nil, err
	}
	if d != nil {
		return l.answer(d.equivalents(resource, subresource))
	}
	if err := l.check(PartResources); err != nil {
		return nil, err
	}
	return l.answer(l.discovery.current.Load().equivalents(resource, subresource))
}

// answer has the cluster asked, for the next time, when nobody has told of the resource yet.
func (l *link) answer(ways []conversion.ResourceKind, err error) ([]conversion.ResourceKind, error) {
	if missing := (*notServedError)(nil); errors.As(err, &missing) {
		l.discovery.poke()
		return nil, fmt.Errorf("%w: it is asked again; try again", err)
	}
	return ways, err
}
