package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// Validate makes a handler from a function that judges typed objects. object is the request's object, the caller's own
// copy; it is nil when the request has none, as on DELETE: see [OldObject].
func Validate[T any](
	judge func(ctx context.Context, object *T, r *hostsdk.Request) (*hostsdk.Response, error),
) hostsdk.Handler {
	return func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		object, err := Object[T](r)
		if err != nil {
			return nil, err
		}
		return judge(ctx, object, r)
	}
}

// Mutate makes a handler from a function that changes typed objects in place. When it allows, the changes are the
// patch; when it denies or fails they are forgotten. object is nil when the request has none, as on DELETE.
func Mutate[T any](
	change func(ctx context.Context, object *T, r *hostsdk.Request) (*hostsdk.Response, error),
) hostsdk.Handler {
	return func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		object, err := Object[T](r)
		if err != nil {
			return nil, err
		}
		if object == nil {
			return change(ctx, nil, r)
		}
		return changed(r, object, func() (*hostsdk.Response, error) { return change(ctx, object, r) })
	}
}

// Validator judges objects by a function for each operation. An operation without a function is allowed. The objects are the caller's own
// copies and never nil. Its method Handle is the handler:
//
//	kube.Validator[corev1.Pod]{Update: keepsItsOwner}.Handle
type Validator[T any] struct {
	// Create judges an object that is created.
	Create func(ctx context.Context, object *T, r *hostsdk.Request) (*hostsdk.Response, error)
	// Update judges an object that replaces old.
	Update func(ctx context.Context, old, object *T, r *hostsdk.Request) (*hostsdk.Response, error)
	// Delete judges the deletion of old.
	Delete func(ctx context.Context, old *T, r *hostsdk.Request) (*hostsdk.Response, error)
}

// Handle is a [hostsdk.Handler].
func (v Validator[T]) Handle(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	return Validate(v.judge)(ctx, r)
}

func (v Validator[T]) judge(ctx context.Context, object *T, r *hostsdk.Request) (*hostsdk.Response, error) {
	old, err := OldObject[T](r)
	if err != nil {
		return nil, err
	}
	operation := r.Operation()
	creates, updates, deletes := operation == "CREATE", operation == "UPDATE", operation == "DELETE"
	switch {
	case !creates && !updates && !deletes:
		return nil, hostsdk.NewError("the handler takes no "+operation+": narrow the rules of the hook", nil)
	case object == nil && !deletes || old == nil && !creates:
		return nil, hostsdk.NewError("the request lacks the object of a "+operation, nil)
	case creates && v.Create != nil:
		return v.Create(ctx, object, r)
	case updates && v.Update != nil:
		return v.Update(ctx, old, object, r)
	case deletes && v.Delete != nil:
		return v.Delete(ctx, old, r)
	default:
		return hostsdk.Allow(), nil
	}
}

// Mutator changes objects in place by a function for each operation, as [Mutate] does. An operation without a function changes nothing.
// The objects are never nil. Its method Handle is the handler.
type Mutator[T any] struct {
	// Create changes an object that is created.
	Create func(ctx context.Context, object *T, r *hostsdk.Request) (*hostsdk.Response, error)
	// Update changes an object that replaces old.
	Update func(ctx context.Context, old, object *T, r *hostsdk.Request) (*hostsdk.Response, error)
}

// Handle is a [hostsdk.Handler].
func (m Mutator[T]) Handle(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
	return Mutate(Validator[T]{Create: m.Create, Update: m.Update}.judge)(ctx, r)
}

// Initialize makes a handler of an initializer: it returns the object as it should be created. object is never nil, is the caller's own
// copy, and may be changed and returned. A [hostsdk.DeniedError] refuses the object; any other error is a failure, and failurePolicy decides.
func Initialize[T any](initialize func(ctx context.Context, object *T, r *hostsdk.Request) (*T, error)) hostsdk.Handler {
	return Mutate(func(ctx context.Context, object *T, r *hostsdk.Request) (*hostsdk.Response, error) {
		if object == nil {
			return nil, hostsdk.NewError("the request has no object to be initialized: it creates none", nil)
		}
		initialized, err := initialize(ctx, object, r)
		switch {
		case err != nil:
			return nil, err
		case initialized == nil:
			return nil, hostsdk.NewError("the initializer returned no object", nil)
		}
		*object = *initialized
		return hostsdk.Allow(), nil
	})
}

