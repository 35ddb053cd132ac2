package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	kjson "sigs.k8s.io/json"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
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
		before, err := json.Marshal(object)
		if err != nil {
			return nil, hostsdk.NewError("the object cannot be encoded by the host's types", err)
		}
		response, err := change(ctx, object, r)
		if err != nil || response == nil || !response.Allowed || object == nil {
			return response, err
		}
		return withChanges(r, response, before, object)
	}
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

// withChanges adds the difference between before and object to the response.
func withChanges(r *hostsdk.Request, response *hostsdk.Response, before []byte, object any) (*hostsdk.Response, error) {
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
	patch, err := change(r.Object(), before, after)
	if err != nil {
		return nil, hostsdk.NewError("no patch can be made of the changed object", err)
	}
	response.Patch = patch
	return response, nil
}

// PatchTo allows the write and changes the object to the JSON in object: for handlers that work on raw bytes, or on
// unstructured objects that hold everything. Fields that object lacks are removed.
func PatchTo(r *hostsdk.Request, object []byte) (*hostsdk.Response, error) {
	raw := r.Object()
	if raw == nil {
		return nil, hostsdk.NewError("the request has no object that could be changed", nil)
	}
	patch, err := change(raw, raw, object)
	if err != nil {
		return nil, hostsdk.NewError("no patch can be made of the changed object", err)
	}
	return hostsdk.Patch(patch), nil
}

// Object decodes the object after the operation, as Kubernetes does: by exact case, unknown fields ignored. It is nil
// when the request has none.
func Object[T any](r *hostsdk.Request) (*T, error) {
	return decode[T]("object", r, r.Object(), (*admissionv1.AdmissionRequest).GetObject)
}

// OldObject decodes the object before the operation, see [Object].
func OldObject[T any](r *hostsdk.Request) (*T, error) {
	return decode[T]("old object", r, r.OldObject(), (*admissionv1.AdmissionRequest).GetOldObject)
}

// decode decodes an object. The request itself, which get takes it out of, is decoded only if there is one.
func decode[T any](field string, r *hostsdk.Request, raw []byte, get func(*admissionv1.AdmissionRequest) *admissionv1.Object) (*T, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // an absent object is no error, and documented
	}
	if contentType := get(r.Admission()).GetContentType(); contentType != "" && contentType != "application/json" {
		return nil, hostsdk.NewError(fmt.Sprintf("the %s is %s, want JSON", field, contentType), nil)
	}
	if wanted := kindOf[T](); wanted != "" && wanted != r.Admission().GetKind().GetKind() {
		return nil, hostsdk.NewError(fmt.Sprintf("the hook was asked about a %s, its handler takes a %s: narrow the rules of the hook",
			r.Admission().GetKind().GetKind(), wanted), nil)
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
