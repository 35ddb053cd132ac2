package builtin_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
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

// TestWhatAPatchLeftIsComparedAsItWasLeft has a time that Kubernetes reads more precisely than it writes it.
func TestWhatAPatchLeftIsComparedAsItWasLeft(t *testing.T) {
	patches := [hooks]string{
		`[{"op":"add","path":"/metadata/creationTimestamp","value":"2020-01-01T00:00:00.5Z"}]`,
		`[{"op":"test","path":"/kind","value":"Pod"}]`, `[{"op":"test","path":"/kind","value":"Pod"}]`,
	}
	w := newWorld(t, everything())
	w.patches = patches
	now := asServed(t, pod)
	want := w.admit(t, now)
	s := builtin.New(builtin.Options{}).NewPatchSession(nil)
	for i, patch := range patches {
		result, changed, err := s.Apply(now, []byte(patch))
		if err != nil || changed != mutated(t, want, i) {
			t.Errorf("hook %d: changed is %v, in Kubernetes %v, error %v", i, changed, mutated(t, want, i), err)
		}
		now = result
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
