package conversion

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// byLibrary applies a patch as kube-apiserver does, which answers 500 to a panic as to an error.
func byLibrary(object, patch []byte) (result []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return operations.Apply(object)
}

// checkPatched fails the test unless applyOperations and the library patch an object alike.
func checkPatched(t testing.TB, object, patch []byte) (applied bool) {
	t.Helper()
	want, wantErr := byLibrary(object, patch)
	var got []byte
	operations, err := decodePatch(patch)
	if err == nil {
		got, err = applyOperations(nil, object, operations)
	}
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%q\n%q\nerror %v, the library says %v", object, patch, err, wantErr)
	}
	if err == nil && !bytes.Equal(got, want) {
		t.Fatalf("%q\n%q\n got %q\nwant %q", object, patch, got, want)
	}
	return err == nil
}

// FuzzPatchOfAnObject is checkPatched.
func FuzzPatchOfAnObject(f *testing.F) {
	jsonpatch.AccumulatedCopySizeLimit = maxCopiedBytes
	const object = `{"a":[1,{"b":"<é\u2028"},null,[ ]],"b/":{"~":1.0,"\b":"\"\\"},"c":null,"c":{"d":null}}`
	for _, patch := range []string{
		`[{"op":"add","path":"/a/-","value":{"c":[1.0]}}]`, `[{"op":"remove","path":"/b~1"}]`, `[{"op":"test","path":""}]`,
		`[{"op":"replace","path":"","value":{"x":1e3}}]`, `[{"op":"move","from":"/a","path":"/c"}]`, `[{"op":"copy","from":"/a/0","path":"/a/-1"}]`,
		`[{"op":"test","path":"/a","value":[null]}]`, `[null]`, `[{"op":"add","path":"/x","value":null},{"op":"copy","from":"/x","path":"/y"},` +
			`{"op":"test","path":"/y/z"},{"op":"test","path":"/x","value":null}]`, `[{"op":"replace","path":"x","value":1}]`,
	} {
		f.Add([]byte(object), []byte(patch))
	}
	f.Fuzz(func(t *testing.T, object, patch []byte) {
		if !json.Valid(object) || len(object) == 0 || object[0] != '{' {
			return
		}
		checkPatched(t, object, patch)
	})
}

// TestPatchesAsTheLibraryAppliesThem is FuzzPatchOfAnObject over patches that mostly lead somewhere.
func TestPatchesAsTheLibraryAppliesThem(t *testing.T) {
	jsonpatch.AccumulatedCopySizeLimit = maxCopiedBytes
	applied := 0
	for seed := range uint64(30_000) {
		random := rand.New(rand.NewPCG(seed, 7))
		object := `{"a":` + randomDocument(random, 4) + `,"b":` + randomDocument(random, 3) + `, "<":[0,1,null,{"a":"\u003c"}]}`
		var operations []string
		for range 1 + random.IntN(4) {
			operations = append(operations, randomOperation(random))
		}
		if checkPatched(t, []byte(object), []byte("["+strings.Join(operations, ",")+"]")) {
			applied++
		}
	}
	if applied < 3000 {
		t.Errorf("only %d patches applied", applied)
	}
}

func randomOperation(random *rand.Rand) string {
	pointer := func() string {
		p := "/" + []string{"a", "b", "<", "c"}[random.IntN(4)]
		for range random.IntN(3) {
			p += "/" + []string{"a", "b", "c", "0", "1", "-1", "-", "2"}[random.IntN(8)]
		}
		if random.IntN(30) == 0 {
			return ""
		}
		return p
	}
	value := randomDocument(random, 2)
	switch random.IntN(12) {
	case 0, 1, 2, 3:
		return fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, pointer(), value)
	case 4, 5:
		return fmt.Sprintf(`{"op":"remove","path":%q}`, pointer())
	case 6, 7:
		return fmt.Sprintf(`{"op":"replace","path":%q,"value":%s}`, pointer(), value)
	case 8:
		return fmt.Sprintf(`{"op":"move","from":%q,"path":%q}`, pointer(), pointer())
	case 9:
		return fmt.Sprintf(`{"op":"test","path":%q,"value":%s}`, pointer(), value)
	default:
		return fmt.Sprintf(`{"op":"copy","from":%q,"path":%q}`, pointer(), pointer())
	}
}

// numbersObject is an object of 2.8 MB, of numbers in an array.
func numbersObject() []byte {
	return []byte(`{"kind":"X","apiVersion":"a/v1","a":[` + strings.Repeat("0,", 1_400_000) + `0]}`)
}

// repeated is a patch of n operations that are the same.
func repeated(operation string, n int) []byte {
	return []byte("[" + strings.Repeat(operation+",", n-1) + operation + "]")
}

