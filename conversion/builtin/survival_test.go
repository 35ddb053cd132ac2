package builtin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

// seed is an object, and where a field can be added to it that nobody knows: at any depth, in items of lists too, but not
// among labels, schemas and the like, where it would be one more of them.
type seed struct {
	object []byte
	places []string
}

func newSeed(t *testing.T, object []byte) seed {
	t.Helper()
	var reason string
	c := builtin.New(builtin.Options{NotKnown: func(r string) { reason = r }})
	s := seed{object: object}
	all := tree(t, object)
	for _, place := range append(paths(all, "", nil), "") {
		if _, isObject := find(all, place).(map[string]any); place != "" && !isObject {
			continue
		}
		reason = ""
		if _, _, err := c.Apply(object, fmt.Appendf(nil, `[{"op":"add","path":"%s/turbo","value":1}]`, place)); err == nil && reason == builtin.ReasonUnknownFields {
			s.places = append(s.places, place)
		}
	}
	return s
}

// madeUp is the object with some fields that nobody knows.
func (s seed) madeUp(t *testing.T, r *rand.Rand) (object []byte, fields []string) {
	t.Helper()
	values := []string{`1`, `1.50`, `9007199254740993`, `"x"`, `true`, `{"level":{"of":[1,{"a":null}]}}`, `[{"a":1.0},[]]`, `{"name":"x"}`, `null`}
	names := []string{"turbo", "Turbo", "tur.bo", "tur~1bo", "tur~0bo", "turbo[0]", "spec.turbo"}
	var operations []string
	for i := range 1 + r.IntN(3) {
		field := fmt.Sprint(s.places[r.IntN(len(s.places))], "/", names[r.IntN(len(names))], i)
		operations = append(operations, fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, field, values[r.IntN(len(values))]))
		fields = append(fields, field)
	}
	return apply(t, s.object, []byte("["+strings.Join(operations, ",")+"]")), fields
}

// everyVersion are the samples in all their versions.
func everyVersion(t *testing.T) map[schema.GroupVersionKind]seed {
	t.Helper()
	objects := map[schema.GroupVersionKind]seed{}
	for _, family := range families() {
		for _, kind := range family {
			objects[at(t, kind)] = newSeed(t, convert(t, inVersion(t, at(t, family[0])), at(t, kind)))
		}
	}
	return objects
}

