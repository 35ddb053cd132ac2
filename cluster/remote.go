package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// reloadInterval is how often a kubeconfig is read again: it may have changed, or become readable.
const reloadInterval = 5 * time.Second

// errNotConnected is the error of a cluster to which no connection was tried yet.
var errNotConnected = fmt.Errorf("the cluster is not connected yet")

// remoteOptions configure a remote.
type remoteOptions struct {
	// path is the file of the kubeconfig.
	path string
	// whole says that the cluster is asked for everything, not for its namespaces alone.
	whole bool
	// reload lies between two readings of the kubeconfig.
	reload time.Duration
	// builtin knows the resources that are built in.
	builtin Builtin
	// logger is told when the cluster cannot be asked.
	logger *slog.Logger
}

// remote is a cluster that is asked through a kubeconfig. Its methods may be called concurrently; run is called once.
type remote struct {
	remoteOptions

	current atomic.Pointer[link] // nil before the first attempt
	tried   chan struct{}        // closed after it
}

var (
	_ namespaces            = (*remote)(nil)
	_ resources             = (*remote)(nil)
	_ authorizer.Authorizer = (*remote)(nil)
)

func newRemote(o remoteOptions) *remote {
	return &remote{remoteOptions: o, tried: make(chan struct{})}
}

// is tells whether the remote is what the options ask for.
func (r *remote) is(path string, whole bool) bool {
	return r != nil && r.path == path && r.whole == whole
}

// connected waits until the cluster was tried, and returns the link to it.
func (r *remote) connected(ctx context.Context) (*link, error) {
	select {
	case <-r.tried:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errNotConnected, context.Cause(ctx))
	}
	l := r.current.Load()
	return l, l.err
}

// labels implements namespaces.
func (r *remote) labels(ctx context.Context, name string) (map[string]string, error) {
	l, err := r.connected(ctx)
	if err != nil {
		return nil, err
	}
	return l.namespaces.labels(ctx, name)
}

// Authorize implements authorizer.Authorizer.
func (r *remote) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	l, err := r.connected(ctx)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	permissions, err := l.permissions()
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	return permissions.Authorize(ctx, a)
}

// known returns the link to the cluster, without waiting.
func (r *remote) known() (*link, error) {
	l := r.current.Load()
	if l == nil {
		return nil, errNotConnected
	}
	return l, l.err
}

// equivalents implements resources.
func (r *remote) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	l, err := r.known()
	if err != nil {
		return nil, err
	}
	return l.equivalents(resource, subresource)
}

// definition implements resources.
func (r *remote) definition(kind schema.GroupKind) (*definition, error) {
	l, err := r.known()
	if err != nil {
		return nil, err
	}
	c, err := l.definitions()
	if err != nil {
		return nil, err
	}
	return c.kinds[kind], nil
}

// parts tells how current each part is.
func (r *remote) parts() []Part {
	names := []string{PartNamespaces}
	if r.whole {
		names = append(names, PartResources, PartCustomResources)
	}
	var parts []Part
	for _, name := range names {
		p := Part{Name: name, Source: SourceKubeconfig, Err: errNotConnected}
		if l := r.current.Load(); l != nil {
			p.Err = l.check(name)
		}
		p.Fresh = p.Err == nil
		parts = append(parts, p)
	}
	return parts
}

// run keeps a link to the cluster until ctx ends.
func (r *remote) run(ctx context.Context) {
	for ctx.Err() == nil {
		conf, err := loadKubeconfig(r.path)
		if err == nil {
			err = r.connect(ctx, conf)
		}
		if err != nil {
			r.fail(err)
			pause(ctx, r.reload)
		}
	}
}

// fail makes err the reason why there is no link.
func (r *remote) fail(err error) {
	if l := r.current.Load(); l == nil || l.err == nil || l.err.Error() != err.Error() {
		r.logger.Error("the cluster cannot be asked", "error", err)
	}
	r.use(&link{err: err})
}

// use replaces the link.
func (r *remote) use(l *link) {
	if r.current.Swap(l) == nil {
		close(r.tried)
	}
}

// connect links to the cluster until ctx ends or the kubeconfig changes. What was known of the same cluster stays known.
func (r *remote) connect(ctx context.Context, conf *kubeconfig) error {
	httpClient, err := rest.HTTPClientFor(conf.config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", r.path, err)
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	clients, err := newClients(conf.config, httpClient)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", r.path, err)
	}
	l := newLink(clients, r.builtin, r.logger)
	if before := r.current.Load(); before != nil && before.err == nil && before.host == l.host {
		l.inherit(before)
	}
	r.use(l)

	ctx, cancel := context.WithCancel(ctx)
	wait := l.follow(ctx, r.whole)
	defer wait()
	defer cancel()
	for pause(ctx, r.reload) {
		// A kubeconfig that cannot be read any more leaves the link as it is: it may be about to be replaced.
		if next, err := loadKubeconfig(r.path); err == nil && next.digest != conf.digest {
			r.logger.Info("the kubeconfig of the cluster has changed")
			return nil
		}
	}
	return nil
}

// pause waits; it reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