// A patch of 360 kB within all limits kept a processor busy for minutes.
func TestPatchesMoveWithinALimit(t *testing.T) {
	deep := []byte(strings.Repeat(`{"a":`, 9990) + `"` + strings.Repeat("x", 3_000_000) + `"` + strings.Repeat("}", 9990))
	for name, test := range map[string]struct {
		object, patch []byte
		fails         bool
	}{
		"items in front of many":     {numbersObject(), repeated(`{"op":"add","path":"/a/0","value":0}`, 10_000), true},
		"items away in front":        {numbersObject(), repeated(`{"op":"remove","path":"/a/0"}`, 10_000), true},
		"items moved to the front":   {numbersObject(), repeated(`{"op":"move","from":"/a/-1","path":"/a/0"}`, 10_000), true},
		"items behind many":          {numbersObject(), repeated(`{"op":"add","path":"/a/-","value":0}`, 10_000), false},
		"items in front of some":     {[]byte(`{"a":[]}`), repeated(`{"op":"add","path":"/a/0","value":0}`, 10_000), false},
		"a path that is deep":        {deep, repeated(`{"op":"add","path":"`+strings.Repeat("/a", 9990)+`","value":0}`, 1), true},
		"tests of a long text":       {deep, repeated(`{"op":"test","path":"/a/a","value":"x"}`, 1), true},
		"tests of many items":        {numbersObject(), repeated(`{"op":"test","path":"/a","value":[0]}`, 1), true},
		"many tests that hold":       {numbersObject(), repeated(`{"op":"test","path":"/a/5","value":0}`, 10_000), false},
		"many small copies":          {numbersObject(), repeated(`{"op":"copy","from":"/a/5","path":"/b"}`, 10_000), false},
		"replacements of everything": {numbersObject(), repeated(`{"op":"replace","path":"","value":{"a":[]}}`, 10_000), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Patch(nil, test.object, test.patch)
			if (err != nil) != test.fails {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestMaxPatchWork applies operations that move as much as the limit, and operations that move more.
func TestMaxPatchWork(t *testing.T) {
	object := numbersObject()
	const perOperation = pointerBytes * 1_400_000
	n := (MaxPatchWork - len(object)) / perOperation // each adds an item at index 1, and takes it away at the end
	there := `{"op":"add","path":"/a/1","value":0},{"op":"remove","path":"/a/-1"}`
	if _, _, err := Patch(nil, object, repeated(there, n-1)); err != nil {
		t.Error(err)
	}
	_, _, err := Patch(nil, object, repeated(there, n+1))
	if !errors.Is(err, ErrUndecodable) || !strings.Contains(err.Error(), "2147483648 bytes") {
		t.Errorf("error %v, want one of the hook that names the limit", err)
	}
}

// A path through an object of 10,000 levels took a copy of the object at each.
func TestADeepPathTakesNoCopies(t *testing.T) {
	object := []byte(strings.Repeat(`{"a":`, 300) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", 300))
	patch := repeated(`{"op":"add","path":"`+strings.Repeat("/a", 300)+`","value":0}`, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := Patch(nil, object, patch); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("%d bytes were allocated for an object of 1 MiB", took)
	}
}

// spent is an allowance whose time is over after a number of looks.
type spent struct {
	Allowance

	looks int
}

func (s *spent) Err() error {
	if s.looks--; s.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func TestAPatchStopsWhenItsTimeIsOver(t *testing.T) {
	a := &spent{looks: 100}
	_, _, err := Patch(a, []byte(`{"a":[]}`), repeated(`{"op":"add","path":"/a/0","value":0}`, 10_000))
	if !errors.Is(err, ErrStopped) || !errors.Is(err, context.DeadlineExceeded) || a.looks != -1 {
		t.Errorf("error %v after %d looks too many", err, -a.looks-1)
	}
}

// A difference names the place of each of its operations: below a long name it was as long as the name times the items.
func TestADifferenceIsNotMuchLongerThanItsObjects(t *testing.T) {
	for name, test := range map[string]struct{ from, to string }{
		"a long name": {
			`{"` + strings.Repeat("n", 1<<18) + `":[` + strings.Repeat("0,", 10_000) + `0]}`,
			`{"` + strings.Repeat("n", 1<<18) + `":[` + strings.Repeat("1,", 10_000) + `1]}`,
		},
		"items that all change": {`{"a":{"b":[` + strings.Repeat("0,", 100_000) + `0]}}`, `{"c":1,"a":{"b":[` + strings.Repeat("1,", 100_000) + `1]}}`},
	} {
		patch, err := DiffPatch([]byte(test.from), []byte(test.to))
		if err != nil {
			t.Fatal(err)
		}
		if len(patch) > diffRoom+2*(len(test.from)+len(test.to)) {
			t.Errorf("%s: the difference has %d bytes, the objects %d and %d", name, len(patch), len(test.from), len(test.to))
		}
		patched, err := ApplyPatch([]byte(test.from), patch)
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := DiffPatch(patched.Raw, []byte(test.to)); rest != nil || err != nil {
			t.Errorf("%s: there is a difference left: %.100s, %v", name, rest, err)
		}
	}
}
