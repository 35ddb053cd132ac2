package match

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// In returns the object and the old object as a hook sees them whose [Decision] has as: converted by the cluster, each once per version, or as they
// came if as is nil or names the kind in which they came. An absent object is nil. An error of the conversion refuses the review with 500, whatever
// the failure policy (SEMANTICS C21). It is remembered as well: ctx bounds the conversion for the first caller. The slices must not be changed.
func (a *Attributes) In(ctx context.Context, as *conversion.ResourceKind) (object, oldObject []byte, err error) {
	kind := a.seenKind(as)
	if object, err = a.object.in(ctx, a.request, kind); err != nil {
		return nil, nil, err
	}
	if oldObject, err = a.old.in(ctx, a.request, kind); err != nil {
		return nil, nil, err
	}
	return object, oldObject, nil
}

func (r *request) seenKind(as *conversion.ResourceKind) schema.GroupVersionKind {
	if as == nil {
		return r.sent.Kind
	}
	return as.Kind
}

func (o *object) in(ctx context.Context, r *request, kind schema.GroupVersionKind) ([]byte, error) {
	if o == nil {
		return nil, nil
	}
	if kind == r.sent.Kind {
		return o.raw, nil
	}
	if kind.Empty() {
		return nil, errors.New("unknown kind")
	}
	v := o.version(kind)
	v.convert.Do(func() { v.raw, v.err = r.cluster.Convert(ctx, o.raw, kind) })
	return v.raw, v.err
}

// decodedIn returns the object in a version of its kind as CEL sees it, and a bound of its values. An absent object is a nil interface.
func (o *object) decodedIn(ctx context.Context, r *request, kind schema.GroupVersionKind) (runtime.Object, conversion.Longest, error) {
	raw, err := o.in(ctx, r, kind)
	if o == nil || err != nil {
		return nil, conversion.Longest{}, err
	}
	v := o.version(kind)
	v.decode.Do(func() { v.decoded, v.longest, v.undecodable = o.decoded(r.memory, raw) })
	return v.decoded, v.longest, v.undecodable
}

// version is an object in one version of its kind. Each half is written once.
type version struct {
	kind schema.GroupVersionKind

	convert sync.Once
	raw     []byte
	err     error

	decode      sync.Once
	decoded     *decodedObject
	longest     conversion.Longest
	undecodable error
}

// version returns the place for the object in a version. An object has few: a list is enough.
func (o *object) version(kind schema.GroupVersionKind) *version {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range o.versions {
		if v.kind == kind {
			return v
		}
	}
	v := &version{kind: kind}
	o.versions = append(o.versions, v)
	return v
}
