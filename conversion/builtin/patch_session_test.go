package builtin_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func TestASeriesDoesWhatItsCodecDoesToEachObject(t *testing.T) {
	const widget = `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w"},"size":1.50,"colour":"red","parts":[1,2],"on":true}`
	r := rand.New(rand.NewPCG(7, 8))
	c := builtin.New(builtin.Options{})
	seeds := []string{older, newer, pod, string(asServed(t, pod)), string(asServed(t, deployment)), widget}
	applied := 0
	for i := range 3000 {
		from := []byte(seeds[i%len(seeds)])
		s, now := c.NewPatchSession(nil), from
		for range 3 {
			patch := []byte(patchOf(t, r, now))
			want, wantChanged, wantErr := c.Apply(now, patch)
			got, changed, err := s.Apply(now, patch)
			if !bytes.Equal(got, want) || changed != wantChanged || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("case %d: of %s\npatch %s\nmakes %s, %v, %v\nwant  %s, %v, %v", i, now, patch, got, changed, err, want, wantChanged, wantErr)
			}
			if err == nil {
				now = got
				applied++
			}
		}
		want, wantErr := c.Diff(from, now)
		got, err := s.Diff(from, now)
		if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("case %d: from %s\nto %s\nis %s, %v\nwant %s, %v", i, from, now, got, err, want, wantErr)
		}
	}
	if applied < 3000 {
		t.Errorf("only %d patches fit", applied)
	}
}

// TestWhatAPatchLeftIsComparedAsItWasLeft has a time that Kubernetes reads more precisely than it writes it, and empty lists and maps that it does not write
// and that get a default when they are read again.
func TestWhatAPatchLeftIsComparedAsItWasLeft(t *testing.T) {
	const (
		precise = `[{"op":"add","path":"/metadata/creationTimestamp","value":"2020-01-01T00:00:00.5Z"}]`
		nothing = `[{"op":"test","path":"/kind","value":"Pod"}]`
		first   = `[{"op":"add","path":"/metadata/labels/a","value":"b"}]`
		another = `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`
	)
	labelled := strings.Replace(pod, `"name":"p"`, `"name":"p","creationTimestamp":"2020-01-01T00:00:00Z","labels":{"x":"y"}`, 1)
	scaler := `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{"name":"h","labels":{"x":"y"}},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d"},"maxReplicas":3,"behavior":{"scaleUp":{"policies":[{"type":"Pods","value":4,"periodSeconds":15}]}}}}`
	node := `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","labels":{"x":"y"}},"status":{"capacity":{"cpu":"1"},"allocatable":{"cpu":"1"}}}`
	for name, of := range map[string]struct {
		object  string
		patches [hooks]string
	}{
		"an empty list":             {scaler, [hooks]string{`[{"op":"replace","path":"/spec/behavior/scaleUp/policies","value":[]}]`, first, another}},
		"an empty map":              {node, [hooks]string{`[{"op":"replace","path":"/status/allocatable","value":{}}]`, first, another}},
		"by nothing":                {pod, [hooks]string{precise, nothing, nothing}},
		"by a label":                {labelled, [hooks]string{precise, first, nothing}},
		"of the request":            {labelled, [hooks]string{first, nothing, nothing}},
		"of the request, two times": {labelled, [hooks]string{first, another, nothing}},
		"by the same label":         {labelled, [hooks]string{first, first, first}},
		"a label without others":    {pod, [hooks]string{nothing, label, first}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, everything())
			w.patches = of.patches
			now := asServed(t, of.object)
			want := w.admit(t, now)
			s := builtin.New(builtin.Options{}).NewPatchSession(nil)
			for i, patch := range of.patches {
				if string(now) != string(w.seen[i]) {
					t.Errorf("hook %d sees %s\nin Kubernetes %s", i, now, w.seen[i])
				}
				result, changed, err := s.Apply(now, []byte(patch))
				if err != nil || changed != mutated(t, want, i) {
					t.Errorf("hook %d: changed is %v, in Kubernetes %v, error %v", i, changed, mutated(t, want, i), err)
				}
				now = result
			}
		})
	}
}

