// Package cluster knows the clusters that send reviews: the identities that may send them, and data that reviews lack.
// These are the labels of namespaces, the equivalent resources, the conversion of objects between them, and the permissions.
//
// A [Registry] is built from Cluster documents and changes with them. A lookup takes no lock and starts nothing. Run owns
// the watches of each cluster that has a kubeconfig (namespaces, CustomResourceDefinitions and APIServices) and its discovery.
// A cluster that cannot be reached affects its own reviews alone. Information about a cluster is used for [FreshFor], or Options.FreshFor, and
// is an error afterwards, except that a single namespace is read from the cluster.
//
// Conversion between built-in versions is behind an interface, [Builtin], since it depends on all of Kubernetes.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/turns"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Why a caller may not send reviews of a cluster. They are for logs; the caller does not learn which one applies.
var (
	// ErrUnknownCluster: there is no such cluster.
	ErrUnknownCluster = errors.New("the cluster is unknown")
	// ErrNotAllowed: the cluster exists, and the identity is not among its callers, or no authority of the cluster vouches for it.
	ErrNotAllowed = errors.New("the identity is not one of the cluster's")
)

// AuthorizationError refuses a caller. Its text may be sent to the caller: it does not show whether the cluster exists.
// errors.Is finds ErrUnknownCluster or ErrNotAllowed.
type AuthorizationError struct {
	// Identity is the caller; empty if it has none, or has shown a capability.
	Identity string
	// Cluster is the cluster asked for.
	Cluster string

	reason error
}

// Error is the same for every reason.
func (e *AuthorizationError) Error() string {
	return fmt.Sprintf("identity %q may not send reviews of cluster %q", e.Identity, e.Cluster)
}

// Unwrap returns the reason.
func (e *AuthorizationError) Unwrap() error { return e.reason }

// Options configure a Registry. All fields are optional.
type Options struct {
	// Builtin knows the resources that are built into kube-apiserver; with nil, none is built in.
	Builtin Builtin
	// Conversions returns the caller of the conversion webhooks of a cluster; with nil they cannot be called.
	Conversions func(cluster string) custom.Caller
	// Bridges returns the way to the API server of a cluster through its bridges; with nil, clusters with spec.bridge cannot be
	// asked.
	Bridges func(cluster string) http.RoundTripper
	// Reach returns how the API server of a cluster is reached whose document does not tell; with nil, such clusters cannot be asked.
	Reach func(cluster string) (*rest.Config, error)
	// BridgedConversions returns the caller of the conversion webhook of a CustomResourceDefinition through the bridges of a cluster with
	// spec.bridge; with nil such clusters use Conversions.
	BridgedConversions func(cluster, definition string) custom.Caller
	// TrustedKubeconfigs are paths as in spec.kubeconfig: these files may have programs run (exec) and name files whose content is sent as a
	// token (tokenFile). Others are refused with them.
	TrustedKubeconfigs []string
	// FreshFor is how long information about a cluster counts after it was last confirmed, between MinFreshFor and MaxFreshFor; 0 is
	// the constant FreshFor. The watches and discoveries of a shorter time come more often.
	FreshFor time.Duration
	// Memory is where answers of the API servers of clusters are booked while they are read, and the parts of them that are kept. Nil books nothing.
	Memory *memory.Ledger
	// Work has long answers of API servers read one at a time, and their clusters rest in between; nil has them read when they come.
	Work *turns.Queue
	// CapabilityKeys returns the keys by which the mesh makes capabilities, nil for none; it is called for each review by a capability.
	// With nil there are none.
	CapabilityKeys func() *identity.CapabilityKeys
	// Logger receives failures to reach a cluster; nil logs nothing.
	Logger *slog.Logger
}

// Registry holds the clusters. Its methods may be called concurrently; Run is called once.
type Registry struct {
	logger      *slog.Logger
	builtin     Builtin
	known       Equivalents // in a cluster of which nothing is known
	conversions func(cluster string) custom.Caller
	bridged     func(cluster, definition string) custom.Caller
	bridges     func(cluster string) http.RoundTripper
	reach       func(cluster string) (*rest.Config, error)
	trusted     []string      // kubeconfigs that may have programs run
	reload      time.Duration // of kubeconfigs
	age         time.Duration // of information about clusters
	memory      *memory.Ledger
	work        *turns.Queue
	current     atomic.Pointer[map[string]*registered] // by name; never changed once it is here; a nil map before the first update
	changed     chan struct{}                          // holds one token while Run has not seen an update
	refused     *prometheus.CounterVec                 // capabilities that were not accepted
	keys        func() *identity.CapabilityKeys

	update sync.Mutex // held while current is replaced
}

