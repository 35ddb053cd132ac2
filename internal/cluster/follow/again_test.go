package follow

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

// annotation is the touch annotation of the original a.
func (w *world) annotation() string {
	return w.originals[validatingKind+"/a"].GetAnnotations()[touch.Annotation]
}

// TestAnOriginalIsWrittenAgainAfterItWasSwitched, since an API server may have missed it, and in the end nothing of the mesh is in it.
func TestAnOriginalIsWrittenAgainAfterItWasSwitched(t *testing.T) {
	w := newWorld(t)
	w.follows("a")
	w.now = w.now.Add(touch.Delay - 1)
	if w.rounds(); w.again != 0 {
		t.Fatalf("%d later writes before it is time", w.again)
	}
	w.now = w.now.Add(1)
	w.is(w.rounds(), "a", Followed, Off)
	if want := touch.Mark(w.originals[validatingKind+"/a"]); w.again != 1 || w.annotation() != want {
		t.Fatalf("%d later writes, and the annotation %q, want %q", w.again, w.annotation(), want)
	}
	w.now = w.now.Add(time.Hour)
	if w.rounds(); w.again != 1 || w.follower.pending {
		t.Errorf("%d later writes of one change", w.again)
	}

	w.selector = labels.Nothing()
	w.is(w.rounds(), "a", Waiting, On)
	w.now = w.now.Add(touch.Delay - 1)
	w.rounds()
	if w.annotation() == "" || len(w.objects) == 0 {
		t.Fatalf("annotation %q, and %d objects of the mesh, before it is time", w.annotation(), len(w.objects))
	}
	w.now = w.now.Add(SettleTime)
	if all := w.rounds(); w.annotation() != "" || len(w.objects) != 0 || len(all) != 0 {
		t.Errorf("annotation %q, and %d objects of the mesh", w.annotation(), len(w.objects))
	}
}

// TestAnOriginalThatWasOffForAMomentIsWrittenAgain: it was not written again when it was switched off. The copy is lost meanwhile, and
// another dispatcher leads.
func TestAnOriginalThatWasOffForAMomentIsWrittenAgain(t *testing.T) {
	w := newWorld(t)
	w.follows("a")
	w.selector, w.objects = labels.Nothing(), nil
	w.rounds()
	if w.annotation() == "" {
		t.Fatal("another dispatcher could not know that it has to be written again")
	}
	clear(w.follower.objects)
	w.rounds()
	w.now = w.now.Add(touch.Delay)
	if all := w.rounds(); w.annotation() != "" || w.again != 1 || len(all) != 0 {
		t.Errorf("annotation %q after %d later writes: %v", w.annotation(), w.again, all)
	}
}

// TestAnOriginalIsOffOnceEachAPIServerHasTheEntries, which the follower has them know.
func TestAnOriginalIsOffOnceEachAPIServerHasTheEntries(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	w.rounds()
	w.register()
	for _, o := range w.entries {
		annotations := o.GetAnnotations()
		delete(annotations, touch.Annotation)
		o.SetAnnotations(annotations)
	}
	w.is(w.rounds(), "a", Waiting, On, "written once more")
	w.now = w.now.Add(touch.Delay - 1)
	w.is(w.rounds(), "a", Waiting, On, "written once more")
	w.now = w.now.Add(1)
	w.is(w.rounds(), "a", Followed, Off)
	if w.again != 2 {
		t.Errorf("%d later writes of two objects", w.again)
	}
}
