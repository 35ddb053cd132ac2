package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// unknownNamespaces answers for a Cluster document without namespaces.
type unknownNamespaces struct{}

func (unknownNamespaces) labels(context.Context, string) (map[string]string, error) {
	return nil, errors.New("its labels are unknown: give the Cluster document spec.kubeconfig or spec.namespaces")
}

// staticNamespaces are the namespaces that a Cluster document lists.
type staticNamespaces map[string]map[string]string

// newStaticNamespaces adds the label that API servers give every namespace, unless the document says otherwise.
func newStaticNamespaces(listed map[string]map[string]string) staticNamespaces {
	s := make(staticNamespaces, len(listed))
	for name, labels := range listed {
		s[name] = map[string]string{corev1.LabelMetadataName: name}
		maps.Copy(s[name], labels)
	}
	return s
}

func (s staticNamespaces) labels(_ context.Context, name string) (map[string]string, error) {
	labels, ok := s[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return labels, nil
}

// staticResources are the resources that a Cluster document lists. They are immutable.
type staticResources struct {
	listed  bool        // whether the document lists group versions
	served  Equivalents // in the listed group versions; without a list, in all that any Kubernetes version has served
	known   Equivalents // in all that any Kubernetes version has served
	defined catalog
}

func newStaticResources(spec *kinds.ClusterSpec, builtin Builtin, known Equivalents) *staticResources {
	s := &staticResources{listed: len(spec.APIVersions) > 0, served: known, known: known}
	if s.listed {
		var versions []schema.GroupVersion
		for _, text := range spec.APIVersions {
			gv, _ := schema.ParseGroupVersion(text) // the document is valid
			versions = append(versions, gv)
		}
		s.served = builtin.Served(versions)
	}
	for i := range spec.CustomResourceDefinitions {
		s.defined.replace(nil, define(&spec.CustomResourceDefinitions[i]))
	}
	return s
}

// equivalents implements resources. A review of a built-in resource in a version that the document does not list is an error,
// since the list is incomplete.
func (s *staticResources) equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if d := s.defined.ofResource(resource.GroupResource()); d != nil {
		ways, err := d.equivalents(resource, subresource)
		return ways, incomplete(err, "spec.customResourceDefinitions")
	}
	ways := s.served.For(resource, subresource)
	if !s.listed || len(ways) == 0 && len(s.known.For(resource, subresource)) == 0 {
		return ways, nil
	}
	ways, err := among(ways, resource, subresource)
	return ways, incomplete(err, "spec.apiVersions")
}

// incomplete adds to an error which field of the document has to be completed.
func incomplete(err error, path string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: complete %s of the Cluster document", err, path)
}

// definition implements resources.
func (s *staticResources) definition(kind schema.GroupKind) (*definition, error) {
	return s.defined.ofKind(kind), nil
}

// partsOf returns the parts that a document lists.
func partsOf(spec *kinds.ClusterSpec) []Part {
	part := func(name string, said bool) Part {
		if said {
			return Part{Name: name, Source: SourceStatic, Fresh: true}
		}
		return Part{Name: name, Source: SourceUnknown}
	}
	return []Part{
		part(PartNamespaces, spec.Namespaces != nil),
		part(PartResources, spec.APIVersions != nil),
		part(PartCustomResources, spec.CustomResourceDefinitions != nil),
	}
}