// registered is one cluster of a Registry. It is immutable.
type registered struct {
	identities   map[string]bool
	authorities  []string // that may vouch for them; none means all
	capabilities capabilities
	made         *made // nil without spec.rotateCapability
	namespaces   namespaces
	resources    resources
	permissions  authorizer.Authorizer // nil if unknown
	remote       *remote               // nil without a kubeconfig
	static       []Part                // the parts, as far as remote does not read them
}

// namespaces returns the labels of namespaces. A missing namespace is an error that apierrors.IsNotFound recognises. The labels
// are not changed by either side.
type namespaces interface {
	labels(ctx context.Context, name string) (map[string]string, error)
}

// resources answers questions about the resources of a cluster from memory.
type resources interface {
	// equivalents implements match.Cluster.Equivalents.
	equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error)
	// definition returns the definition of the custom resources of a kind; nil for other kinds.
	definition(kind schema.GroupKind) (*definition, error)
}

// New returns a registry without clusters.
func New(opts Options) *Registry {
	r := &Registry{
		logger: opts.Logger, builtin: opts.Builtin, conversions: opts.Conversions, bridged: opts.BridgedConversions, bridges: opts.Bridges,
		reach: opts.Reach, trusted: opts.TrustedKubeconfigs, reload: reloadInterval, age: opts.FreshFor, memory: opts.Memory, work: opts.Work,
		changed: make(chan struct{}, 1), refused: newRefused(),
	}
	r.logger = cmp.Or(r.logger, slog.New(slog.DiscardHandler))
	if r.keys = opts.CapabilityKeys; r.keys == nil {
		r.keys = func() *identity.CapabilityKeys { return nil }
	}
	if r.builtin == nil {
		r.builtin = nothingBuiltin{}
	}
	if r.conversions == nil {
		r.conversions = func(string) custom.Caller { return noCaller{} }
	}
	r.known = r.builtin.Known()
	r.current.Store(new(map[string]*registered))
	return r
}

