package builtin

import (
	"cmp"
	"errors"
	"reflect"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Why an object of a built-in group is not wholly known.
const (
	// ReasonUnknownFields: it has fields that our types do not know. They are kept aside, and the rest is treated as ever.
	ReasonUnknownFields = "unknown_fields"
	// ReasonAmbiguous: it has a field twice, very many unknown ones, or one whose name reads as the path of a known one; it
	// stays JSON.
	ReasonAmbiguous = "ambiguous"
	// ReasonUnknownKind: our types hold its group, but not its kind in this version; it stays JSON.
	ReasonUnknownKind = "unknown_kind"
	// ReasonUndecodable: our types cannot hold the object of the API server; it stays JSON.
	ReasonUndecodable = "undecodable"
)

// Options configure a Codec.
type Options struct {
	// NotKnown is called, from any goroutine, with a Reason constant, each time that an object of a built-in group is patched or converted which our
	// types do not wholly know; nil: nothing is called.
	NotKnown func(reason string)
}

// Codec changes, compares and converts objects of built-in kinds. Its methods may be called concurrently.
type Codec struct {
	types    types
	notKnown func(reason string)
}

// New returns a codec for all the kinds that the package documents.
func New(o Options) *Codec {
	c := &Codec{types: newTypes(), notKnown: o.NotKnown}
	if c.notKnown == nil {
		c.notKnown = func(string) {}
	}
	return c
}

// whyRaw is why an object of a kind is not known as its Go type; a custom resource needs no reason.
func (c *Codec) whyRaw(kind schema.GroupVersionKind) string {
	if c.types.hasGroup(kind.Group) {
		return ReasonUnknownKind
	}
	return ""
}

// whyNot is why an object could not be decoded.
func whyNot(err error) string {
	if errors.Is(err, errAmbiguous) {
		return ReasonAmbiguous
	}
	return ReasonUndecodable
}

func differ(before, after typed) bool {
	return !apiequality.Semantic.DeepEqual(before.object, after.object) || !reflect.DeepEqual(before.rest, after.rest)
}

// reread decodes a patched object that was of a kind before. A patch may take its kind away, and change it to another:
// it is then decoded as that.
func (c *Codec) reread(raw []byte, kind schema.GroupVersionKind) (typed, error) {
	named, err := conversion.KindOf(raw)
	if err != nil {
		return typed{}, err
	}
	named.Kind = cmp.Or(named.Kind, kind.Kind)
	if named.Group == "" && named.Version == "" {
		named.Group, named.Version = kind.Group, kind.Version
	}
	return c.types.decode(raw, named)
}

// UnknownFields are the paths of fields of an object that the type of its kind does not have, such as spec.containers[0].imagee, at most 100. There are
// none of an object of another kind, or of an object that cannot be read.
func (c *Codec) UnknownFields(raw []byte) (paths []string) {
	kind, err := conversion.KindOf(raw)
	if err != nil || !c.Knows(kind) {
		return nil
	}
	object, err := c.types.scheme(kind).New(kind)
	if err != nil {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(raw, object)
	if err != nil {
		return nil
	}
	for _, err := range strict {
		var field interface{ FieldPath() string }
		if errors.As(err, &field) && strings.HasPrefix(err.Error(), unknownField) {
			paths = append(paths, field.FieldPath())
		}
	}
	return paths
}

// Knows reports whether objects of a kind are handled as their Go type.
func (c *Codec) Knows(kind schema.GroupVersionKind) bool { return c.types.scheme(kind) != nil }

// Kinds are all kinds that are handled as their Go type, without an order.
func (c *Codec) Kinds() (all []schema.GroupVersionKind) {
	for _, s := range c.types {
		for kind := range s.AllKnownTypes() {
			if kind.Version != runtime.APIVersionInternal {
				all = append(all, kind)
			}
		}
	}
	return all
}
