package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// MaxLiveReads bounds the reads of single namespaces in flight to one cluster. Others wait.
const MaxLiveReads = 32

// namespaceReader is the part of a metadata client that watchedNamespaces needs.
type namespaceReader interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error)
}

// watchedNamespaces returns the labels of namespaces of a cluster from a cache, or reads them from the cluster.
type watchedNamespaces struct {
	cache  objectCache[*metav1.PartialObjectMetadata, map[string]string]
	reader namespaceReader
	watch  func(ctx context.Context) // fills the cache until ctx ends
	slots  chan struct{}             // holds a token for each live read
}

// newWatchedNamespaces reads namespaces of a cluster. source returns the collection that fills the cache.
func newWatchedNamespaces[L runtime.Object](
	reader namespaceReader, source func(*objectCache[*metav1.PartialObjectMetadata, map[string]string]) collection[L],
) *watchedNamespaces {
	n := &watchedNamespaces{reader: reader, slots: make(chan struct{}, MaxLiveReads)}
	n.cache.read = readLabels
	n.watch = func(ctx context.Context) {
		watchInto(ctx, "namespaces", source(&n.cache), &metav1.PartialObjectMetadata{}, &n.cache)
	}
	return n
}

// namespacesOf are the namespaces of a cluster, item by item.
func namespacesOf(c *clients) *watchedNamespaces {
	return newWatchedNamespaces(c.namespaces, func(cache *objectCache[*metav1.PartialObjectMetadata, map[string]string]) collection[*entries[map[string]string]] {
		return &lister[metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata, map[string]string]{
			c.namespaces, c.lists, "/api/v1/namespaces", acceptMetadata, cache,
		}
	})
}

// labelBytes is the memory of a label in a map, beside its name and value.
const labelBytes = 64

// readLabels returns the labels of a namespace, and their memory.
func readLabels(ns *metav1.PartialObjectMetadata) (map[string]string, int64) {
	bytes := int64(0)
	for name, value := range ns.Labels {
		bytes += int64(len(name)+len(value)) + labelBytes
	}
	return ns.Labels, bytes
}

// labels implements namespaces, as Kubernetes' namespace matcher does.
func (n *watchedNamespaces) labels(ctx context.Context, name string) (map[string]string, error) {
	if labels, ok := n.cache.lookup(name); ok {
		return labels, nil
	}
	return n.live(ctx, name)
}

func (n *watchedNamespaces) live(ctx context.Context, name string) (map[string]string, error) {
	select {
	case n.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read it: %w", context.Cause(ctx))
	}
	defer func() { <-n.slots }()
	if labels, ok := n.cache.lookup(name); ok { // the watch may have delivered it meanwhile
		return labels, nil
	}
	booked, err := n.cache.reserve()
	if err != nil {
		return nil, err
	}
	defer booked.Release()
	ns, err := n.reader.Get(answers.Booked(ctx, booked), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) {
		// The 404 is not an API server's, so it does not mean that the namespace is missing.
		return nil, errors.New("the cluster cannot be asked: " + err.Error())
	}
	if err != nil {
		return nil, err
	}
	return ns.Labels, nil
}
