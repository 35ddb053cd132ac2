package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxLiveReads bounds the reads of single namespaces in flight to one cluster. Others wait.
const MaxLiveReads = 32

// namespaceReader is the part of a metadata client that watchedNamespaces needs.
type namespaceReader interface {
	collection[*metav1.PartialObjectMetadataList]
	Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error)
}

// watchedNamespaces returns the labels of namespaces of a cluster from a cache, or reads them from the cluster.
type watchedNamespaces struct {
	cache  objectCache[*metav1.PartialObjectMetadata, map[string]string]
	reader namespaceReader
	slots  chan struct{} // holds a token for each live read
}

func newWatchedNamespaces(reader namespaceReader) *watchedNamespaces {
	n := &watchedNamespaces{reader: reader, slots: make(chan struct{}, MaxLiveReads)}
	n.cache.read = func(ns *metav1.PartialObjectMetadata) map[string]string { return ns.Labels }
	return n
}

func (n *watchedNamespaces) watch(ctx context.Context) {
	watchInto(ctx, "namespaces", n.reader, &metav1.PartialObjectMetadata{}, &n.cache)
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
	ns, err := n.reader.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) {
		// The 404 is not an API server's, so it does not mean that the namespace is missing.
		return nil, errors.New("the cluster cannot be asked: " + err.Error())
	}
	if err != nil {
		return nil, err
	}
	return ns.Labels, nil
}
