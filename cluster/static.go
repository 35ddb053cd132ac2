package cluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errNoNamespaces is the error of a cluster whose document says nothing about namespaces.
var errNoNamespaces = errors.New("its labels are unknown: give the Cluster document spec.namespaces")

// unknown is the namespaces of a cluster about which nothing was said.
type unknown struct{}

func (unknown) labels(context.Context, string) (map[string]string, error) {
	return nil, errNoNamespaces
}

func (unknown) status() Status { return Status{Source: "unknown"} }

// static is the namespaces that a document lists.
type static map[string]map[string]string

// newStatic adds the label that API servers give every namespace, unless the document says otherwise.
func newStatic(listed map[string]map[string]string) static {
	s := make(static, len(listed))
	for name, labels := range listed {
		all := make(map[string]string, len(labels)+1)
		all[corev1.LabelMetadataName] = name
		for k, v := range labels {
			all[k] = v
		}
		s[name] = all
	}
	return s
}

func (s static) labels(_ context.Context, name string) (map[string]string, error) {
	labels, ok := s[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return labels, nil
}

func (static) status() Status { return Status{Source: "static", Fresh: true} }