// Update replaces the clusters. The documents must be valid and are not changed afterwards. Update does not block: Run connects new
// clusters, and unchanged ones stay connected.
func (r *Registry) Update(clusters []*kinds.Cluster) {
	r.update.Lock()
	defer r.update.Unlock()
	before := *r.current.Load()
	next := make(map[string]*registered, len(clusters))
	for _, c := range clusters {
		next[c.Metadata.Name] = r.register(c, before[c.Metadata.Name])
	}
	r.current.Store(&next)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// register makes the cluster of a document. It keeps the connection of before if its kubeconfig is the same.
func (r *Registry) register(c *kinds.Cluster, before *registered) *registered {
	e := &registered{
		identities: make(map[string]bool, len(c.Spec.Identities)), authorities: c.Spec.Authorities,
		capabilities: newCapabilities(c.Spec.Capabilities, before), made: newMade(c, before),
	}
	for _, id := range c.Spec.Identities {
		e.identities[id] = true
	}
	if c.Spec.Kubeconfig != "" || c.Spec.Bridge != nil || r.reach != nil {
		e.remote = r.remote(c, c.Spec.Kubeconfig, true, before)
		e.namespaces, e.resources, e.permissions = e.remote, e.remote, e.remote
		return e
	}
	e.resources, e.static = newStaticResources(&c.Spec, r.builtin, r.known), partsOf(&c.Spec)
	switch source := c.Spec.Namespaces; {
	case source == nil:
		e.namespaces = unknownNamespaces{}
	case source.Kubeconfig == "":
		e.namespaces = newStaticNamespaces(source.Static)
	default:
		e.remote = r.remote(c, source.Kubeconfig, false, before)
		e.namespaces = e.remote
	}
	return e
}

func (r *Registry) remote(c *kinds.Cluster, kubeconfig string, whole bool, before *registered) *remote {
	if before != nil && before.remote.is(kubeconfig, whole) {
		return before.remote
	}
	return &remote{
		answers: answers.Transport{Memory: r.memory, Cluster: c.Metadata.Name, Work: r.work},
		path:    kubeconfig, load: r.loader(c, kubeconfig), whole: whole, reload: r.reload, age: r.age, builtin: r.builtin,
		logger: r.logger.With("cluster", c.Metadata.Name), tried: make(chan struct{}),
	}
}

// loader returns the function that reads how a cluster is reached: by a kubeconfig or, with "", by Options.Reach or through its bridges.
func (r *Registry) loader(c *kinds.Cluster, kubeconfig string) func() (*kubeconfigFile, error) {
	if kubeconfig != "" {
		return func() (*kubeconfigFile, error) {
			return loadKubeconfig(kubeconfig, slices.Contains(r.trusted, kubeconfig))
		}
	}
	name := c.Metadata.Name
	if c.Spec.Bridge == nil && r.reach != nil {
		return func() (*kubeconfigFile, error) {
			config, err := r.reach(name)
			if err != nil {
				return nil, err
			}
			return &kubeconfigFile{config: config}, own(config)
		}
	}
	return func() (*kubeconfigFile, error) {
		if r.bridges == nil {
			return nil, errNoBridges
		}
		return &kubeconfigFile{config: &rest.Config{Host: "http://" + name + ".bridge", Transport: r.bridges(name), QPS: -1}}, nil
	}
}

// Run connects to the clusters that have a kubeconfig, and disconnects from removed ones, until ctx ends. It returns when all
// connections have ended.
func (r *Registry) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	running := map[*remote]context.CancelFunc{}
	defer func() {
		for _, cancel := range running {
			cancel()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
		wanted := r.remotes()
		for remote, cancel := range running {
			if !wanted[remote] {
				cancel()
				delete(running, remote)
			}
		}
		for remote := range wanted {
			if running[remote] == nil {
				own, cancel := context.WithCancel(ctx)
				running[remote] = cancel
				wg.Go(func() { remote.run(own) })
			}
		}
	}
}

func (r *Registry) remotes() map[*remote]bool {
	wanted := map[*remote]bool{}
	for _, e := range *r.current.Load() {
		if e.remote != nil {
			wanted[e.remote] = true
		}
	}
	return wanted
}

// API returns the way to the API server of a cluster that has a kubeconfig or bridges. The client is another one when the kubeconfig
// has changed; it stays the registry's.
func (r *Registry) API(ctx context.Context, cluster string) (*rest.Config, *http.Client, error) {
	c, err := r.clients(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	return c.config, c.client, nil
}

// Lists returns a client for lists of a cluster, as API does, whose answers are read with [answers.Items] or [answers.Page].
func (r *Registry) Lists(ctx context.Context, cluster string) (rest.Interface, error) {
	c, err := r.clients(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return c.lists, nil
}

func (r *Registry) clients(ctx context.Context, cluster string) (*clients, error) {
	e := (*r.current.Load())[cluster]
	if e == nil || e.remote == nil {
		return nil, fmt.Errorf("the mesh has no access to the cluster %q", cluster)
	}
	c, err := e.remote.connected(ctx)
	if err != nil {
		return nil, err
	}
	return c.clients, nil
}

// Authorize returns nil if the caller may send reviews of the cluster, else an *AuthorizationError, or review.ErrNoConfiguration before
// the first update.
func (r *Registry) Authorize(caller identity.Peer, cluster string) error {
	clusters := *r.current.Load()
	e, ok := clusters[cluster]
	switch {
	case clusters == nil:
		return review.ErrNoConfiguration
	case !ok:
		return &AuthorizationError{Identity: caller.Name(), Cluster: cluster, reason: ErrUnknownCluster}
	case !e.identities[caller.Name()] || !caller.VouchedBy(e.authorities):
		return &AuthorizationError{Identity: caller.Name(), Cluster: cluster, reason: ErrNotAllowed}
	}
	return nil
}

// AuthorizeBridge returns nil if the caller may give access to the API server of the cluster: Authorize accepts the caller, and the
// Cluster has spec.bridge. Its errors are as from Authorize.
func (r *Registry) AuthorizeBridge(caller identity.Peer, cluster string) error {
	if err := r.Authorize(caller, cluster); err != nil {
		return err
	}
	if e := (*r.current.Load())[cluster]; e == nil || e.remote == nil || e.remote.source() != SourceBridge {
		return &AuthorizationError{Identity: caller.Name(), Cluster: cluster, reason: ErrNotAllowed}
	}
	return nil
}
