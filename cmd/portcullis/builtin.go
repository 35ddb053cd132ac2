package main

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/cluster"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// builtinKinds tells clusters of the kinds that are built into kube-apiserver.
type builtinKinds struct{ codec *builtin.Codec }

var _ cluster.Builtin = builtinKinds{}

// Discovered implements cluster.Builtin.
func (builtinKinds) Discovered(lists []*metav1.APIResourceList) cluster.Equivalents {
	return builtin.Discovered(lists)
}

// Served implements cluster.Builtin.
func (builtinKinds) Served(versions []schema.GroupVersion) cluster.Equivalents {
	return builtin.Served(versions)
}

// Known implements cluster.Builtin.
func (builtinKinds) Known() cluster.Equivalents { return builtin.Known() }

// Convert implements cluster.Builtin.
func (k builtinKinds) Convert(object []byte, to schema.GroupVersionKind) ([]byte, error) {
	converted, err := k.codec.Convert(object, to)
	if errors.Is(err, builtin.ErrUnknownKind) {
		return nil, fmt.Errorf("%w: %w", cluster.ErrUnknownKind, err)
	}
	return converted, err
}
