package match

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Cluster has the facts about a cluster that its reviews do not carry. Each part is asked only when a hook
// needs it. Facts have a bound on their age: past it the answer is an error, never an old one. All methods may be
// called concurrently.
type Cluster interface { //nolint:interfacebloat // the facts about one cluster
	// NamespaceLabels returns the labels of a namespace; they are not changed. A missing namespace is an error that
	// apierrors.IsNotFound recognises and refuses the review with 404, any other refuses it with 500. The caller sees to
	// it that a namespace is read at most once per review.
	NamespaceLabels(ctx context.Context, name string) (map[string]string, error)
	// Equivalents returns the versions in which the cluster serves a resource, in the order in which its API server tries
	// them, the given one among them; none for a resource that it serves in one version only, or does not know
	// (EquivalentResourceMapper of k8s.io/apimachinery; SEMANTICS C13). It answers from memory. The slice must not be
	// changed.
	Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error)
	// Convert returns a JSON object of the cluster in another version of its kind, with all the fields of object that
	// have a place there. It may call the cluster's conversion webhook: ctx bounds it. object is not changed, and may be
	// returned.
	Convert(ctx context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error)
	// Default returns a JSON object with the defaults of its kind, as the API server fills them in after a patch (SEMANTICS C34), if the cluster
	// alone knows them: the defaults of a custom resource. Objects of other kinds are returned as they are. object is not changed, and may be
	// returned. book is called with the memory that the defaults take, in bytes, before they are filled in, and its error ends the call; nil books
	// nothing. ctx bounds the call.
	Default(ctx context.Context, kind schema.GroupVersionKind, object []byte, book func(bytes int64) error) ([]byte, error)
	// MergeType returns the type by which the API server merges an apply configuration with an object of a kind that is not built in; nil if the kind is
	// not known. book is called as by Default.
	MergeType(kind schema.GroupVersionKind, book func(bytes int64) error) (*typed.ParseableType, error)
	// Authorizer answers the authorizer checks of matchConditions; nil when there is none, which fails the conditions that have such checks.
	Authorizer() authorizer.Authorizer
	// Namespaced reports whether objects of a kind are in namespaces. The error of a kind that the cluster does not serve is recognised by
	// meta.IsNoMatchError. It answers from memory.
	Namespaced(kind schema.GroupVersionKind) (bool, error)
	// Objects returns objects that policies read: params, and the namespace of a request. They are a few seconds old at most, and must not be changed.
	// A missing object is no error. While an object stays in memory its pointer is the same.
	Objects(ctx context.Context, s Selection) ([]*unstructured.Unstructured, error)
}

// NamespaceKind is the kind of namespaces.
//
//nolint:gochecknoglobals // a constant
var NamespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// Selection selects objects of a cluster.
type Selection struct {
	// Kind is the kind of the objects, in the version in which they are read.
	Kind schema.GroupVersionKind
	// Namespace is where they are; empty for a kind whose objects are in none.
	Namespace string
	// Name selects one object, if it is not empty.
	Name string
	// Selector selects all that match a label selector, without Name; an empty one selects everything.
	Selector string
}

// Unknown is a cluster without data: each look-up of a review fails.
type Unknown struct{}

var _ Cluster = Unknown{}

// NamespaceLabels implements [Cluster].
func (Unknown) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return nil, errors.New("nothing is known about namespaces of this cluster: give the Cluster a source of namespaces")
}

// Equivalents implements [Cluster]: every resource is served in one version.
func (Unknown) Equivalents(schema.GroupVersionResource, string) ([]conversion.ResourceKind, error) {
	return nil, nil
}

// Convert implements [Cluster].
func (Unknown) Convert(context.Context, []byte, schema.GroupVersionKind) ([]byte, error) {
	return nil, errors.New("nothing is known about conversions of this cluster")
}

// Default implements [Cluster]: no kind has defaults.
func (Unknown) Default(_ context.Context, _ schema.GroupVersionKind, object []byte, _ func(int64) error) ([]byte, error) {
	return object, nil
}

// MergeType implements [Cluster].
func (Unknown) MergeType(schema.GroupVersionKind, func(int64) error) (*typed.ParseableType, error) {
	return nil, nil //nolint:nilnil // as documented
}

// Authorizer implements [Cluster].
func (Unknown) Authorizer() authorizer.Authorizer { return nil }

// Namespaced implements [Cluster].
func (Unknown) Namespaced(schema.GroupVersionKind) (bool, error) {
	return false, errNoConnection
}

// Objects implements [Cluster].
func (Unknown) Objects(context.Context, Selection) ([]*unstructured.Unstructured, error) {
	return nil, errNoConnection
}

var errNoConnection = errors.New("its objects are unknown: give the Cluster document spec.kubeconfig or spec.bridge")
