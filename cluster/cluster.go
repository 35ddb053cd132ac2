// Package cluster knows the clusters that send reviews: who may send them, and what a review does not carry.
//
// A [Registry] is built from Cluster documents and changes with them. Looking something up takes no lock and starts
// nothing. Its Run owns a watch of the namespaces of each cluster that has a kubeconfig; a cluster that cannot be
// reached concerns its own reviews alone. What is known about a cluster has a bound on its age: past it the cluster is
// asked, and when it does not answer there is an error, never an old answer.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/config/kinds"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Why a caller may not send reviews of a cluster. Log it; the caller is told neither.
var (
	// ErrUnknownCluster: there is no such cluster.
	ErrUnknownCluster = errors.New("the cluster is unknown")
	// ErrNotAllowed: the cluster is known, and the identity is not one of its callers.
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

// Options configure a Registry.
type Options struct {
	// Logger is told when a cluster cannot be asked, and when it can be again; nil means nobody is.
	Logger *slog.Logger
}

// Registry is the clusters. Its methods may be called concurrently; Run is called once.
type Registry struct {
	logger  *slog.Logger
	reload  time.Duration                     // of kubeconfigs
	current atomic.Pointer[map[string]*entry] // by name; never changed once it is here
	changed chan struct{}                     // holds one token while Run has not seen an update

	update sync.Mutex // held while current is replaced
}

// entry is one cluster.
type entry struct {
	identities map[string]bool
	namespaces namespaces
	remote     *remote // the namespaces, if they come from a kubeconfig
}

// namespaces is one way to learn the labels of namespaces. A missing namespace is an error that apierrors.IsNotFound
// recognises. The labels are not changed by either side.
type namespaces interface {
	labels(ctx context.Context, name string) (map[string]string, error)
	status() Status
}

// New returns a registry without clusters: it refuses everybody.
func New(opts Options) *Registry {
	r := &Registry{logger: opts.Logger, reload: reloadInterval, changed: make(chan struct{}, 1)}
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
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
	name := c.Metadata.Name
	e := &entry{identities: make(map[string]bool, len(c.Spec.Identities))}
	for _, id := range c.Spec.Identities {
		e.identities[id] = true
	}
	switch source := c.Spec.Namespaces; {
	case source == nil:
		e.namespaces = unknown{}
	case source.Kubeconfig == "":
		e.namespaces = newStatic(source.Static)
	case before != nil && before.remote != nil && before.remote.path == source.Kubeconfig:
		e.remote, e.namespaces = before.remote, before.remote
	default:
		e.remote = newRemote(source.Kubeconfig, r.reload, r.logger.With("cluster", name))
		e.namespaces = e.remote
	}
	return e
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

// Authorize returns nil if the identity may send reviews of the cluster, else an *AuthorizationError.
func (r *Registry) Authorize(identity, cluster string) error {
	e, ok := (*r.current.Load())[cluster]
	switch {
	case !ok:
		return &AuthorizationError{Identity: identity, Cluster: cluster, reason: ErrUnknownCluster}
	case identity == "" || !e.identities[identity]:
		return &AuthorizationError{Identity: identity, Cluster: cluster, reason: ErrNotAllowed}
	}
	return nil
}

// Cluster returns what is known about a cluster. It is never nil: what a review needs of an unknown cluster is an error.
// It implements the dispatcher's Clusters.
func (r *Registry) Cluster(name string) match.Cluster { return member{registry: r, name: name} }

// member is a cluster as reviews see it.
type member struct {
	match.Unknown

	registry *Registry
	name     string
}

// NamespaceLabels implements [match.Cluster].
func (m member) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	return m.registry.NamespaceLabels(ctx, m.name, name)
}

// NamespaceLabels returns the labels that a namespace of the cluster has now; they must not be changed. An error that
// apierrors.IsNotFound recognises says that there is no such namespace; any other, that it cannot be told. It waits for
// the cluster no longer than ctx.
func (r *Registry) NamespaceLabels(ctx context.Context, cluster, name string) (map[string]string, error) {
	e, ok := (*r.current.Load())[cluster]
	if !ok {
		return nil, fmt.Errorf("namespaces of cluster %q: %w", cluster, ErrUnknownCluster)
	}
	labels, err := e.namespaces.labels(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("namespace %q of cluster %q: %w", name, cluster, err)
	}
	return labels, nil
}

// Status is what is known about a cluster, for operators.
type Status struct {
	// Cluster is its name.
	Cluster string
	// Source is where the labels of namespaces come from: unknown, static or kubeconfig.
	Source string
	// Fresh is true while labels are answered from memory.
	Fresh bool
	// Err is why the cluster cannot be asked; nil while it can be.
	Err error
}

// Status returns the clusters by name.
func (r *Registry) Status() []Status {
	var all []Status
	for name, e := range *r.current.Load() {
		s := e.namespaces.status()
		s.Cluster = name
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}
