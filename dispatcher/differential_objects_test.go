package dispatcher_test

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// The deviations that are about objects of built-in kinds.

// unknownFields is B1: if a hook adds a field that our types do not know, the other hooks see it, as a change. An API server that does not know it
// either drops it, here and at the end. A newer API server would treat it like a field of its own, as kube-apiserver treats the known field that the
// test writes in its place.
func (x *explanation) unknownFields() bool {
	added := false
	rename := func(_ string, a oracle.Answer) oracle.Answer {
		if a.Response != nil && bytes.Contains(a.Response.Patch, []byte(madeUp)) {
			added = true
			a.Response = a.Response.DeepCopy()
			a.Response.Patch = bytes.ReplaceAll(a.Response.Patch, []byte(madeUp), []byte(known))
		}
		return a
	}
	renamed := x.ask(rename)
	if !added {
		return false
	}
	read := func(o *outcome) {
		for i := range o.Calls {
			o.Calls[i].Object = withoutKnown(o.Calls[i].Object, path.Base(madeUp))
		}
		o.Object = withoutKnown(o.Object, "")
	}
	read(&renamed)
	x.want = renamed
	x.insist(rename)
	x.readings = append(x.readings, read)
	return true
}

// writtenAnew is B9: kube-apiserver writes the object anew, from its internal version, between the rounds and where hooks take different versions.
// The hooks see the same, but for the differences that writing it anew makes.
func (x *explanation) writtenAnew() bool {
	anew := x.alike(func(o unstructured.Unstructured) string { return canonicalJSON(through(o, o.GroupVersionKind())) })
	if by := x.writers(); anew && !slices.Equal(x.want.Mutated, x.got.Mutated) { // the same patch is a change again
		x.want.Mutated = slices.DeleteFunc(x.want.Mutated, by)
		x.got.Mutated = slices.DeleteFunc(x.got.Mutated, by)
	}
	if x.settled() {
		return anew
	}
	return x.ownField() || anew
}

// secondName is a patch of the deprecated name of a service account, which loses against the other one when the object is
// written anew, so that the same patch is a change again.
var secondName = regexp.MustCompile(`"path":"[^"]*/serviceAccount"`)

// writers tells the changes of hooks that patch the deprecated name.
func (x *explanation) writers() func(mutated string) bool {
	var names []string
	for _, h := range x.experiment.world.hooks(x.experiment.Stage) {
		for _, s := range x.experiment.Scripts[h.key] {
			if r := s.act.say(nil).Response; r != nil && secondName.Match(r.Patch) {
				names = append(names, "/"+h.Name)
			}
		}
	}
	return func(mutated string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(mutated, name) })
	}
}

// ownField is the part of B9 that is about service accounts. It asks kube-apiserver again, with patches of a field that writing anew does not touch:
// then the same hooks see the same, but for the names.
func (x *explanation) ownField() bool {
	patched := false
	other := func(_ string, a oracle.Answer) oracle.Answer {
		if a.Response != nil && secondName.Match(a.Response.Patch) {
			patched = true
			a.Response = a.Response.DeepCopy()
			a.Response.Patch = secondName.ReplaceAll(a.Response.Patch, []byte(`"path":"/metadata/resourceVersion"`))
		}
		return a
	}
	asked := x.ask(other)
	if !patched {
		return false
	}
	withoutNames := func(o unstructured.Unstructured) string {
		leaveOut(o.Object, "serviceAccount", "serviceAccountName", "resourceVersion")
		return canonical(o.Object)
	}
	if len(x.want.Calls) == len(x.got.Calls) {
		asked.Object = x.want.Object // which is compared as it is, unless other hooks have been reinvoked
	} else {
		same(asked.Object, &x.got.Object, withoutNames)
	}
	x.want = asked
	x.seenAlike(withoutNames)
	return true
}

// leaveOut removes members wherever they are.
func leaveOut(from any, names ...string) {
	switch from := from.(type) {
	case map[string]any:
		for _, name := range names {
			delete(from, name)
		}
		for _, v := range from {
			leaveOut(v, names...)
		}
	case []any:
		for _, v := range from {
			leaveOut(v, names...)
		}
	}
}

// thereAndBack is B7: the conversion to the version of a hook and back makes changes, which do not stay in the object.
func (x *explanation) thereAndBack() bool {
	for _, c := range slices.Clone(x.want.Calls) {
		as, converted := c.converted()
		if converted && x.alike(func(o unstructured.Unstructured) string { return canonicalJSON(through(o, as)) }) {
			return true
		}
	}
	return false
}

// through is an object as an API server reads it and writes it in a version, and that again in its own.
func through(o unstructured.Unstructured, as schema.GroupVersionKind) []byte {
	own := o.GroupVersionKind()
	var there unstructured.Unstructured
	if err := there.UnmarshalJSON(inVersion(o.Object, own.GroupVersion(), as)); err != nil {
		return []byte(err.Error())
	}
	return inVersion(there.Object, as.GroupVersion(), own)
}

// alike takes the objects that are the same when they are written in some way for the same. It reports whether there are.
func (x *explanation) alike(write func(o unstructured.Unstructured) string) bool {
	final := x.experiment.typed() && same(x.want.Object, &x.got.Object, write)
	return x.seenAlike(write) || final
}

// seenAlike is alike for the objects that hooks see.
func (x *explanation) seenAlike(write func(o unstructured.Unstructured) string) bool {
	if !x.experiment.typed() || len(x.want.Calls) != len(x.got.Calls) {
		return false
	}
	found := false
	for i := range x.want.Calls {
		found = same(x.want.Calls[i].Object, &x.got.Calls[i].Object, write) || found
	}
	return found
}

// same makes got want if they are the same when they are written in some way. It reports whether they were not before.
func same(want string, got *string, write func(o unstructured.Unstructured) string) bool {
	var a, b unstructured.Unstructured
	if want == *got || a.UnmarshalJSON([]byte(want)) != nil || b.UnmarshalJSON([]byte(*got)) != nil || write(a) != write(b) {
		return false
	}
	*got = want
	return true
}

// withoutKnown is an object with the metadata field known under another name; empty leaves it out.
func withoutKnown(object, name string) string {
	var o unstructured.Unstructured
	if err := utiljson.Unmarshal([]byte(object), &o.Object); err != nil {
		return object
	}
	value, found, _ := unstructured.NestedString(o.Object, "metadata", path.Base(known))
	if !found {
		return object
	}
	unstructured.RemoveNestedField(o.Object, "metadata", path.Base(known))
	if name != "" {
		_ = unstructured.SetNestedField(o.Object, value, "metadata", name)
	}
	return canonical(o.Object)
}
