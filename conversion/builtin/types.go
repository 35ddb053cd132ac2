package builtin

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kjson "sigs.k8s.io/json"

	// The groups that kube-apiserver serves (k8s.io/kubernetes/pkg/controlplane), without the kinds that are never a
	// request's object.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apiserverinternal/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// ErrUnknownKind means that our Kubernetes types hold no such kind in this version: it is a custom resource, newer than
// they are, or long gone.
var ErrUnknownKind = errors.New("builtin: unknown kind")

// types are the schemes of the API servers that make up a kube-apiserver. They share no kind.
type types []*runtime.Scheme

func newTypes() types {
	extensions := runtime.NewScheme()
	apiextensions.Install(extensions)
	return types{legacyscheme.Scheme, extensions}
}

// scheme returns the scheme that holds a kind; nil when none does. Internal versions are not for callers.
func (t types) scheme(k schema.GroupVersionKind) *runtime.Scheme {
	if k.Version == runtime.APIVersionInternal {
		return nil
	}
	for _, s := range t {
		if s.Recognizes(k) {
			return s
		}
	}
	return nil
}

func (t types) hasGroup(name string) bool {
	return slices.ContainsFunc(t, func(s *runtime.Scheme) bool { return s.IsGroupRegistered(name) })
}

// typed is an object as its Go type.
type typed struct {
	scheme *runtime.Scheme
	kind   schema.GroupVersionKind
	object runtime.Object
	// rest is the fields that the type does not know; nil when it knows all.
	rest any
}

// read decodes an object of the kind that it names itself. The error wraps ErrUnknownKind, or errAmbiguous.
func (t types) read(raw []byte) (typed, error) {
	kind, err := conversion.KindOf(raw)
	if err != nil {
		return typed{}, err
	}
	return t.decode(raw, kind)
}

// decode decodes an object into a new value of the kind. It has the errors of read; with errAmbiguous it returns the object too, without the fields
// that the type does not know.
func (t types) decode(raw []byte, kind schema.GroupVersionKind) (typed, error) {
	s := t.scheme(kind)
	if s == nil {
		return typed{}, unknownKind(kind)
	}
	object, err := s.New(kind)
	if err != nil {
		return typed{}, err
	}
	strict, err := kjson.UnmarshalStrict(raw, object)
	if err != nil {
		return typed{}, fmt.Errorf("decode as %s: %w", name(kind), err)
	}
	d := typed{scheme: s, kind: kind, object: object}
	if d.rest, err = restOf(raw, object, strict); err != nil {
		return d, fmt.Errorf("decode as %s: %w", name(kind), err)
	}
	return d, nil
}

func (d typed) setDefaults() { d.scheme.Default(d.object) }

// as returns the object in another version, by way of the internal one, as ConvertToGVK of k8s.io/apiserver/pkg/admission does (SEMANTICS C14).
// Fields that the type does not know are lost, unless the version is the same. d must not be used any more. The error wraps ErrUnknownKind when there
// is no such version.
func (d typed) as(kind schema.GroupVersionKind) (typed, error) {
	if kind == d.kind {
		return d, nil
	}
	if kind.Version == runtime.APIVersionInternal || !d.scheme.Recognizes(kind) {
		return typed{}, unknownKind(kind)
	}
	internal, err := d.scheme.New(d.kind.GroupKind().WithVersion(runtime.APIVersionInternal))
	if err != nil {
		return typed{}, err
	}
	if err := d.scheme.Convert(d.object, internal, nil); err != nil {
		return typed{}, err
	}
	object, err := d.scheme.New(kind)
	if err != nil {
		return typed{}, err
	}
	if err := d.scheme.Convert(internal, object, nil); err != nil {
		return typed{}, err
	}
	return typed{scheme: d.scheme, kind: kind, object: object}, nil
}

// encode returns the JSON of the object as the API server would write it into a review, with the fields that the type does not know.
func (d typed) encode() ([]byte, error) {
	d.object.GetObjectKind().SetGroupVersionKind(d.kind)
	raw, err := json.Marshal(d.object)
	if err != nil || d.rest == nil {
		return raw, err
	}
	return json.Marshal(join(parse(raw), d.rest))
}

func unknownKind(k schema.GroupVersionKind) error {
	if k.Version == "" || k.Kind == "" {
		return fmt.Errorf("%w: the object lacks apiVersion or kind", ErrUnknownKind)
	}
	return fmt.Errorf("%w %s: it is not among the built-in types of Kubernetes v1.36", ErrUnknownKind, name(k))
}

func name(k schema.GroupVersionKind) string { return k.GroupVersion().String() + " " + k.Kind }