func sortedKinds(objects map[schema.GroupVersionKind]seed) []schema.GroupVersionKind {
	return slices.SortedFunc(maps.Keys(objects), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
}

// harmless is a patch that touches no made-up field.
func harmless(kind schema.GroupVersionKind) string {
	if kind.Kind == "DeploymentRollback" {
		return `[{"op":"replace","path":"/rollbackTo/revision","value":77}]`
	}
	return `[{"op":"add","path":"/metadata/generation","value":77}]`
}

// TestMadeUpFieldsSurviveEveryPatch lets a hook change another field of objects that have unknown fields on random places: the patch of the review
// then equals the patch of the hook. Then a second hook changes an unknown field.
func TestMadeUpFieldsSurviveEveryPatch(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	c := builtin.New(builtin.Options{})
	objects := everyVersion(t)
	kinds := sortedKinds(objects)
	for i := range 1500 {
		kind := kinds[i%len(kinds)]
		object, fields := objects[kind].madeUp(t, r)
		patch := harmless(kind)
		result, changed, err := c.Apply(object, []byte(patch))
		if err != nil || !changed {
			t.Fatalf("changed %v, error %v: %s", changed, err, object)
		}
		checkDiff(t, c, object, result, patch)
		if i%3 > 0 {
			continue
		}
		change := `{"op":"replace","path":"` + fields[r.IntN(len(fields))] + `","value":{"changed":[1.50]}}`
		if result, changed, err = c.Apply(result, []byte("["+change+"]")); err != nil || !changed {
			t.Fatalf("%s: changed %v, error %v: %s", change, changed, err, result)
		}
		equalPatched(t, c, object, result, patch, "["+change+"]")
	}
}

// checkDiff fails the test if the patch of all hooks is another than wanted.
func checkDiff(t *testing.T, c *builtin.Codec, from, to []byte, want string) {
	t.Helper()
	if got, err := c.Diff(from, to); err != nil || !sameJSON(t, []byte(want), got) {
		t.Fatalf("of %s\npatch %s\nwant  %s\nerror %v", from, got, want, err)
	}
}

// equalPatched fails the test if the patch of all hooks does something else than these, one after the other.
func equalPatched(t *testing.T, c *builtin.Codec, from, to []byte, patches ...string) {
	t.Helper()
	got, err := c.Diff(from, to)
	if err != nil {
		t.Fatal(err)
	}
	want := from
	for _, patch := range patches {
		want = apply(t, want, []byte(patch))
	}
	if end := apply(t, from, got); !sameJSON(t, want, end) {
		t.Fatalf("of %s\npatch %s\nmakes %s\nwant  %s", from, got, end, want)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	// In an object: DiffPatch compares objects alone.
	patch, err := conversion.DiffPatch(fmt.Appendf(nil, `{"v":%s}`, a), fmt.Appendf(nil, `{"v":%s}`, b))
	return err == nil && patch == nil
}

// TestMadeUpFieldsSurviveAHookInAnotherVersion is the same for hooks that see the object in another version: their changes there are the only changes
// here.
func TestMadeUpFieldsSurviveAHookInAnotherVersion(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	c := builtin.New(builtin.Options{})
	objects := everyVersion(t)
	for i := range 1000 {
		family := families()[i%len(families())]
		here, there := at(t, family[r.IntN(len(family))]), at(t, family[r.IntN(len(family))])
		plain := objects[here].object
		object, _ := objects[here].madeUp(t, r)
		extra, err := conversion.DiffPatch(plain, object)
		if err != nil {
			t.Fatal(err)
		}
		// With the defaults of the other version, that is, which are the same without the fields.
		want, got := elsewhere(t, c, plain, there, harmless(here)), elsewhere(t, c, object, there, harmless(here))
		if want = apply(t, want, extra); !sameJSON(t, want, got) {
			difference, _ := conversion.DiffPatch(want, got)
			t.Fatalf("%s in %s\nwas %s\nand is %s\ndifference %s", here, there, object, got, difference)
		}
	}
}

// elsewhere is an object after a hook has patched it in another version.
func elsewhere(t *testing.T, c *builtin.Codec, object []byte, there schema.GroupVersionKind, patch string) []byte {
	t.Helper()
	here := kindIn(t, object)
	seen, err := c.Convert(object, there)
	if err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	changed, _, err := c.Apply(seen, []byte(patch))
	if err != nil {
		t.Fatalf("%v: %s", err, seen)
	}
	var back [2][]byte
	for i, view := range [][]byte{seen, changed} {
		if back[i], err = c.Convert(view, here); err != nil {
			t.Fatalf("%v: %s", err, view)
		}
	}
	got, err := conversion.Rebase(object, back[0], back[1])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestWhatRandomHooksMakeOfAnObjectIsConvertedThereAndBackOrRefused looks for objects that the conversions of Kubernetes
// were not made for.
func TestWhatRandomHooksMakeOfAnObjectIsConvertedThereAndBackOrRefused(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(13, 14))
	c := builtin.New(builtin.Options{})
	objects := everyVersion(t)
	converted := 0
	for i := range 3000 {
		family := families()[i%len(families())]
		here, there := at(t, family[r.IntN(len(family))]), at(t, family[r.IntN(len(family))])
		object := objects[here].object
		patch := []byte(mutation(r, tree(t, object)))
		if p, err := conversion.ApplyPatch(object, patch); err == nil {
			object = p.Raw // as it is, without defaults
		}
		seen, err := c.Convert(object, there)
		if err != nil {
			continue
		}
		again, err := c.Convert(seen, here)
		if err != nil {
			t.Fatalf("%s, which is %s in %s, does not come back: %v", object, seen, there, err)
		}
		if got, err := conversion.Rebase(object, again, again); err != nil || !sameJSON(t, object, got) {
			t.Fatalf("%s becomes %s, error %v", object, got, err)
		}
		converted++
	}
	if converted < 1500 {
		t.Errorf("only %d objects could be converted", converted)
	}
}

// TestMadeUpFieldsOfItemsSurviveWhatHappensToOtherItems changes the containers of Deployments in another version.
func TestMadeUpFieldsOfItemsSurviveWhatHappensToOtherItems(t *testing.T) {
	object := asServed(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"a"},{"name":"b","image":"b"},{"name":"c","image":"c"}]}}}}`)
	for i := range 3 {
		object = apply(t, object, fmt.Appendf(nil, `[{"op":"add","path":"/spec/template/spec/containers/%d/turbo","value":{"of":%d}}]`, i, i))
	}
	c := builtin.New(builtin.Options{})
	for _, version := range families()[0] {
		for name, tc := range map[string]struct {
			patch string
			gone  int // the container that goes; -1 for none
		}{
			"one comes at the front":          {`[{"op":"add","path":"/spec/template/spec/containers/0","value":{"name":"x","image":"x"}}]`, -1},
			"one comes at the end":            {`[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"x","image":"x"}}]`, -1},
			"one comes between":               {`[{"op":"add","path":"/spec/template/spec/containers/1","value":{"name":"x","image":"x"}}]`, -1},
			"the first goes":                  {`[{"op":"remove","path":"/spec/template/spec/containers/0"}]`, 0},
			"the one between goes":            {`[{"op":"remove","path":"/spec/template/spec/containers/1"}]`, 1},
			"the last goes":                   {`[{"op":"remove","path":"/spec/template/spec/containers/2"}]`, 2},
			"one changes":                     {`[{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"x:1"}]`, -1},
			"one comes, one changes":          {`[{"op":"replace","path":"/spec/template/spec/containers/2/image","value":"x:1"},{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"x","image":"x"}}]`, -1},
			"one goes, and the other changes": {`[{"op":"remove","path":"/spec/template/spec/containers/0"},{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"x:1"}]`, 0},
		} {
			got := elsewhere(t, c, object, at(t, version), tc.patch)
			for i := range 3 {
				has := strings.Contains(string(got), fmt.Sprintf(`"name":"%c","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","turbo":{"of":%d}`, 'a'+i, i))
				if has != (i != tc.gone) {
					t.Errorf("%s, %s: container %d: %s", version, name, i, got)
				}
			}
		}
	}
}

func FuzzNothingIsLostByAPatchOrAConversion(f *testing.F) {
	for _, object := range []string{pod, newer, older, deployment, service, role} {
		f.Add(object, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, uint8(0))
	}
	f.Add(`{"kind":"Pod","apiVersion":"v1","spec.containers":1,"spec":{"containers":[{"name":"a"}]}}`, `[{"op":"add","path":"/a.b[0]","value":1}]`, uint8(1))
	f.Add(`{"kind":"Deployment","apiVersion":"apps/v1","spec":null}`, `[{"op":"replace","path":"/spec","value":{"a":{}}}]`, uint8(2))
	f.Add(`{"kind":"Scale","apiVersion":"autoscaling/v1","spec":{"replicas":1e0}}`, `[{"op":"test","path":"/kind","value":"Scale"}]`, uint8(3))
	c := builtin.New(builtin.Options{})
	f.Fuzz(func(t *testing.T, object, patch string, version uint8) {
		from := []byte(object)
		result, changed, err := c.Apply(from, []byte(patch))
		if err != nil {
			if result != nil || changed {
				t.Fatalf("got %s, changed %v, error %v", result, changed, err)
			}
			return
		}
		if _, err := c.Diff(from, result); err != nil && changed {
			t.Fatalf("no difference of %s and %s: %v", from, result, err)
		}
		kind, err := conversion.KindOf(from)
		if err != nil || !json.Valid(from) {
			return
		}
		for _, family := range families() {
			if !slices.Contains(family, kind.GroupVersion().String()+" "+kind.Kind) {
				continue
			}
			seen, err := c.Convert(from, at(t, family[int(version)%len(family)]))
			if err != nil {
				return
			}
			again, err := c.Convert(seen, kind)
			if err != nil {
				t.Fatalf("%s does not come back: %v", seen, err)
			}
			if got, err := conversion.Rebase(from, again, again); err != nil || !sameJSON(t, from, got) {
				t.Fatalf("%s becomes %s, error %v", from, got, err)
			}
		}
	})
}
