package builtin

import (
	"bytes"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// PatchSession applies the patches of one review. It keeps the result of a patch decoded for the next patch, as kube-apiserver does. Objects are
// known again by where they are in memory; they must not be written, as long as the session is in use. It belongs to one goroutine.
type PatchSession struct {
	codec     *Codec
	allowance conversion.Allowance
	booked    int64 // bytes of the values that are kept
	first     kept  // the object of the first patch
	latest    kept  // the result of the last patch
}

// kept is an object beside its decoded value.
type kept struct {
	raw []byte
	typed

	// reread is true if the value was read from the JSON of a result, and only labels, annotations and defaults were set since. Any other value may differ
	// from the value that a reader of its JSON finds: a time has a fraction, or a list is empty that the JSON leaves out.
	reread bool
}

func (k *kept) is(raw []byte) bool {
	return len(raw) > 0 && len(raw) == len(k.raw) && &raw[0] == &k.raw[0]
}

// NewPatchSession returns a session that has seen no object yet. The allowance bounds the time and the memory that it takes; nil is
// no bound.
func (c *Codec) NewPatchSession(a conversion.Allowance) *PatchSession {
	return &PatchSession{codec: c, allowance: a}
}

// Apply applies a JSON patch as kube-apiserver does (callAttrMutatingHook of k8s.io/apiserver/pkg/admission/plugin/webhook/mutating; SEMANTICS C10,
// C34): to the JSON that the hook saw. The result is decoded into a new object of the same kind, compared, defaulted and encoded anew.
//
// The result is the object that the next hook sees, and changed is whether a hook that was asked before has to be asked again: whether the two
// objects differ before defaulting. So the result may be another one although changed is false: a patch that changes nothing still fills in the
// defaults that the object lacks, and may write it otherwise ([] for null). Upstream replaces the object then too. It is object itself if not a byte
// differs, if the patch has no operations, and if the patch does nothing to an object that is not built in.
//
// An object whose kind is not built in is patched as mere JSON. A built-in object of a cluster newer than our types loses no field: unknown fields
// are kept, and a change of them counts as a change. The API server of a cluster that is not newer would drop such fields where a hook adds them; it
// still will, when it reads our answer.
//
// object is nil when the request has none; it takes no patch but an empty one. An error that matches conversion.ErrUndecodable is the hook's
// (SEMANTICS C20). An error of the allowance means that there is no memory for it, and any other that the patch does not fit the object (C21).
func (s *PatchSession) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	kind, err := conversion.KindOf(object)
	if err != nil || s.codec.types.scheme(kind) == nil {
		return s.applyRaw(object, patch, s.codec.whyRaw(kind))
	}
	var need need
	defer func() { s.keep(&need, err) }()
	if err = need.grow(s.allowance, conversion.ExtentOf(object).Typed()+conversion.ExtentOf(patch).Tree()); err != nil {
		return nil, false, err
	}
	if result, changed, err = s.changeMetadata(&need, object, patch, kind); changed || err != nil {
		return result, changed, err
	}
	patched, applied, err := conversion.Patch(s.allowance, object, patch)
	if err != nil || !applied {
		return patched, false, err
	}
	if err = need.grow(s.allowance, conversion.ExtentOf(patched).Typed()); err != nil {
		return nil, false, err
	}
	return s.change(object, patch, patched, kind)
}

// change compares an object with the patched object, and fills in the defaults of the latter.
func (s *PatchSession) change(object, patch, patched []byte, kind schema.GroupVersionKind) (result []byte, changed bool, err error) {
	c := s.codec
	before, err := s.decode(object, kind)
	if err != nil {
		return s.applyRaw(object, patch, whyNot(err))
	}
	after, err := c.reread(patched, kind)
	switch {
	case errors.Is(err, errAmbiguous):
		return s.applyRaw(object, patch, ReasonAmbiguous)
	case err != nil:
		return nil, false, fmt.Errorf("the patched object: %w", err)
	}
	changed, unknown := differ(before, after), before.rest != nil || after.rest != nil
	if result, err = s.storeResult(object, after, kind); err != nil {
		return nil, false, err
	}
	if unknown {
		c.notKnown(ReasonUnknownFields)
	}
	return result, changed, nil
}

