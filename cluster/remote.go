package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// MaxLiveReads bounds the reads of single namespaces that one cluster gets from us at the same time. More wait.
	MaxLiveReads = 32
	// reloadInterval is how often a kubeconfig is read again: it may have changed, or become readable.
	reloadInterval = 5 * time.Second
)

// remote is the namespaces of a cluster that is asked through a kubeconfig. Its methods may be called concurrently; run
// is called once.
type remote struct {
	path   string
	reload time.Duration // from one reading of the kubeconfig to the next
	logger *slog.Logger

	current atomic.Pointer[link] // nil before the first attempt
	tried   chan struct{}        // closed after it
}

// link is a connection to a cluster, or the reason why there is none.
type link struct {
	err    error
	mirror *mirror
	get    func(ctx context.Context, name string) (map[string]string, error)
	slots  chan struct{} // holds a token for each live read
}

func newRemote(path string, reload time.Duration, logger *slog.Logger) *remote {
	return &remote{path: path, reload: reload, logger: logger, tried: make(chan struct{})}
}

// labels answers as Kubernetes' namespace matcher does: what the watch told, and else what the cluster says now.
func (r *remote) labels(ctx context.Context, name string) (map[string]string, error) {
	select {
	case <-r.tried:
	case <-ctx.Done():
		return nil, fmt.Errorf("the cluster is not connected yet: %w", context.Cause(ctx))
	}
	l := r.current.Load()
	if l.err != nil {
		return nil, l.err
	}
	if labels, ok := l.mirror.lookup(name); ok {
		return labels, nil
	}
	return l.live(ctx, name)
}

func (r *remote) status() Status {
	s := Status{Source: "kubeconfig"}
	if l := r.current.Load(); l != nil {
		s.Err, s.Fresh = l.err, l.err == nil && l.mirror.fresh()
	}
	return s
}

// live asks the cluster.
func (l *link) live(ctx context.Context, name string) (map[string]string, error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read it: %w", context.Cause(ctx))
	}
	defer func() { <-l.slots }()
	if labels, ok := l.mirror.lookup(name); ok { // the watch may have told while others were served
		return labels, nil
	}
	labels, err := l.get(ctx, name)
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) {
		// Something answered 404, but no API server: that says nothing about the namespace.
		return nil, errors.New("the cluster cannot be asked: " + err.Error())
	}
	return labels, err
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
		r.logger.Error("namespaces of the cluster cannot be read", "error", err)
	}
	r.use(&link{err: err})
}

// use replaces the link.
func (r *remote) use(l *link) {
	if r.current.Swap(l) == nil {
		close(r.tried)
	}
}

// connect links to the cluster until ctx ends or the kubeconfig changes.
func (r *remote) connect(ctx context.Context, conf *kubeconfig) error {
	httpClient, err := rest.HTTPClientFor(conf.config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", r.path, err)
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	client, err := metadata.NewForConfigAndClient(conf.config, httpClient)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", r.path, err)
	}
	resource := client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	l := newLink(resource)
	r.use(l)

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { l.watch(logr.NewContextWithSlogLogger(ctx, r.logger), resource) })
	for pause(ctx, r.reload) {
		// A kubeconfig that cannot be read any more leaves the link as it is: it may be about to be replaced.
		if next, err := loadKubeconfig(r.path); err == nil && next.digest != conf.digest {
			r.logger.Info("the kubeconfig of the cluster has changed")
			return nil
		}
	}
	return nil
}

// reader is the part of a metadata client that is used.
type reader interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error)
	List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

func newLink(namespaces reader) *link {
	return &link{
		mirror: &mirror{},
		slots:  make(chan struct{}, MaxLiveReads),
		get: func(ctx context.Context, name string) (map[string]string, error) {
			ns, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return ns.Labels, nil
		},
	}
}

// watch keeps the mirror until ctx ends. The reflector lists again with a back-off when a watch breaks.
func (l *link) watch(ctx context.Context, namespaces reader) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return namespaces.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return namespaces.Watch(ctx, opts)
		},
	}
	options := cache.ReflectorOptions{Name: "namespaces"}
	cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, l.mirror, options).RunWithContext(ctx)
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
