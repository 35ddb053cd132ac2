package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kubepatch "k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// The types of expressions of mutations.
//
//nolint:gochecknoglobals // constants
var (
	jsonPatches        = celgo.ListType(types.NewObjectType(celmutation.JSONPatchTypeName))
	applyConfiguration = types.NewObjectType("Object")
)

// Codec applies and makes the JSON patches of a review (chain.Codec).
type Codec interface {
	// Apply returns the object with a patch and the defaults of its kind, and whether the patch has changed it.
	Apply(object, patch []byte) (result []byte, changed bool, err error)
	// Diff returns the patch that makes one object of another.
	Diff(from, to []byte) ([]byte, error)
}

// codecKey is the key of a codec, in a context.
type codecKey struct{}

// WithCodec returns a context in which mutating policies apply patches by a codec. Without one, objects are JSON that has no type.
func WithCodec(ctx context.Context, c Codec) context.Context {
	return context.WithValue(ctx, codecKey{}, c)
}

func codecOf(ctx context.Context) Codec {
	if c, ok := ctx.Value(codecKey{}).(Codec); ok {
		return c
	}
	return conversion.Raw{}
}

// maxPatchBytes bounds the patch of a policy: each of its operations may name the whole object, which an expression reads for nothing.
const maxPatchBytes = 8 << 20

// jsonPatchOf is a list of JSONPatch values as a patch (evaluatePatchExpression of kube-apiserver's jsonPatcher).
func jsonPatchOf(value ref.Val) ([]byte, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	var operations []patchOperation
	bytes := 0
	for it := list.Iterator(); it.HasNext() == types.True; {
		if len(operations) == conversion.MaxPatchOperations {
			return nil, fmt.Errorf("the patch has more than %d operations", conversion.MaxPatchOperations)
		}
		item := it.Next()
		o, ok := item.(*celmutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %v", item.Type())
		}
		operation := patchOperation{Op: o.Op, Path: o.Path, From: o.From}
		if o.Val != nil {
			var err error
			if operation.Value, err = jsonOf(o.Val); err != nil {
				return nil, err
			}
		}
		if bytes += len(operation.Value) + len(o.Path) + len(o.From); bytes > maxPatchBytes {
			return nil, fmt.Errorf("the patch has more than %d bytes", maxPatchBytes)
		}
		operations = append(operations, operation)
	}
	return json.Marshal(operations) //nolint:wrapcheck // strings and JSON
}

// patchOperation is an operation of a JSON patch.
type patchOperation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// jsonOf is a value of CEL as JSON.
func jsonOf(v ref.Val) ([]byte, error) {
	if o, ok := v.(*dynamic.ObjectVal); ok {
		if err := o.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err == nil {
		var raw []byte
		if raw, err = json.Marshal(native); err == nil {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
}

// applyConfigurationTo merges an apply configuration with an object by the schema of its kind, as JSON (applyConfigPatcher of kube-apiserver). The
// object is not changed.
func applyConfigurationTo(object runtime.Object, value any, types managedfields.TypeConverter) ([]byte, error) {
	configuration, ok := value.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %T", value)
	}
	if err := configuration.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	content, ok := configuration.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", value)
	}
	patch := &unstructured.Unstructured{Object: content}
	patch.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	merged, err := kubepatch.ApplyStructuredMergeDiff(types, object, patch)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return utiljson.Marshal(merged) //nolint:wrapcheck // JSON
}

// typeConverter returns the schema of a kind: of the Go types of Kubernetes, or of the CustomResourceDefinition of the cluster.
func typeConverter(c match.Cluster, kind schema.GroupVersionKind, book func(bytes int64) error) (managedfields.TypeConverter, error) {
	if scheme.Scheme.Recognizes(kind) {
		return applyconfigurations.NewTypeConverter(scheme.Scheme), nil
	}
	of, err := c.MergeType(kind, book)
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // it has all words
	case of == nil:
		return nil, fmt.Errorf("an ApplyConfiguration needs the schema of %s of %s, which is neither built in nor among the CustomResourceDefinitions "+
			"that the mesh has of the cluster: use JSONPatch", kind.Kind, kind.GroupVersion())
	}
	return customType{managedfields.NewDeducedTypeConverter(), kind, of}, nil
}

// customType is the schema of a custom resource.
type customType struct {
	managedfields.TypeConverter // from a typed value to an object, which needs no schema

	kind schema.GroupVersionKind
	of   *typed.ParseableType
}

// ObjectToTyped implements [managedfields.TypeConverter].
func (c customType) ObjectToTyped(o runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := o.(*unstructured.Unstructured)
	if kind := o.GetObjectKind().GroupVersionKind(); !ok || kind != c.kind {
		return nil, fmt.Errorf("no corresponding type for %s", kind)
	}
	return c.of.FromUnstructured(u.UnstructuredContent(), options...) //nolint:wrapcheck // the words of kube-apiserver
}
