package touch

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func object(uid string, generation int64, annotation string) metav1.Object {
	o := &metav1.ObjectMeta{UID: types.UID(uid), Generation: generation}
	if annotation != "" {
		o.Annotations = map[string]string{Annotation: annotation}
	}
	return o
}

func TestEachChangeIsFollowedByOneWrite(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var c Rewrite
	for _, tt := range []struct {
		name   string
		after  time.Duration
		object metav1.Object
		due    bool
		wrote  bool
	}{
		{name: "an object is new", object: object("a", 1, "")},
		{name: "a moment before it is time", after: Delay - 1, object: object("a", 1, "")},
		{name: "it is time", after: 1, object: object("a", 1, ""), due: true},
		{name: "the write has failed", after: time.Second, object: object("a", 1, ""), due: true, wrote: true},
		{name: "a watch is behind the write", after: time.Second, object: object("a", 1, "")},
		{name: "the write is seen", after: time.Second, object: object("a", 1, "a/1")},
		{name: "a change", after: time.Hour, object: object("a", 2, "a/1")},
		{name: "another one before the first is old enough", after: Delay - 1, object: object("a", 3, "a/1")},
		{name: "the last one is not old enough", after: Delay - 1, object: object("a", 3, "a/1")},
		{name: "it is", after: 1, object: object("a", 3, "a/1"), due: true, wrote: true},
		{name: "another writer removes the annotation", after: time.Hour, object: object("a", 3, "")},
		{name: "the object was made again with it", after: time.Second, object: object("b", 1, "a/1")},
		{name: "that is a change", after: Delay, object: object("b", 1, "a/1"), due: true},
		{name: "another dispatcher has written it", after: time.Second, object: object("b", 1, "b/1")},
	} {
		now = now.Add(tt.after)
		if got := c.Due(tt.object, Mark(tt.object), now); got != tt.due {
			t.Errorf("%s: due %v, want %v", tt.name, got, tt.due)
		}
		if tt.wrote {
			c.Wrote()
		}
	}
}

func TestTheLaterWriteMayRemoveTheAnnotation(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var c Rewrite
	if o := object("a", 1, ""); c.Due(o, "", now) || c.Due(o, "", now.Add(time.Hour)) || c.Pending(o, "") {
		t.Error("an object without the annotation is written")
	}
	if o := object("a", 2, "a/1"); c.Due(o, "", now) || !c.Due(o, "", now.Add(Delay)) || !c.Pending(o, "") {
		t.Error("the annotation stays")
	}
}

func TestAChangeMayHaveAShorterDelay(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := Rewrite{Delay: time.Second}
	for generation := range int64(2) {
		o := object("a", generation, "")
		if c.Due(o, Mark(o), now) || c.Due(o, Mark(o), now.Add(time.Second-1)) || !c.Due(o, Mark(o), now.Add(time.Second)) {
			t.Errorf("change %d is not due after the delay", generation)
		}
		now = now.Add(time.Minute)
	}
}