// Change allows the write with the changes that edit makes to the typed object: for a handler that answers in other ways too.
func Change[T any](r *hostsdk.Request, edit func(object *T) error) (*hostsdk.Response, error) {
	object, err := Object[T](r)
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errNoObject()
	}
	return changed(r, object, func() (*hostsdk.Response, error) { return hostsdk.Allow(), edit(object) })
}

// changed adds to an allowing response the changes that judge made to the object.
func changed(r *hostsdk.Request, object any, judge func() (*hostsdk.Response, error)) (*hostsdk.Response, error) {
	before, err := json.Marshal(object)
	if err != nil {
		return nil, hostsdk.NewError("the object cannot be encoded by the host's types", err)
	}
	response, err := judge()
	if err != nil || response == nil || !response.Allowed {
		return response, err
	}
	after, err := json.Marshal(object)
	if err != nil {
		return nil, hostsdk.NewError("the changed object cannot be encoded", err)
	}
	if bytes.Equal(before, after) {
		return response, nil
	}
	if len(response.Patch) > 0 {
		return nil, hostsdk.NewError("the handler changed the object and returned a patch as well: want only one", nil)
	}
	response.Patch, err = change(r.RawObject(), before, after)
	if err != nil {
		return nil, hostsdk.NewError("no patch can be made of the changed object", err)
	}
	return response, nil
}

// Difference allows the write and makes the object of the request equal to object, which is JSON as bytes or a value that is encoded as JSON:
// for objects that hold everything. Fields that object lacks are removed.
func Difference(r *hostsdk.Request, object any) (*hostsdk.Response, error) {
	raw := r.RawObject()
	if raw == nil {
		return nil, errNoObject()
	}
	text, isText := object.([]byte)
	if !isText {
		var err error
		if text, err = json.Marshal(object); err != nil {
			return nil, hostsdk.NewError("the changed object cannot be encoded", err)
		}
	}
	patch, err := change(raw, raw, text)
	if err != nil {
		return nil, hostsdk.NewError("no patch can be made of the changed object", err)
	}
	return hostsdk.Patch(patch), nil
}

func errNoObject() error {
	return hostsdk.NewError("the request has no object that could be changed", nil)
}

// Object decodes the object after the operation, as Kubernetes does: by exact case, unknown fields ignored. It is nil
// when the request has none.
func Object[T any](r *hostsdk.Request) (*T, error) {
	return decode[T]("object", r, r.RawObject())
}

// OldObject decodes the object before the operation, see [Object].
func OldObject[T any](r *hostsdk.Request) (*T, error) {
	return decode[T]("old object", r, r.RawOldObject())
}

func decode[T any](field string, r *hostsdk.Request, raw []byte) (*T, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // an absent object is no error, and documented
	}
	if got, wanted := r.Kind().Kind, kindOf[T](); wanted != "" && wanted != got {
		return nil, hostsdk.NewError(
			fmt.Sprintf("the hook was asked about a %s, its handler takes a %s: narrow the rules of the hook", got, wanted), nil)
	}
	object := new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, object); err != nil {
		return nil, hostsdk.NewError("the "+field+" cannot be decoded by the host's types", err)
	}
	return object, nil
}

// kindOf returns the kind of the objects that T is made for: Kubernetes' types are named for their kinds. It is empty for
// types that take any kind. Decoding a Scale into a Deployment would not fail: it would lose everything in silence.
func kindOf[T any]() string {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct || t.Name() == "PartialObjectMetadata" {
		return ""
	}
	if meta, ok := t.FieldByName("TypeMeta"); !ok || !meta.Anonymous {
		return ""
	}
	return t.Name()
}
