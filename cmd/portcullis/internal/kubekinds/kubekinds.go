// Package kubekinds has the kinds that are built into kube-apiserver, for package cluster, which does not link them.
package kubekinds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
	"github.com/portcullis-mesh/portcullis/internal/suggest"
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

// Mistaken is a warning about a kind that Kubernetes does not have although the group is its own. It names the kind that is probably meant. It is empty
// for all other kinds, such as the kinds of custom resources.
func (k Kinds) Mistaken(kind schema.GroupVersionKind) string {
	if k.Knows(kind) {
		return ""
	}
	var isOurs bool
	var kindsOf []string               // of the version
	var versions []schema.GroupVersion // that have the kind
	for _, other := range k.Codec.Kinds() {
		isOurs = isOurs || other.Group == kind.Group
		switch {
		case other.GroupVersion() == kind.GroupVersion():
			kindsOf = append(kindsOf, other.Kind)
		case other.Kind == kind.Kind:
			versions = append(versions, other.GroupVersion())
		}
	}
	if !isOurs {
		return ""
	}
	slices.Sort(kindsOf)
	meant := suggest.DidYouMean(kind.Kind, kindsOf)
	if len(versions) > 0 {
		meant = "; did you mean " + strconv.Quote(slices.MinFunc(versions, func(a, b schema.GroupVersion) int {
			return cmp.Or(len(a.Version)-len(b.Version), strings.Compare(a.String(), b.String())) // v1 before v1beta1
		}).String()) + "?"
	}
	return fmt.Sprintf("Kubernetes 1.36 has no kind %s in %s%s", kind.Kind, kind.GroupVersion(), meant)
}
