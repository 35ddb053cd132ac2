// Package kubekinds has the kinds that are built into kube-apiserver, for package cluster, which does not link them.
package kubekinds

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
)

// Kinds are the kinds that are built into kube-apiserver.
type Kinds struct {
	// Codec converts their objects; required.
	Codec *builtin.Codec
}

var _ cluster.Builtin = Kinds{}

// Discovered implements [cluster.Builtin].
func (Kinds) Discovered(lists []*metav1.APIResourceList) cluster.Equivalents {
	return equivalents.Discovered(lists)
}

// Served implements [cluster.Builtin].
func (Kinds) Served(versions []schema.GroupVersion) cluster.Equivalents {
	return equivalents.Served(versions)
}

// Known implements [cluster.Builtin].
func (Kinds) Known() cluster.Equivalents { return equivalents.Known() }

// Knows implements [cluster.Builtin].
func (k Kinds) Knows(kind schema.GroupVersionKind) bool { return k.Codec.Knows(kind) }

// Convert implements [cluster.Builtin].
func (k Kinds) Convert(object []byte, to schema.GroupVersionKind) ([]byte, error) {
	converted, err := k.Codec.Convert(object, to)
	if errors.Is(err, builtin.ErrUnknownKind) {
		return nil, fmt.Errorf("%w: %w", cluster.ErrUnknownKind, err)
	}
	return converted, err
}
