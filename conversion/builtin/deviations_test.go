package builtin_test

import (
	"bytes"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// Tests of the rows of docs/deviations.md about built-in kinds: kube-apiserver beside the codec.

const addLabels = `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`

// both sends an object through kube-apiserver's mutating plugin and through the codec. seen is the object that the second hook sees, final the object
// in the end, changed whether the first hook changed it: with the plugin, and with the codec.
func both(t *testing.T, object []byte, patches [hooks]string) (seen, final [2][]byte, changed [2]bool) {
	t.Helper()
	w := newWorld(t, everything())
	w.patches = patches
	outcome := w.admit(t, object)
	if !outcome.Allowed || len(w.seen) < 2 {
		t.Fatalf("%d hooks called: %+v", len(w.seen), outcome)
	}
	s := builtin.New(builtin.Options{}).NewPatchSession(nil)
	now := object
	for i, patch := range patches {
		result, differs, err := s.Apply(now, []byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		if now = result; i == 0 {
			seen, changed = [2][]byte{w.seen[1], now}, [2]bool{mutated(t, outcome, 0), differs}
		}
	}
	patch, err := s.Diff(object, now)
	if err != nil {
		t.Fatal(err)
	}
	return seen, [2][]byte{outcome.FinalObject, servedAs(t, apply(t, object, patch), kindIn(t, object))}, changed
}

func TestAFieldThatNobodyKnowsIsSeenByTheNextHookAndCountsAsAChange(t *testing.T) {
	seen, final, changed := both(t, asServed(t, pod), [hooks]string{`[{"op":"add","path":"/spec/containers/0/turbo","value":1.50}]`, addLabels, `[]`})
	if bytes.Contains(seen[0], []byte("turbo")) || !bytes.Contains(seen[1], []byte(`"turbo":1.50`)) {
		t.Errorf("the next hook sees %s, in Kubernetes %s", seen[1], seen[0])
	}
	if changed != [2]bool{false, true} {
		t.Errorf("changed in Kubernetes, and here: %v", changed)
	}
	equalJSON(t, final[0], final[1]) // for that, an API server has read our answer
}

func TestAKindThatAPatchTakesAwayIsThereForTheNextHook(t *testing.T) {
	seen, final, changed := both(t, asServed(t, pod), [hooks]string{`[{"op":"remove","path":"/kind"},{"op":"remove","path":"/apiVersion"}]`, addLabels, `[]`})
	if bytes.Contains(seen[0], []byte(`"kind":"Pod"`)) || !bytes.HasPrefix(seen[1], []byte(`{"kind":"Pod","apiVersion":"v1"`)) {
		t.Errorf("the next hook sees %s, in Kubernetes %s", seen[1], seen[0])
	}
	if changed != [2]bool{true, true} {
		t.Errorf("changed in Kubernetes, and here: %v", changed)
	}
	equalJSON(t, final[0], final[1])
}

func TestAnObjectWithAFieldTwiceIsNotDefaulted(t *testing.T) {
	seen, final, changed := both(t, asServed(t, pod), [hooks]string{
		`[{"op":"add","path":"/metadata/labels","value":{"a":"b","a":"c"}},{"op":"add","path":"/spec/containers/-","value":{"name":"x","image":"x"}}]`, `[]`, `[]`,
	})
	if !bytes.Contains(seen[0], []byte(`"name":"x","image":"x","resources":{}`)) || !bytes.Contains(seen[1], []byte(`{"name":"x","image":"x"}`)) {
		t.Errorf("the next hook sees %s, in Kubernetes %s", seen[1], seen[0])
	}
	if changed != [2]bool{true, true} {
		t.Errorf("changed in Kubernetes, and here: %v", changed)
	}
	equalJSON(t, final[0], final[1])
}

func TestAListThatTheLastHookEmptiesGetsItsDefault(t *testing.T) {
	object := inVersionOf(t, "autoscaling/v2 HorizontalPodAutoscaler")
	_, final, _ := both(t, object, [hooks]string{addLabels, `[]`, `[{"op":"replace","path":"/spec/behavior/scaleDown/policies","value":[]}]`})
	if bytes.Contains(final[0], []byte(`"scaleDown":{"stabilizationWindowSeconds":60,"selectPolicy":"Max","policies"`)) {
		t.Errorf("in Kubernetes the object is %s", final[0])
	}
	equalJSON(t, asServed(t, string(final[0])), final[1])
	if bytes.Equal(final[0], final[1]) {
		t.Error("it is empty here too")
	}
}

func TestDefaultsThatAnAPIServerDoesNotHaveAreSeenByHooksAndNotInThePatch(t *testing.T) {
	c := builtin.New(builtin.Options{})
	seen, _, err := c.Apply([]byte(older), []byte(addLabels))
	if err != nil || !bytes.Contains(seen, []byte(`"schedulerName":"default-scheduler"`)) {
		t.Fatalf("the next hook sees %s, error %v", seen, err)
	}
	if patch, err := c.Diff([]byte(older), seen); err != nil || string(patch) != addLabels {
		t.Errorf("patch %s, error %v", patch, err)
	}
}

// TestWhatAConversionThereAndBackChangesByItselfIsNoChange has a hook of autoscaling/v1 label an autoscaler whose metric of
// the CPU is not the last one. In v1 that has a field of its own.
func TestWhatAConversionThereAndBackChangesByItselfIsNoChange(t *testing.T) {
	v1, v2 := at(t, "autoscaling/v1 HorizontalPodAutoscaler"), at(t, "autoscaling/v2 HorizontalPodAutoscaler")
	w := newWorld(t, admissionregistrationv1.Rule{APIGroups: []string{"autoscaling"}, APIVersions: []string{"v1"}, Resources: []string{"*"}}, v1, v2)
	w.patches = [hooks]string{addLabels, `[]`, `[]`}
	object := apply(t, inVersion(t, v2), []byte(`[{"op":"move","from":"/spec/metrics/1","path":"/spec/metrics/0"}]`))
	object = asServed(t, string(object))
	outcome := w.admit(t, object)
	if !outcome.Allowed || len(w.seen) != hooks || kindIn(t, w.seen[0]) != v1 {
		t.Fatalf("%d hooks called: %+v", len(w.seen), outcome)
	}
	if got := convert(t, object, v1); !bytes.Equal(w.seen[0], got) {
		t.Errorf("the hook sees %s, in Kubernetes %s", got, w.seen[0])
	}
	turned := apply(t, object, []byte(`[{"op":"move","from":"/spec/metrics/0","path":"/spec/metrics/1"}]`))
	equalJSON(t, apply(t, turned, []byte(addLabels)), outcome.FinalObject)
	got := elsewhere(t, builtin.New(builtin.Options{}), object, v1, addLabels)
	if patch, err := conversion.DiffPatch(object, got); err != nil || string(patch) != addLabels {
		t.Errorf("patch %s, error %v", patch, err)
	}
}
