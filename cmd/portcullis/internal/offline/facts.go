package offline

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
)

// Facts are the things that a mesh asks a cluster. The zero Facts are a cluster with all namespaces, without labels, and without any other object. They
// are not changed while reviews are judged.
type Facts struct {
	// Namespaces are labels by the name of a namespace. Each namespace exists, and has the label kubernetes.io/metadata.name.
	Namespaces map[string]map[string]string
	// Objects are the objects that the cluster has: params of policies, and Namespaces. A Namespace has its labels from here. An object of a built-in kind
	// that is in a namespace, and names none, is in "default".
	Objects []*unstructured.Unstructured
	// Authorizer answers the checks of expressions; nil answers nothing, and an expression that asks fails.
	Authorizer authorizer.Authorizer
	// Cluster is a real cluster, which is asked for everything in the place of the other facts; nil without one.
	Cluster match.Cluster
}

// clusters provides the same facts for each cluster.
type clusters struct {
	mesh  *Mesh
	facts *Facts
}

var _ dispatcher.Clusters = clusters{}

// Cluster implements [dispatcher.Clusters].
func (c clusters) Cluster(name string) match.Cluster {
	if c.facts.Cluster != nil {
		return c.facts.Cluster
	}
	return known{Cluster: c.mesh.cluster(name), mesh: c.mesh, name: name, facts: c.facts}
}

// known is a cluster as its document and the facts of a review describe it.
type known struct {
	match.Cluster

	mesh  *Mesh
	name  string
	facts *Facts
}

// NamespaceLabels implements [match.Cluster].
func (k known) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	return k.namespace(name).GetLabels(), nil
}

// namespace is an object of the facts, or made by their labels.
func (k known) namespace(name string) *unstructured.Unstructured {
	namespace := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Active"}}}
	for _, o := range k.facts.Objects {
		if o.GroupVersionKind() == match.NamespaceKind && o.GetName() == name {
			namespace = o.DeepCopy()
		}
	}
	namespace.SetGroupVersionKind(match.NamespaceKind)
	namespace.SetName(name)
	all := map[string]string{corev1.LabelMetadataName: name}
	maps.Copy(all, namespace.GetLabels())
	maps.Copy(all, k.facts.Namespaces[name])
	namespace.SetLabels(all)
	return namespace
}

// Authorizer implements [match.Cluster].
func (k known) Authorizer() authorizer.Authorizer { return k.facts.Authorizer }

// Namespaced implements [match.Cluster].
func (k known) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	if k.mesh.codec.Knows(kind) {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		return !lint.IsClusterScoped(resource.Group, resource.Resource), nil
	}
	if c := k.mesh.declared[k.name]; c != nil {
		for i := range c.Spec.CustomResourceDefinitions {
			if d := &c.Spec.CustomResourceDefinitions[i].Spec; d.Group == kind.Group && d.Names.Kind == kind.Kind {
				return d.Scope == apiextensionsv1.NamespaceScoped, nil
			}
		}
	}
	for _, o := range k.facts.Objects {
		if o.GroupVersionKind() == kind {
			return o.GetNamespace() != "", nil
		}
	}
	return false, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
}

// Objects implements [match.Cluster].
func (k known) Objects(_ context.Context, s match.Selection) (found []*unstructured.Unstructured, err error) {
	if s.Kind == match.NamespaceKind && s.Name != "" {
		return []*unstructured.Unstructured{k.namespace(s.Name)}, nil
	}
	selector, err := labels.Parse(s.Selector)
	if err != nil {
		return nil, fmt.Errorf("the selector of objects of kind %s: %w", s.Kind.Kind, err)
	}
	for _, o := range k.facts.Objects {
		namespace := o.GetNamespace()
		if namespace == "" && s.Namespace != "" && k.mesh.codec.Knows(s.Kind) {
			namespace = corev1.NamespaceDefault
		}
		if o.GroupVersionKind() == s.Kind && namespace == s.Namespace && (s.Name == "" || s.Name == o.GetName()) && selector.Matches(labels.Set(o.GetLabels())) {
			found = append(found, o)
		}
	}
	return found, nil
}