// TestMetadataChangesAsBySlowPatches compares patches of labels and annotations, between other patches, with the code for all patches.
func TestMetadataChangesAsBySlowPatches(t *testing.T) {
	controller := `{"kind":"ReplicationController","apiVersion":"v1","metadata":{"name":"c","labels":{"a":"b"}},"spec":{"template":{"metadata":{"labels":{"t":"u"}},"spec":{"containers":[{"name":"m","image":"i"}]}}}}`
	precise := `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l","labels":{"a":"b"},"annotations":{"k":"v"}},"spec":{"acquireTime":"2020-01-01T00:00:00.1234567Z"}}`
	halves := `{"kind":"ControllerRevision","apiVersion":"apps/v1","metadata":{"name":"r","labels":{"a":"b"}},"data":"\ud800"}`
	seeds := []string{older, newer, pod, string(asServed(t, pod)), string(asServed(t, deployment)), controller, precise, halves}
	const labels = `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`
	kinds := everyVersion(t)
	for _, kind := range sortedKinds(kinds) {
		if object := kinds[kind].object; bytes.Contains(object, []byte(`"metadata":`)) {
			seeds = append(seeds, string(apply(t, object, []byte(labels))))
		}
	}
	r := rand.New(rand.NewPCG(9, 1))
	c := builtin.New(builtin.Options{})
	edited := 0
	for i := range citest.Cases(1000, 10_000, 100_000) {
		from := []byte(seeds[i%len(seeds)])
		s, slow, now := c.NewPatchSession(nil), c.NewPatchSession(nil), from
		var said []string
		for range 5 {
			patch := []byte(metadataPatch(r, now))
			switch n := r.IntN(8); {
			case n == 0:
				patch = []byte(`[{"op":"add","path":"/metadata/creationTimestamp","value":"2024-01-02T03:04:05.5Z"}]`)
			case n < 3 && len(now) > len(precise):
				patch = []byte(patchOf(t, r, now))
			}
			said = append(said, string(patch))
			want, wantChanged, wantErr := slow.ApplySlowly(now, patch)
			got, changed, err := s.Apply(now, patch)
			if !bytes.Equal(got, want) || changed != wantChanged || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("case %d: of %s\npatches %s\nmake %s, %v, %v\nwant %s, %v, %v", i, from, said, got, changed, err, want, wantChanged, wantErr)
			}
			if _, ok := conversion.MetadataEdits(patch); ok && changed {
				edited++
			}
			if err == nil {
				slow.Know(want, got) // one object has one place
				now = got
			}
		}
		want, wantErr := slow.Diff(from, now)
		got, err := s.Diff(from, now)
		if !bytes.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("case %d: from %s\nto %s\nis %s, %v\nwant %s, %v", i, from, now, got, err, want, wantErr)
		}
	}
	if edited < 500 {
		t.Errorf("only %d patches changed labels or annotations alone", edited)
	}
}

func TestASeriesDecodesWhatAPatchLeftOnce(t *testing.T) {
	c := builtin.New(builtin.Options{})
	object := asServed(t, pod)
	again := testing.AllocsPerRun(20, func() { // the first patch finds nothing kept, the second the result of the first
		s := c.NewPatchSession(nil)
		now, _, _ := s.Apply(object, []byte(label))
		_, _, _ = s.Apply(now, []byte(label))
	})
	now, _, _ := c.Apply(object, []byte(label))
	apart := testing.AllocsPerRun(20, func() {
		_, _, _ = c.Apply(object, []byte(label))
		_, _, _ = c.Apply(now, []byte(label))
	})
	decode := testing.AllocsPerRun(20, func() { _, _ = c.Decode(now) })
	if again > apart-decode/2 {
		t.Errorf("%v allocations, %v apart from each other, %v to decode", again, apart, decode)
	}
}

// booked is an allowance that counts the bytes booked now, and the most so far.
type booked struct{ now, most int64 }

func (b *booked) Err() error { return nil }

func (b *booked) Grow(n int64) error {
	b.Charge(n)
	return nil
}

func (b *booked) Charge(n int64) {
	b.now += n
	b.most = max(b.most, b.now)
}

func (b *booked) Shrink(n int64) { b.now -= n }

// The difference takes no more than the patch did that came before it: who had room for that is not refused it, and takes none
// from others.
func TestADifferenceTakesNoMoreThanThePatchBeforeIt(t *testing.T) {
	var b booked
	s := builtin.New(builtin.Options{}).NewPatchSession(&b)
	object := asServed(t, pod)
	result, _, err := s.Apply(object, []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	patch := b.most
	b.most = 0
	if _, err := s.Diff(object, result); err != nil {
		t.Fatal(err)
	}
	if b.most > patch || b.now != 0 {
		t.Errorf("the patch took %d bytes at most, the difference %d; %d are left", patch, b.most, b.now)
	}
}

// TestAPatchOfLabelsBooksBothObjects has a first patch, whose object is kept too, and patches of its results.
func TestAPatchOfLabelsBooksBothObjects(t *testing.T) {
	var b booked
	s := builtin.New(builtin.Options{}).NewPatchSession(&b)
	first := []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","labels":{"a":"b"},"annotations":{"a":"b"}}}`)
	now := first
	for i := range 3 {
		patch := fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations/a%d","value":%q}]`, i, strings.Repeat("x", 1<<20))
		result, changed, err := s.Apply(now, []byte(patch))
		if err != nil || !changed {
			t.Fatal(changed, err)
		}
		if least := conversion.ExtentOf(now).Typed() + conversion.ExtentOf(result).Typed(); b.most < least {
			t.Errorf("patch %d books %d bytes, of %d", i, b.most, least)
		}
		now, b.most = result, b.now
	}
	if _, err := s.Diff(first, now); err != nil || b.now != 0 {
		t.Errorf("error %v, %d bytes are left", err, b.now)
	}
}
