package cluster

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Builtin knows the resources that are built into kube-apiserver. Its methods may be called concurrently.
type Builtin interface {
	// Discovered returns the equivalents of an API server with these resources. The lists of a group come in the order in which its
	// discovery lists the versions. They are not kept.
	Discovered(lists []*metav1.APIResourceList) Equivalents
	// Served is Discovered by the group versions that an API server serves.
	Served(versions []schema.GroupVersion) Equivalents
	// Known returns the equivalents of a cluster whose discovery is unknown.
	Known() Equivalents
	// Knows reports whether a kind is built in.
	Knows(kind schema.GroupVersionKind) bool
	// Convert returns an object in another version of its kind. The error is an ErrUnknownKind unless both kinds are built in. The object
	// is not changed, and may be returned.
	Convert(object []byte, to schema.GroupVersionKind) ([]byte, error)
}

// Equivalents knows which built-in resources are the same. It is immutable.
type Equivalents interface {
	// For returns the ways to reach a resource, in the order in which the API server tries them, with the given one among
	// them if the API server serves it; none for a resource that is not built in or served in one way only. The slice must
	// not be changed.
	For(resource schema.GroupVersionResource, subresource string) []conversion.ResourceKind
}

// ErrUnknownKind means that a kind is not built into the API server as far as a Builtin knows.
var ErrUnknownKind = errors.New("the kind is not built in")

// nothingBuiltin stands for missing Options.Builtin.
type nothingBuiltin struct{}

var (
	_ Builtin     = nothingBuiltin{}
	_ Equivalents = nothingBuiltin{}
)

func (n nothingBuiltin) Discovered([]*metav1.APIResourceList) Equivalents { return n }

func (n nothingBuiltin) Served([]schema.GroupVersion) Equivalents { return n }

func (n nothingBuiltin) Known() Equivalents { return n }

func (nothingBuiltin) For(schema.GroupVersionResource, string) []conversion.ResourceKind { return nil }

func (nothingBuiltin) Knows(schema.GroupVersionKind) bool { return false }

func (nothingBuiltin) Convert([]byte, schema.GroupVersionKind) ([]byte, error) {
	return nil, ErrUnknownKind
}
