package builtin

import (
	"errors"
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	// ReasonUndecodable: the API server sent what our types cannot hold; it stays JSON.
	ReasonUndecodable = "undecodable"
)

// Options configure a Codec.
type Options struct {
	// NotKnown is called, from any goroutine, each time that an object of a built-in group is patched or converted which our
	// types do not wholly know, with one of the Reason constants; nil: nobody is told.
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

// Apply applies a JSON patch as kube-apiserver does (callAttrMutatingHook of
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating; SEMANTICS C10, C34): to the JSON that the hook saw; what comes
// out is decoded into a new object of the same kind, compared, defaulted and encoded anew.
//
// The result is what the next hook sees, and changed is whether a hook that was asked before has to be asked again: whether
// the two objects differ before defaulting. So the result may be another one although changed is false: a patch that
// changes nothing still fills in the defaults that the object lacks, and may write it otherwise ([] for null). Upstream
// replaces the object then too. It is object itself if not a byte differs, if the patch has no operations, and if the
// patch does nothing to an object that is not built in.
//
// An object whose kind is not built in is patched as mere JSON. Of one that is, a cluster newer than our types loses no
// field: what they do not know goes along unseen, and is a change when it changes. The API server of a cluster that is
// not newer would drop such fields where a hook adds them; it still will, when it reads our answer.
//
// object is nil when the request has none; it takes no patch but an empty one. An error that matches
// conversion.ErrUndecodable is the hook's (SEMANTICS C20); any other says that the patch does not fit the object (C21).
func (c *Codec) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	return c.Series(nil).Apply(object, patch)
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

// differ reports whether two objects of a kind are not the same.
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
	if named.Kind == "" {
		named.Kind = kind.Kind
	}
	if named.Group == "" && named.Version == "" {
		named.Group, named.Version = kind.Group, kind.Version
	}
	return c.types.decode(raw, named)
}

// Diff returns the JSON patch that makes of from, the object of a request, what Apply made of it; nil when nothing is to
// be done. It holds what hooks changed and nothing else: a difference that reading an object as its Go type and writing
// it again makes by itself (a default that the API server does not know, an empty field that is left out) is not in it.
func (c *Codec) Diff(from, to []byte) ([]byte, error) { return c.Series(nil).Diff(from, to) }

// Knows reports whether objects of a kind are handled as their Go type.
func (c *Codec) Knows(kind schema.GroupVersionKind) bool { return c.types.scheme(kind) != nil }
