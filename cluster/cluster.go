// Package cluster knows the clusters that send reviews: who may send them, and what a review does not carry, which is the
// labels of namespaces, which resources are the same in several versions, how objects are converted between these, and
// who may do what.
//
// A [Registry] is built from Cluster documents and changes with them. Looking something up takes no lock and starts
// nothing. Its Run owns what follows each cluster that has a kubeconfig: watches of its namespaces, CustomResourceDefinitions
// and APIServices, and its discovery. A cluster that cannot be reached concerns its own reviews alone. What is known about
// a cluster has a bound on its age, [FreshFor]: past it there is an error, never an old answer; a single namespace is read
// from the cluster first.
//
// Conversion between built-in versions is behind an interface, [Builtin]: it is built on all of Kubernetes.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/identity"
)

// Why a caller may not send reviews of a cluster. Log it; the caller is told neither.
var (
	// ErrUnknownCluster: there is no such cluster.
	ErrUnknownCluster = errors.New("the cluster is unknown")
	// ErrNotAllowed: the cluster is known, and the identity is not one of its callers, or no authority of the cluster vouches for it.
	ErrNotAllowed = errors.New("the identity is not one of the cluster's")
)

// AuthorizationError refuses a caller. Its text is fit to be sent to the caller: it is the same whether the cluster
// exists or not. errors.Is tells ErrUnknownCluster from ErrNotAllowed.
type AuthorizationError struct {
	// Identity is who asked; empty when nobody was recognised.
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

// Options configure a Registry. All of them may be missing.
type Options struct {
	// Builtin knows the resources that are built into kube-apiserver; nil means that there are none: each is then a resource
	// that is served in one way only.
	Builtin Builtin
	// Conversions returns what calls the conversion webhooks of a cluster, by its name; nil means that they cannot be called.
	Conversions func(cluster string) custom.Caller
	// Logger is told when a cluster cannot be asked, and when it can be again; nil means nobody is.
	Logger *slog.Logger
}

// Registry is the clusters. Its methods may be called concurrently; Run is called once.
type Registry struct {
	logger      *slog.Logger
	builtin     Builtin
	known       Equivalents // in a cluster of which nothing is known
	conversions func(cluster string) custom.Caller
	reload      time.Duration                     // of kubeconfigs
	current     atomic.Pointer[map[string]*entry] // by name; never changed once it is here
	changed     chan struct{}                     // holds one token while Run has not seen an update

	update sync.Mutex // held while current is replaced
}

// entry is one cluster.
type entry struct {
	identities  map[string]bool
	authorities []string // that may vouch for them; none means all
	namespaces  namespaces
	resources   resources
	permissions authorizer.Authorizer // nil when there is nobody to ask
	remote      *remote               // what asks the cluster, if something does
	static      []Part                // what is known of the parts if nobody is asked for them
}

// namespaces is one way to learn the labels of namespaces. A missing namespace is an error that apierrors.IsNotFound
// recognises. The labels are not changed by either side.
type namespaces interface {
	labels(ctx context.Context, name string) (map[string]string, error)
}

// resources is one way to learn what a cluster serves. It answers from memory.
type resources interface {
	// equivalents is that of match.Cluster.
	equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error)
	// definition returns the definition of the custom resources of a kind; nil for a kind that is none.
	definition(kind schema.GroupKind) (*definition, error)
}

// New returns a registry without clusters: it refuses everybody.
func New(opts Options) *Registry {
	r := &Registry{
		logger: opts.Logger, builtin: opts.Builtin, conversions: opts.Conversions,
		reload: reloadInterval, changed: make(chan struct{}, 1),
	}
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	if r.builtin == nil {
		r.builtin = nothingBuiltin{}
	}
	if r.conversions == nil {
		r.conversions = func(string) custom.Caller { return noCaller{} }
	}
	r.known = r.builtin.Known()
	r.current.Store(&map[string]*entry{})
	return r
}

// Update replaces the clusters by those of the documents, which must be valid and are not changed afterwards. It never
// blocks: what was not there before is connected by Run, and what stays the same stays connected.
func (r *Registry) Update(clusters []*kinds.Cluster) {
	r.update.Lock()
	defer r.update.Unlock()
	before := *r.current.Load()
	next := make(map[string]*entry, len(clusters))
	for _, c := range clusters {
		next[c.Metadata.Name] = r.entry(c, before[c.Metadata.Name])
	}
	r.current.Store(&next)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// entry makes the entry of a document, with the connection that the cluster had before if it is the same.
func (r *Registry) entry(c *kinds.Cluster, before *entry) *entry {
	e := &entry{identities: make(map[string]bool, len(c.Spec.Identities)), authorities: c.Spec.Authorities}
	for _, id := range c.Spec.Identities {
		e.identities[id] = true
	}
	if c.Spec.Kubeconfig != "" {
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

// remote is what asks a cluster, with the connection that there was before if it is the same.
func (r *Registry) remote(c *kinds.Cluster, kubeconfig string, whole bool, before *entry) *remote {
	if before != nil && before.remote.is(kubeconfig, whole) {
		return before.remote
	}
	return newRemote(remoteOptions{
		path: kubeconfig, whole: whole, reload: r.reload, builtin: r.builtin, logger: r.logger.With("cluster", c.Metadata.Name),
	})
}

// Run connects to the clusters that have a kubeconfig, and disconnects from those that are gone, until ctx ends. It
// returns when everything that it started has ended.
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

// remotes are the connections that there should be.
func (r *Registry) remotes() map[*remote]bool {
	wanted := map[*remote]bool{}
	for _, e := range *r.current.Load() {
		if e.remote != nil {
			wanted[e.remote] = true
		}
	}
	return wanted
}

// Authorize returns nil if the caller may send reviews of the cluster, else an *AuthorizationError.
func (r *Registry) Authorize(caller identity.Peer, cluster string) error {
	e, ok := (*r.current.Load())[cluster]
	switch {
	case !ok:
		return &AuthorizationError{Identity: caller.Name(), Cluster: cluster, reason: ErrUnknownCluster}
	case !e.identities[caller.Name()] || !caller.VouchedBy(e.authorities):
		return &AuthorizationError{Identity: caller.Name(), Cluster: cluster, reason: ErrNotAllowed}
	}
	return nil
}