// applyRaw is Apply for an object that stays JSON, for a reason that is empty if it need not be reported.
func (s *PatchSession) applyRaw(object, patch []byte, reason string) (result []byte, changed bool, err error) {
	result, changed, err = conversion.Raw{Allowance: s.allowance}.Apply(object, patch)
	if changed && reason != "" {
		s.codec.notKnown(reason)
	}
	return result, changed, err
}

// Initialized is Initialized of [conversion.Raw].
func (s *PatchSession) Initialized(base, current, result []byte) (merged []byte, changed bool, err error) {
	return conversion.Raw{Allowance: s.allowance}.Initialized(base, current, result)
}

// need is the memory that one patch has booked.
type need struct{ bytes int64 }

func (n *need) grow(a conversion.Allowance, bytes int64) error {
	if a == nil {
		return nil
	}
	if err := a.Grow(bytes); err != nil {
		return err
	}
	n.bytes += bytes
	return nil
}

// keep gives back the memory that a patch has booked. If the result is kept decoded for the next patch, half of it stays booked.
func (s *PatchSession) keep(n *need, err error) {
	if s.allowance == nil {
		return
	}
	if err == nil && s.latest.raw != nil {
		s.booked, n.bytes = n.bytes/2, n.bytes-n.bytes/2+s.booked
	}
	s.allowance.Shrink(n.bytes)
}

// decode decodes an object that is not to be changed.
func (s *PatchSession) decode(raw []byte, kind schema.GroupVersionKind) (typed, error) {
	for _, k := range [...]*kept{&s.latest, &s.first} {
		if k.is(raw) {
			return k.typed, nil
		}
	}
	d, err := s.codec.types.decode(raw, kind)
	if err == nil && s.first.raw == nil {
		s.first = kept{raw: raw, typed: d}
	}
	return d, err
}

// storeResult gives a patched object its defaults, in the kind that it had, and encodes it. It returns the object before if not
// a byte differs.
func (s *PatchSession) storeResult(before []byte, after typed, kind schema.GroupVersionKind) ([]byte, error) {
	after.setDefaults()
	own, err := after.as(kind)
	if err != nil {
		return nil, fmt.Errorf("the patch changes the kind of the object: %w", err)
	}
	own.rest = after.rest // whatever the version
	result, err := own.encode()
	if err != nil {
		return nil, fmt.Errorf("encode the patched object: %w", err)
	}
	if bytes.Equal(result, before) {
		result = before
	}
	if s.latest = (kept{}); own.rest == nil { // a rest may be at another place, once it is encoded
		s.latest = kept{raw: result, typed: own}
	}
	return result, nil
}

// Diff returns the JSON patch from the object of a request to the result of Apply; nil when nothing is to be done. The patch holds the changes of
// hooks alone. Reading an object as its Go type and writing it again makes differences too (a default that the API server does not know, an empty
// field that is left out): they are not in the patch.
//
// Call it after the last patch. It charges its memory and is not refused: the patches before it had as much. It reuses the memory that is booked for
// the result of the last patch, which it drops.
func (s *PatchSession) Diff(from, to []byte) ([]byte, error) {
	s.latest = kept{}
	if s.allowance != nil {
		n := max(0, conversion.ExtentOf(from).Typed()+conversion.ExtentOf(to).Typed()-s.booked)
		s.allowance.Charge(n)
		defer func() {
			s.allowance.Shrink(n + s.booked)
			s.booked = 0
		}()
	}
	before, ok := s.normal(from)
	if !ok || bytes.Equal(before, from) { // the latter is an API server of our types' version
		return conversion.DiffPatch(from, to)
	}
	target, err := conversion.Rebase(from, before, to)
	if err != nil {
		return nil, err
	}
	// A default may depend on a field that a hook changed: then the default has to be in the patch.
	if again, _ := s.normal(target); !bytes.Equal(again, to) {
		if after, known := s.normal(to); known && !bytes.Equal(again, after) {
			target = after
		}
	}
	return conversion.DiffPatch(from, target)
}

func (s *PatchSession) normal(raw []byte) ([]byte, bool) {
	d, err := s.take(raw)
	if err != nil {
		return nil, false
	}
	d.setDefaults()
	out, err := d.encode()
	return out, err == nil
}

// take decodes an object that is going to be changed. It does not reuse the decoded result of a patch: in memory a list that the patch emptied
// differs from an absent list, which gets a default.
func (s *PatchSession) take(raw []byte) (typed, error) {
	if !s.first.is(raw) {
		return s.codec.types.read(raw)
	}
	d := s.first.typed
	s.first = kept{}
	return d, nil
}
