package cluster

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Cluster returns what is known about a cluster. It is never nil: what a review needs of an unknown cluster is an error.
// It implements the dispatcher's Clusters. What it returns follows the documents.
func (r *Registry) Cluster(name string) match.Cluster { return member{registry: r, name: name} }

// member is a cluster as reviews see it.
type member struct {
	registry *Registry
	name     string
}

var _ match.Cluster = member{}

// entry is the cluster as its document has it now.
func (m member) entry() (*entry, error) {
	e, ok := (*m.registry.current.Load())[m.name]
	if !ok {
		return nil, ErrUnknownCluster
	}
	return e, nil
}

// NamespaceLabels implements [match.Cluster].
func (m member) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	return m.registry.NamespaceLabels(ctx, m.name, name)
}

// NamespaceLabels returns the labels that a namespace of the cluster has now; they must not be changed. An error that
// apierrors.IsNotFound recognises says that there is no such namespace; any other, that it cannot be told. It waits for
// the cluster no longer than ctx.
func (r *Registry) NamespaceLabels(ctx context.Context, cluster, name string) (map[string]string, error) {
	e, err := member{registry: r, name: cluster}.entry()
	if err != nil {
		return nil, fmt.Errorf("namespaces of cluster %q: %w", cluster, err)
	}
	labels, err := e.namespaces.labels(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("namespace %q of cluster %q: %w", name, cluster, err)
	}
	return labels, nil
}

// Equivalents implements [match.Cluster].
func (m member) Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	e, err := m.entry()
	if err != nil {
		return nil, fmt.Errorf("resources of cluster %q: %w", m.name, err)
	}
	ways, err := e.resources.equivalents(resource, subresource)
	if err != nil {
		return nil, fmt.Errorf("equivalents of %s in cluster %q: %w", resource.GroupResource(), m.name, err)
	}
	return ways, nil
}

// Convert implements [match.Cluster]: what is not built in is a custom resource.
func (m member) Convert(ctx context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	e, err := m.entry()
	if err != nil {
		return nil, fmt.Errorf("conversions of cluster %q: %w", m.name, err)
	}
	converted, err := m.registry.builtin.Convert(object, to)
	if errors.Is(err, ErrUnknownKind) {
		converted, err = m.convertCustom(ctx, e, object, to)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", m.name, err)
	}
	return converted, nil
}

// convertCustom converts a custom resource.
func (m member) convertCustom(ctx context.Context, e *entry, object []byte, to schema.GroupVersionKind) ([]byte, error) {
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
	return d.custom.Convert(ctx, object, to, m.registry.conversions(m.name))
}

// Default implements [match.Cluster]: the defaults are those of the schema of the CustomResourceDefinition. Objects of
// built-in kinds do not depend on what is known of the cluster.
func (m member) Default(kind schema.GroupVersionKind, object []byte) ([]byte, error) {
	if m.registry.builtin.Knows(kind) {
		return object, nil
	}
	e, err := m.entry()
	if err != nil {
		return nil, fmt.Errorf("defaults of cluster %q: %w", m.name, err)
	}
	d, err := e.resources.definition(kind.GroupKind())
	if err == nil && d != nil {
		err = d.err
	}
	if err != nil {
		return nil, fmt.Errorf("defaults of %s in cluster %q: %w", kind.GroupKind(), m.name, err)
	}
	if d == nil {
		return object, nil
	}
	return d.custom.Default(object)
}

// Authorizer implements [match.Cluster].
func (m member) Authorizer() authorizer.Authorizer {
	e, err := m.entry()
	if err != nil {
		return nil
	}
	return e.permissions
}

// noCaller is the caller of conversion webhooks for those who have none.
type noCaller struct{}

var _ custom.Caller = noCaller{}

// CallConversion implements [custom.Caller].
func (noCaller) CallConversion(context.Context, *apiextensionsv1.WebhookClientConfig, []byte) ([]byte, error) {
	return nil, errors.New("conversion webhooks are not called from here")
}
