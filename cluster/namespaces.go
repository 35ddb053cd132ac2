package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxLiveReads bounds the reads of single namespaces that one cluster gets from us at the same time. More wait.
const MaxLiveReads = 32

// namespaceReader reads the metadata of namespaces: the part of a metadata client that is used.
type namespaceReader interface {
	collection[*metav1.PartialObjectMetadataList]
	Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (*metav1.PartialObjectMetadata, error)
}

// watchedNamespaces are the labels of the namespaces of a cluster: those that its watch told, and else what it says now.
type watchedNamespaces struct {
	mirror mirror[map[string]string]
	reader namespaceReader
	slots  chan struct{} // holds a token for each live read
}

func newWatchedNamespaces(reader namespaceReader) *watchedNamespaces {
	n := &watchedNamespaces{reader: reader, slots: make(chan struct{}, MaxLiveReads)}
	n.mirror.read = func(obj any) (map[string]string, error) {
		ns, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return nil, fmt.Errorf("the watch of namespaces told of a %T", obj)
		}
		return ns.Labels, nil
	}
	return n
}

// follow keeps the mirror until ctx ends.
func (n *watchedNamespaces) follow(ctx context.Context) {
	follow(ctx, "namespaces", n.reader, &metav1.PartialObjectMetadata{}, &n.mirror)
}

// labels answers as Kubernetes' namespace matcher does.
func (n *watchedNamespaces) labels(ctx context.Context, name string) (map[string]string, error) {
	if labels, ok := n.mirror.lookup(name); ok {
		return labels, nil
	}
	return n.live(ctx, name)
}

// live asks the cluster.
func (n *watchedNamespaces) live(ctx context.Context, name string) (map[string]string, error) {
	select {
	case n.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read it: %w", context.Cause(ctx))
	}
	defer func() { <-n.slots }()
	if labels, ok := n.mirror.lookup(name); ok { // the watch may have told while others were served
		return labels, nil
	}
	ns, err := n.reader.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) {
		// Something answered 404, but no API server: that says nothing about the namespace.
		return nil, errors.New("the cluster cannot be asked: " + err.Error())
	}
	if err != nil {
		return nil, err
	}
	return ns.Labels, nil
}
