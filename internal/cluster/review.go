package cluster

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Cluster returns a cluster by its name, never nil: the methods of an unknown cluster return errors. It implements the
// dispatcher's Clusters.
func (r *Registry) Cluster(name string) match.Cluster { return reviewCluster{registry: r, name: name} }

// reviewCluster is a cluster as reviews see it. It follows the documents.
type reviewCluster struct {
	registry *Registry
	name     string
}

var _ match.Cluster = reviewCluster{}

func (c reviewCluster) registered() (*registered, error) {
	e, ok := (*c.registry.current.Load())[c.name]
	if !ok {
		return nil, ErrUnknownCluster
	}
	return e, nil
}

func (c reviewCluster) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	return c.registry.NamespaceLabels(ctx, c.name, name)
}

// NamespaceLabels returns the labels of a namespace of a cluster, which must not be changed. apierrors.IsNotFound recognises the
// error of a missing namespace; with any other error it is unknown. ctx bounds the wait for the cluster.
func (r *Registry) NamespaceLabels(ctx context.Context, cluster, name string) (map[string]string, error) {
	e, err := reviewCluster{registry: r, name: cluster}.registered()
	if err != nil {
		return nil, fmt.Errorf("namespaces of cluster %q: %w", cluster, err)
	}
	labels, err := e.namespaces.labels(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("namespace %q of cluster %q: %w", name, cluster, err)
	case err != nil:
		return nil, fmt.Errorf("namespace %q cannot be read from the API server of cluster %q: %w", name, cluster, err)
	}
	return labels, nil
}

func (c reviewCluster) Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	e, err := c.registered()
	if err != nil {
		return nil, fmt.Errorf("resources of cluster %q: %w", c.name, err)
	}
	ways, err := e.resources.equivalents(resource, subresource)
	if err != nil {
		return nil, fmt.Errorf("equivalents of %s in cluster %q: %w", resource.GroupResource(), c.name, err)
	}
	return ways, nil
}

// Convert implements [match.Cluster]. A kind that is not built in is a custom resource.
func (c reviewCluster) Convert(ctx context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	e, err := c.registered()
	if err != nil {
		return nil, fmt.Errorf("conversions of cluster %q: %w", c.name, err)
	}
	converted, err := c.registry.builtin.Convert(object, to)
	if errors.Is(err, ErrUnknownKind) {
		converted, err = c.convertCustom(ctx, e, object, to)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", c.name, err)
	}
	return converted, nil
}

func (c reviewCluster) convertCustom(ctx context.Context, e *registered, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	d, err := e.resources.definition(to.GroupKind())
	switch {
	case err != nil:
		return nil, fmt.Errorf("converting a %s to %s: %w", to.Kind, to.GroupVersion(), err)
	case d == nil:
		return nil, fmt.Errorf("converting a %s to %s: %w, and the cluster has no CustomResourceDefinition of it: let the rules "+
			"of the hooks name the versions that clients use, or give the hooks matchPolicy Exact", to.Kind, to.GroupVersion(), ErrUnknownKind)
	case d.err != nil:
		return nil, d.err
	}
	return d.custom.Convert(ctx, object, to, c.conversionsOf(e, d))
}

// conversionsOf returns the caller of the conversion webhook of a definition: a bridge of the cluster if the cluster is asked through these,
// since it is where the webhook is.
func (c reviewCluster) conversionsOf(e *registered, d *definition) custom.Caller {
	if c.registry.bridged != nil && e.remote != nil && e.remote.source() == SourceBridge {
		return c.registry.bridged(c.name, d.resource.String())
	}
	return c.registry.conversions(c.name)
}

// Default implements [match.Cluster], by the schema of the CustomResourceDefinition. Objects of built-in kinds do not depend on
// the cluster.
func (c reviewCluster) Default(ctx context.Context, kind schema.GroupVersionKind, object []byte, book func(bytes int64) error) ([]byte, error) {
	if c.registry.builtin.Knows(kind) {
		return object, nil
	}
	d, err := c.definition(kind.GroupKind())
	switch {
	case err != nil:
		return nil, fmt.Errorf("defaults of %s in cluster %q: %w", kind.GroupKind(), c.name, err)
	case d == nil:
		return object, nil
	}
	return d.Default(ctx, object, book)
}

// MergeType implements [match.Cluster], by the schema of the CustomResourceDefinition.
func (c reviewCluster) MergeType(kind schema.GroupVersionKind, book func(bytes int64) error) (*typed.ParseableType, error) {
	d, err := c.definition(kind.GroupKind())
	switch {
	case err != nil:
		return nil, fmt.Errorf("schema of %s in cluster %q: %w", kind.GroupKind(), c.name, err)
	case d == nil:
		return nil, nil //nolint:nilnil // as documented
	}
	return d.MergeType(kind, book)
}

// definition returns the definition of a kind; nil if the cluster has none.
func (c reviewCluster) definition(kind schema.GroupKind) (*custom.Definition, error) {
	e, err := c.registered()
	if err != nil {
		return nil, err
	}
	d, err := e.resources.definition(kind)
	switch {
	case err != nil, d == nil:
		return nil, err
	case d.err != nil:
		return nil, d.err
	}
	return d.custom, nil
}

func (c reviewCluster) Authorizer() authorizer.Authorizer {
	e, err := c.registered()
	if err != nil {
		return nil
	}
	return e.permissions
}

// Namespaced implements [match.Cluster].
func (c reviewCluster) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	e, err := c.connected()
	if err != nil {
		return false, err
	}
	found, _, err := e.resourceOf(kind)
	if err != nil {
		return false, fmt.Errorf("kinds of cluster %q: %w", c.name, err)
	}
	return found.namespaced, nil
}

// Objects implements [match.Cluster].
func (c reviewCluster) Objects(ctx context.Context, s match.Selection) ([]*unstructured.Unstructured, error) {
	e, err := c.connected()
	if err != nil {
		return nil, err
	}
	objects, err := e.objects(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("objects of kind %s of cluster %q: %w", s.Kind.Kind, c.name, err)
	}
	return objects, nil
}

// connected returns the way to the cluster.
func (c reviewCluster) connected() (*remote, error) {
	e, err := c.registered()
	if err == nil && e.remote == nil {
		err = errors.New("it cannot be asked: give the Cluster document spec.kubeconfig or spec.bridge")
	}
	if err != nil {
		return nil, fmt.Errorf("objects of cluster %q: %w", c.name, err)
	}
	return e.remote, nil
}

// noCaller stands for missing Options.Conversions.
type noCaller struct{}

var _ custom.Caller = noCaller{}

func (noCaller) CallConversion(context.Context, *apiextensionsv1.WebhookClientConfig, []byte) ([]byte, error) {
	return nil, errors.New("conversion webhooks are not called from here")
}
