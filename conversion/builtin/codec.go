package builtin

import (
	"bytes"
	"errors"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// Why an object of a built-in group stayed JSON.
const (
	// ReasonUnknownFields: the object, or what a hook made of it, has fields that our types do not know.
	ReasonUnknownFields = "unknown_fields"
	// ReasonUnknownKind: our types do not hold the kind in this version, but its group.
	ReasonUnknownKind = "unknown_kind"
	// ReasonUndecodable: the API server sent what our types cannot hold.
	ReasonUndecodable = "undecodable"
)

// Options configure a Codec.
type Options struct {
	// StayedRaw is called, from any goroutine, each time a patch is applied to an object of a built-in group as to mere
	// JSON, with one of the Reason constants; nil: nobody is told.
	StayedRaw func(reason string)
}

// Codec changes, compares and converts objects of built-in kinds. Its methods may be called concurrently.
type Codec struct {
	types     types
	stayedRaw func(reason string)
}

// New returns a codec for all the kinds that the package documents.
func New(o Options) *Codec {
	c := &Codec{types: newTypes(), stayedRaw: o.StayedRaw}
	if c.stayedRaw == nil {
		c.stayedRaw = func(string) {}
	}
	return c
}

// Apply applies a JSON patch as kube-apiserver does (callAttrMutatingHook of
// k8s.io/apiserver/pkg/admission/plugin/webhook/mutating; SEMANTICS C10, C34): to the JSON that the hook saw; what comes
// out is decoded into a new object of the same kind, compared, defaulted and encoded anew.
//
// changed is whether a hook that was asked before has to be asked again: whether the two objects differ before
// defaulting. The result is what the next hook sees. It is object itself if it would be written no differently; now and
// then it is another spelling of the same ([] for null) and changed is false.
//
// An object whose kind is not built in is patched as JSON, and so is one with fields that the types do not know, before
// or after the patch: a cluster newer than they are loses no field. Nothing is defaulted then, and changed is whether the
// JSON differs.
//
// An error that matches conversion.ErrUndecodable is the hook's (SEMANTICS C20); any other says that the patch does not
// fit the object (C21).
func (c *Codec) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	patched, err := conversion.ApplyPatch(object, patch)
	if err != nil || !patched.Changed {
		return patched.Raw, false, err
	}
	before, loss := c.types.read(object)
	if loss != nil && !errors.Is(loss, ErrUnknownFields) {
		c.reportRaw(object, loss)
		return patched.Raw, true, nil
	}
	after, err := c.reread(patched.Raw, before.kind)
	if (err == nil && loss != nil || errors.Is(err, ErrUnknownFields)) && after.kind == before.kind {
		c.stayedRaw(ReasonUnknownFields)
		return patched.Raw, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("the patched object: %w", err)
	}
	return c.settle(object, before, after)
}

// settle compares an object with what it was before, then gives it its defaults and encodes it.
func (c *Codec) settle(object []byte, before, after typed) (result []byte, changed bool, err error) {
	changed = !apiequality.Semantic.DeepEqual(before.object, after.object)
	after.setDefaults()
	if after, err = after.as(before.kind); err != nil {
		return nil, false, fmt.Errorf("the patch changes the kind of the object: %w", err)
	}
	if result, err = after.encode(); err != nil {
		return nil, false, fmt.Errorf("encode the patched object: %w", err)
	}
	if !changed && before.writtenAs(result) {
		return object, false, nil
	}
	return result, changed, nil
}

// reread decodes a patched object that was of a kind before. A patch may take its kind away, and change it to another:
// it is then decoded as that.
func (c *Codec) reread(raw []byte, kind schema.GroupVersionKind) (typed, error) {
	named, err := kindOf(raw)
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

// reportRaw tells why an object is not known as its Go type, unless it is a custom resource.
func (c *Codec) reportRaw(object []byte, err error) {
	if !errors.Is(err, ErrUnknownKind) {
		c.stayedRaw(ReasonUndecodable)
	} else if kind, err := kindOf(object); err == nil && c.types.hasGroup(kind.Group) {
		c.stayedRaw(ReasonUnknownKind)
	}
}

// Diff returns the JSON patch that makes of from, the object of a request, what Apply made of it; nil when nothing is to
// be done. It holds what hooks changed and nothing else: a difference that reading an object as its Go type and writing
// it again makes by itself (a default that the API server does not know, an empty field that is left out) is not in it.
func (c *Codec) Diff(from, to []byte) ([]byte, error) {
	before, ok := c.normal(from)
	if !ok {
		return conversion.DiffPatch(from, to)
	}
	after, known := c.normal(to)
	if !known {
		after = to
	}
	if bytes.Equal(before, from) {
		return conversion.DiffPatch(from, after)
	}
	target, err := Carry(from, before, after)
	if err != nil {
		return nil, err
	}
	// A default may depend on what a hook changed beside it, and then it has to be in the patch.
	if again, _ := c.normal(target); known && !bytes.Equal(again, after) {
		target = after
	}
	return conversion.DiffPatch(from, target)
}

// normal returns an object decoded, defaulted and encoded; false when it cannot be without a loss.
func (c *Codec) normal(raw []byte) ([]byte, bool) {
	d, err := c.types.read(raw)
	if err != nil {
		return nil, false
	}
	d.setDefaults()
	out, err := d.encode()
	return out, err == nil
}
