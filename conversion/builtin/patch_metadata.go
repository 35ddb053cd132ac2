package builtin

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// changeMetadata takes the place of [conversion.Patch] and change for a patch of single labels and annotations: it changes them in the decoded object,
// which is not decoded again. It is there for speed. ok is false if the other two have to apply the patch: it has other operations, it does not fit, or it
// changes nothing.
func (s *PatchSession) changeMetadata(need *need, object, patch []byte, kind schema.GroupVersionKind) (result []byte, ok bool, err error) {
	edits, ok := conversion.MetadataEdits(patch)
	if !ok {
		return nil, false, nil
	}
	before, again := s.latest.typed, s.latest.is(object)
	switch {
	case !again && conversion.CheckText(object) != nil: // Patch mends it
		return nil, false, nil
	case !again:
		before, err = s.decode(object, kind)
	case !s.latest.reread: // it may have an empty list that its JSON has not, and that gets a default then
		before, err = s.codec.types.decode(object, kind)
	}
	if err != nil {
		return nil, false, nil //nolint:nilerr // change finds it, too
	}
	o, err := meta.Accessor(before.object)
	if err != nil || before.rest != nil || before.kind != kind {
		return nil, false, nil //nolint:nilerr // the type of the kind has no metadata
	}
	labels, annotations := maps.Clone(o.GetLabels()), maps.Clone(o.GetAnnotations())
	for _, e := range edits {
		of := labels
		if e.Annotation {
			of = annotations
		}
		if !editMetadata(of, e) {
			return nil, false, nil
		}
	}
	if maps.Equal(labels, o.GetLabels()) && maps.Equal(annotations, o.GetAnnotations()) {
		return nil, false, nil
	}
	if err = need.grow(s.allowance, conversion.ExtentOf(object).Typed()+int64(len(patch))); err != nil {
		return nil, false, err
	}
	after := before
	if again {
		after.object = shallow(before.object) // storeResult drops the other
	} else {
		after.object = before.object.DeepCopyObject()
	}
	changed := after.object.(interface { //nolint:errcheck,forcetypeassert // meta.Accessor has found them
		SetLabels(labels map[string]string)
		SetAnnotations(annotations map[string]string)
	})
	changed.SetLabels(labels)
	changed.SetAnnotations(annotations)
	result, err = s.storeResult(object, after, kind)
	s.latest.reread = again
	return result, err == nil, err
}

// editMetadata changes the labels or annotations as the operation of a patch would; false if that is not certain: it fails without the map, or without
// the key, and a text of an object may be null, which reads as empty.
func editMetadata(of map[string]string, e conversion.MetadataEdit) bool {
	if len(of) == 0 || e.Op != "add" && of[e.Key] == "" {
		return false
	}
	if e.Op == "remove" {
		delete(of, e.Key)
	} else {
		of[e.Key] = e.Value
	}
	return true
}

// shallow is a copy of an object that shares all that its fields point to.
func shallow(o runtime.Object) runtime.Object {
	from := reflect.ValueOf(o).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(runtime.Object) //nolint:errcheck,forcetypeassert // it has the type of o
}
