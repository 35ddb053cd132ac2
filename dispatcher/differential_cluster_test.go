package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// told is the dispatcher's knowledge of a world.
type told struct {
	match.Unknown // objects that policies read

	world    *world
	snapshot *match.Snapshot
	codec    *builtin.Codec
	served   *equivalents.Builtin
	widgets  *custom.Definition
	asked    *atomic.Bool // the authorizer was
}

var _ knowledge = told{}

func tell(t *testing.T, w *world) told {
	t.Helper()
	widgets, err := custom.Compile(w.Definition)
	if err != nil {
		t.Fatal(err)
	}
	return told{world: w, snapshot: w.snapshot(), codec: builtin.New(builtin.Options{}), served: equivalents.Served(w.Versions), widgets: widgets, asked: new(atomic.Bool)}
}

func (k told) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return k.snapshot, "", nil
}

// Release implements [dispatcher.Snapshots].
func (told) Release(*match.Snapshot) {}

func (k told) Cluster(string) match.Cluster { return k }

// NamespaceLabels implements [match.Cluster].
func (k told) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	labels, ok := k.world.Namespaces[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return labels, nil
}

// MergeType implements [match.Cluster].
func (k told) MergeType(kind schema.GroupVersionKind, book func(int64) error) (*typed.ParseableType, error) {
	return k.widgets.MergeType(kind, book)
}

// Default implements [match.Cluster].
func (k told) Default(ctx context.Context, kind schema.GroupVersionKind, object []byte, book func(int64) error) ([]byte, error) {
	if kind.Group == k.widgets.Group() && kind.Kind == k.widgets.Kind() {
		return k.widgets.Default(ctx, object, book)
	}
	return object, nil
}

// Equivalents implements [match.Cluster].
func (k told) Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	switch {
	case resource.GroupResource() == schema.GroupResource{Group: k.widgets.Group(), Resource: k.widgets.Plural()}:
		return k.widgets.Equivalents(subresource), nil
	case k.world.Custom:
		return nil, nil
	}
	return k.served.For(resource, subresource), nil
}

// Convert implements [match.Cluster].
func (k told) Convert(ctx context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	switch {
	case k.world.typed(to.GroupKind()):
		return k.codec.Convert(object, to)
	case to.GroupKind() == schema.GroupKind{Group: k.widgets.Group(), Kind: k.widgets.Kind()}:
		return k.widgets.Convert(ctx, object, to, nil)
	}
	return nil, fmt.Errorf("nobody converts to %s", to)
}

// Authorizer implements [match.Cluster].
func (k told) Authorizer() authorizer.Authorizer {
	permissions := k.world.authorizer()
	if permissions == nil {
		return nil
	}
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		k.asked.Store(true)
		return permissions.Authorize(ctx, a)
	})
}

// authorizer permits half of the requests, and has no opinion on some of the rest; nil when the world has none.
func (w *world) authorizer() authorizer.Authorizer {
	if !w.Authorizer {
		return nil
	}
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		h := fnv.New32()
		_, _ = fmt.Fprintln(h, a.GetUser().GetName(), a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetPath())
		switch h.Sum32() % 8 {
		case 0:
			return authorizer.DecisionNoOpinion, "nothing is known", nil
		case 1:
			return authorizer.DecisionNoOpinion, "", errors.New("nobody to ask")
		case 2, 3:
			return authorizer.DecisionDeny, "not here", nil
		}
		return authorizer.DecisionAllow, "", nil
	})
}
