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
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// reloadInterval is the interval at which a kubeconfig is read again.
const reloadInterval = 5 * time.Second

var errNotConnected = fmt.Errorf("the cluster is not connected yet")

var errNoBridges = errors.New("the cluster is asked through its bridges, and this process has no listener for them")

// remote is a cluster that is reached through a kubeconfig, or through its bridges. Its methods may be called concurrently; run is called once.
type remote struct {
	answers answers.Transport // of each connection, which it lacks
	path    string            // of the kubeconfig; empty with bridges
	load    func() (*kubeconfigFile, error)
	whole   bool          // whether everything is read from the cluster, or its namespaces alone
	reload  time.Duration // between two reads of the kubeconfig
	age     time.Duration // for which information counts; 0 is FreshFor
	builtin Builtin
	logger  *slog.Logger
	tried   chan struct{} // closed after the first attempt

	current atomic.Pointer[clusterConn] // nil before the first attempt
}

var (
	_ namespaces            = (*remote)(nil)
	_ resources             = (*remote)(nil)
	_ authorizer.Authorizer = (*remote)(nil)
)

func (r *remote) is(path string, whole bool) bool {
	return r != nil && r.path == path && r.whole == whole
}

// connected returns the connection, after the first attempt.
func (r *remote) connected(ctx context.Context) (*clusterConn, error) {
	select {
	case <-r.tried:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errNotConnected, context.Cause(ctx))
	}
	c := r.current.Load()
	return c, c.err
}

// labels implements namespaces.
func (r *remote) labels(ctx context.Context, name string) (map[string]string, error) {
	c, err := r.connected(ctx)
	if err != nil {
		return nil, err
	}
	return c.namespaces.labels(ctx, name)
}

func (r *remote) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c, err := r.connected(ctx)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	return c.permissions.Authorize(ctx, a)
}

// known returns the connection without waiting.
func (r *remote) known() (*clusterConn, error) {
	c := r.current.Load()
	if c == nil {
		return nil, errNotConnected
	}
	return c, c.err
}

// equivalents implements resources.
func (r *remote) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	c, err := r.known()
	if err != nil {
		return nil, err
	}
	return c.equivalents(resource, subresource)
}

// definition implements resources.
func (r *remote) definition(kind schema.GroupKind) (*definition, error) {
	c, err := r.known()
	if err != nil {
		return nil, err
	}
	definitions, err := c.definitions()
	if err != nil {
		return nil, err
	}
	return definitions.ofKind(kind), nil
}

// source is where the parts come from.
func (r *remote) source() string {
	if r.path == "" {
		return SourceBridge
	}
	return SourceKubeconfig
}

func (r *remote) parts() []Part {
	names := []string{PartNamespaces}
	if r.whole {
		names = append(names, PartResources, PartCustomResources)
	}
	var parts []Part
	for _, name := range names {
		p := Part{Name: name, Source: r.source(), Err: errNotConnected}
		if c := r.current.Load(); c != nil {
			p.Err, p.Confirmed = c.check(name), c.confirmedAt(name)
		}
		p.Fresh = p.Err == nil
		parts = append(parts, p)
	}
	return parts
}

// run keeps a connection to the cluster until ctx ends.
func (r *remote) run(ctx context.Context) {
	defer func() {
		if c := r.current.Load(); c != nil {
			c.release()
		}
	}()
	for ctx.Err() == nil {
		conf, err := r.load()
		if err == nil {
			err = r.connect(ctx, conf)
		}
		if err != nil {
			r.fail(err)
			clock.Sleep(ctx, r.reload)
		}
	}
}

// fail replaces the connection by an error.
func (r *remote) fail(err error) {
	if c := r.current.Load(); c == nil || c.err == nil || c.err.Error() != err.Error() {
		r.logger.Error("the cluster cannot be asked", "error", err)
	}
	r.use(&clusterConn{err: err})
}

func (r *remote) use(c *clusterConn) {
	before := r.current.Swap(c)
	if before == nil {
		close(r.tried)
		return
	}
	before.release()
}

// connect connects to the cluster until ctx ends or the kubeconfig changes. A new connection to the same cluster starts with the data of
// the last connection.
func (r *remote) connect(ctx context.Context, conf *kubeconfigFile) error {
	httpClient, err := rest.HTTPClientFor(conf.config)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", conf.config.Host, err)
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	answers.LimitBuffers(httpClient.Transport)
	over := r.answers
	over.RoundTripper = httpClient.Transport
	clients, err := newClients(conf.config, over)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", conf.config.Host, err)
	}
	c := newConn(clients, r.builtin, r.logger, r.age)
	if before := r.current.Load(); before != nil && before.err == nil && before.host == c.host {
		c.seedFrom(before)
	}
	r.use(c)

	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { c.watch(ctx, r.whole) })
	for clock.Sleep(ctx, r.reload) {
		// A kubeconfig that cannot be read may be about to be replaced, so the connection stays.
		if next, err := r.load(); err == nil && next.digest != conf.digest {
			r.logger.Info("the kubeconfig of the cluster has changed")
			return nil
		}
	}
	return nil
}
