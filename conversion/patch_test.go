package conversion_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/portcullis-mesh/portcullis/conversion"
)

func TestApplyPatch(t *testing.T) {
	const pod = `{"kind":"Pod","spec":{"unknown":{"z":1.0,"a":1e3,"n":12345678901234567890,"m":9007199254740993},"list":[1,2,3],"nil":null}}`
	big := `{"a":"` + strings.Repeat("x", 3<<19-2) + `","b":1}` // Half of the bytes that operations may copy, with its quotes.
	twice := `[{"op":"copy","from":"/a","path":"/c"},{"op":"copy","from":"/a","path":"/d"}]`
	tests := []struct {
		name    string
		object  string
		patch   string
		want    string // Empty when nothing changes.
		failure error
	}{
		{"add, and other values keep their spelling", pod, `[{"op":"add","path":"/spec/b","value":1.50}]`,
			`{"kind":"Pod","spec":{"b":1.50,"list":[1,2,3],"nil":null,"unknown":{"z":1.0,"a":1e3,"n":12345678901234567890,"m":9007199254740993}}}`, nil},
		{"remove", `{"a":1,"b":2}`, `[{"op":"remove","path":"/a"}]`, `{"b":2}`, nil},
		{"replace", `{"a":1}`, `[{"op":"replace","path":"/a","value":{"b":null}}]`, `{"a":{"b":null}}`, nil},
		{"replace the whole object", `{"a":1}`, `[{"op":"replace","path":"","value":{"b":2}}]`, `{"b":2}`, nil},
		{"move", `{"a":1,"c":{}}`, `[{"op":"move","from":"/a","path":"/c/b"}]`, `{"c":{"b":1}}`, nil},
		{"copy", `{"a":[1]}`, `[{"op":"copy","from":"/a","path":"/b"}]`, `{"a":[1],"b":[1]}`, nil},
		{"append to an array", `{"a":[1]}`, `[{"op":"add","path":"/a/-","value":2}]`, `{"a":[1,2]}`, nil},
		{"a negative index counts from the end", `{"a":[1,2]}`, `[{"op":"replace","path":"/a/-1","value":3}]`, `{"a":[1,3]}`, nil},
		{"a test that holds", `{"a":[1]}`, `[{"op":"test","path":"/a","value":[1]},{"op":"remove","path":"/a"}]`, `{}`, nil},
		{"escaped names", `{"a/b":{"c~d":1}}`, `[{"op":"remove","path":"/a~1b/c~0d"}]`, `{"a/b":{}}`, nil},
		{"an integer becomes a fraction", `{"a":1}`, `[{"op":"replace","path":"/a","value":1.0}]`, `{"a":1.0}`, nil},
		{"an integer beyond int64 changes", `{"a":18446744073709551616}`,
			`[{"op":"replace","path":"/a","value":18446744073709551617}]`, `{"a":18446744073709551617}`, nil},
		{"copies up to the limit", big, twice, strings.Replace(big, `}`, strings.ReplaceAll(`,"c":x,"d":x}`, "x", big[5:3<<19+5]), 1), nil},

		{"no patch", pod, ``, "", nil},
		{"an empty patch", pod, `[]`, "", nil},
		{"a null patch", pod, `null`, "", nil},
		{"a test alone", pod, `[{"op":"test","path":"/kind","value":"Pod"}]`, "", nil},
		{"the same value", `{"a":1, "b":"<"}`, `[{"op":"replace","path":"/a","value":1}]`, "", nil},
		{"the same value in another spelling", `{"a":"é","f":1.0,"o":{"x":1,"y":2}}`,
			`[{"op":"replace","path":"/a","value":"\u00e9"},{"op":"replace","path":"/f","value":10e-1},{"op":"replace","path":"/o","value":{"y":2,"x":1}}]`, "", nil},
		{"there and back", `{"a":1}`, `[{"op":"add","path":"/b","value":1},{"op":"remove","path":"/b"}]`, "", nil},
		{"an empty patch of no object", ``, `[]`, "", nil},

		{"no JSON", pod, `{`, "", conversion.ErrUndecodable},
		{"no array", pod, `{"op":"remove","path":"/kind"}`, "", conversion.ErrUndecodable},
		{"an operation that is no object", pod, `[1]`, "", conversion.ErrUndecodable},
		{"base64", pod, `W10=`, "", conversion.ErrUndecodable},
		{"something behind", pod, `[] []`, "", conversion.ErrUndecodable},
		{"an undecodable patch of no object", ``, `{`, "", conversion.ErrUndecodable},

		{"a patch of no object", ``, `[{"op":"add","path":"/a","value":1}]`, "", conversion.ErrInapplicable},
		{"a patch of a null object", `null`, `[{"op":"add","path":"/a","value":1}]`, "", conversion.ErrInapplicable},
		{"a patch of a string", `"None"`, `[{"op":"add","path":"/a","value":1}]`, "", conversion.ErrInapplicable},
		{"a patch of an array", `[1]`, `[{"op":"remove","path":"/0"}]`, "", conversion.ErrInapplicable},
		{"an object becomes an array", pod, `[{"op":"replace","path":"","value":[]}]`, "", conversion.ErrInapplicable},
		{"a missing path", pod, `[{"op":"remove","path":"/metadata/labels"}]`, "", conversion.ErrInapplicable},
		{"a missing parent", pod, `[{"op":"add","path":"/metadata/labels","value":{}}]`, "", conversion.ErrInapplicable},
		{"an index beyond the end", pod, `[{"op":"add","path":"/spec/list/4","value":1}]`, "", conversion.ErrInapplicable},
		{"an index that is none", pod, `[{"op":"add","path":"/spec/list/x","value":1}]`, "", conversion.ErrInapplicable},
		{"a path into null", pod, `[{"op":"add","path":"/spec/nil/a","value":1}]`, "", conversion.ErrInapplicable},
		{"a test that does not hold", pod, `[{"op":"test","path":"/kind","value":"Job"}]`, "", conversion.ErrInapplicable},
		{"an unknown operation", pod, `[{"op":"merge","path":"/kind"}]`, "", conversion.ErrInapplicable},
		{"a null operation", pod, `[null]`, "", conversion.ErrInapplicable},
		{"a test of everything without a value", pod, `[{"op":"test","path":""}]`, "", conversion.ErrInapplicable},
		{"a replacement of everything by nothing", pod, `[{"op":"replace","path":""}]`, "", conversion.ErrInapplicable},
		{"more operations than are taken", pod, operations(conversion.MaxPatchOperations + 1), "", conversion.ErrUndecodable},
		{"copies beyond the limit", big, strings.Replace(twice, "]", `,{"op":"copy","from":"/b","path":"/e"}]`, 1), "", conversion.ErrInapplicable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object := []byte(test.object)
			got, err := conversion.ApplyPatch(object, []byte(test.patch))
			if !errors.Is(err, test.failure) || (err == nil) != (test.failure == nil) {
				t.Fatalf("error %v, want %v", err, test.failure)
			}
			if string(object) != test.object {
				t.Error("the object was written to")
			}
			switch {
			case err != nil:
				return
			case test.want == "" && (got.Changed || unsafe.SliceData(got.Raw) != unsafe.SliceData(object) || len(got.Raw) != len(object)):
				t.Errorf("Changed is %v, the object came back as %.80s", got.Changed, got.Raw)
			case test.want != "" && (!got.Changed || string(got.Raw) != test.want):
				t.Errorf("Changed is %v\n got %.1000s\nwant %.1000s", got.Changed, got.Raw, test.want)
			}
		})
	}
}

func TestDiffPatch(t *testing.T) {
	tests := []struct{ name, from, to, want string }{
		{"equal bytes", `{"a":[1,{"b":null}]}`, `{"a":[1,{"b":null}]}`, ``},
		{"equal values", `{"a":"<","b":1.0,"c":-0}`, " {\"c\": 0, \"b\":1.00,\n\"a\":\"\\u003c\"}", ``},
		{"the last of duplicate members counts", `{"a":1,"a":2}`, `{"a":2}`, ``},
		{"a member appears", `{}`, `{"a":{"b":[1.0,12345678901234567890]}}`, `[{"op":"add","path":"/a","value":{"b":[1.0,12345678901234567890]}}]`},
		{"a member goes", `{"a":1,"b":2}`, `{"b":2}`, `[{"op":"remove","path":"/a"}]`},
		{"a null appears", `{}`, `{"a":null}`, `[{"op":"add","path":"/a","value":null}]`},
		{"a null goes", `{"a":null}`, `{}`, `[{"op":"remove","path":"/a"}]`},
		{"a type changes", `{"a":[],"b":{},"c":null,"d":"1"}`, `{"a":{},"b":[],"c":false,"d":1}`,
			`[{"op":"replace","path":"/a","value":{}},{"op":"replace","path":"/b","value":[]},` +
				`{"op":"replace","path":"/c","value":false},{"op":"replace","path":"/d","value":1}]`},
		{"a boolean changes", `{"a":true}`, `{"a":false}`, `[{"op":"replace","path":"/a","value":false}]`},
		{"a number that a float64 cannot tell apart", `{"a":9007199254740992}`, `{"a":9007199254740993}`, `[{"op":"replace","path":"/a","value":9007199254740993}]`},
		{"an integer that an int64 cannot hold", `{"a":18446744073709551616}`, `{"a":18446744073709551617}`,
			`[{"op":"replace","path":"/a","value":18446744073709551617}]`},
		{"an integer becomes a fraction", `{"a":1}`, `{"a":1.0}`, `[{"op":"replace","path":"/a","value":1.0}]`},
		{"a number beyond float64", `{"a":1e999}`, `{"a":1e998}`, `[{"op":"replace","path":"/a","value":1e998}]`},
		{"deep inside", `{"a":{"b":[{"c":1}]}}`, `{"a":{"b":[{"c":2}]}}`, `[{"op":"replace","path":"/a/b/0/c","value":2}]`},
		{"names are escaped", `{"~":{"/":{"\"\n":{"":1}}},"~1":1}`, `{"~":{"/":{"\"\n":{"":2}}}}`,
			`[{"op":"replace","path":"/~0/~1/\"\n/","value":2},{"op":"remove","path":"/~01"}]`},
		{"an item at the front", `{"a":[2,3]}`, `{"a":[1,2,3]}`, `[{"op":"add","path":"/a/0","value":1}]`},
		{"an item at the end", `{"a":[1]}`, `{"a":[1,2]}`, `[{"op":"add","path":"/a/1","value":2}]`},
		{"an item in the middle", `{"a":[1,2,4]}`, `{"a":[1,2,3,4]}`, `[{"op":"add","path":"/a/2","value":3}]`},
		{"items go from the middle", `{"a":[1,2,3,4]}`, `{"a":[1,4]}`, `[{"op":"remove","path":"/a/2"},{"op":"remove","path":"/a/1"}]`},
		{"items go and change", `{"a":[1,2,3,4]}`, `{"a":[1,5,4]}`, `[{"op":"replace","path":"/a/1","value":5},{"op":"remove","path":"/a/2"}]`},
		{"an array is filled", `{"a":[]}`, `{"a":[1,2]}`, `[{"op":"add","path":"/a/0","value":1},{"op":"add","path":"/a/1","value":2}]`},
		{"an array is emptied", `{"a":[1,1]}`, `{"a":[]}`, `[{"op":"remove","path":"/a/1"},{"op":"remove","path":"/a/0"}]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := checkDiff(t, test.from, test.to)
			if want := strings.ReplaceAll(test.want, "\n", `\n`); string(got) != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

// checkDiff checks that a difference leads from one object to the other, and says how they are equal.
func checkDiff(t testing.TB, from, to string) []byte {
	t.Helper()
	patch, err := conversion.DiffPatch([]byte(from), []byte(to))
	if err != nil {
		t.Fatal(err)
	}
	patched, err := conversion.ApplyPatch([]byte(from), patch)
	if err != nil {
		t.Fatalf("the difference does not apply: %v\nfrom %q\n  to %q\n%s", err, from, to, patch)
	}
	if patched.Changed != (patch != nil) {
		t.Fatalf("Changed is %v after the difference %s", patched.Changed, patch)
	}
	rest, err := conversion.DiffPatch(patched.Raw, []byte(to))
	if err != nil || rest != nil {
		t.Fatalf("there is a difference left: %s, error %v\nfrom %q\n  to %q\n%s", rest, err, from, to, patch)
	}
	return patch
}

func TestDiffPatchRefuses(t *testing.T) {
	for _, document := range []string{``, `null`, `[]`, `"a"`, `{`, `{}{}`, `{"a":01}`, `{"a":` + nested(10000) + `}`} {
		if _, err := conversion.DiffPatch([]byte(document), []byte(`{}`)); err == nil {
			t.Errorf("from %.20s: no error", document)
		}
		if _, err := conversion.DiffPatch([]byte(`{}`), []byte(document)); err == nil {
			t.Errorf("to %.20s: no error", document)
		}
	}
}

// TestDiffPatchOfDeepObjects has one difference at the bottom: above the limit it is told as it is, below it a part of
// the object is replaced.
func TestDiffPatchOfDeepObjects(t *testing.T) {
	deep := func(depth int, leaf string) string {
		return strings.Repeat(`{"a":`, depth) + leaf + strings.Repeat("}", depth)
	}
	for _, depth := range []int{1, 63, 64, 65, 66, 9999} {
		patch := checkDiff(t, deep(depth, "1"), deep(depth, "2"))
		want := fmt.Sprintf(`"path":"%s"`, strings.Repeat("/a", min(depth, 64)))
		if !bytes.Contains(patch, []byte(want)) {
			t.Errorf("depth %d: %.200s", depth, patch)
		}
	}
}

func TestDiffPatchIsTheSameEachTime(t *testing.T) {
	from, to := []byte(`{"a":1,"b":1,"c":1,"d":1}`), []byte(`{"d":2,"c":2,"b":2,"a":2,"f":{"z":1,"y":1.0},"e":0}`)
	const want = `[{"op":"replace","path":"/a","value":2},{"op":"replace","path":"/b","value":2},{"op":"replace","path":"/c","value":2},` +
		`{"op":"replace","path":"/d","value":2},{"op":"add","path":"/e","value":0},{"op":"add","path":"/f","value":{"z":1,"y":1.0}}]`
	for range 20 {
		if got, err := conversion.DiffPatch(from, to); err != nil || string(got) != want {
			t.Fatalf("error %v\n got %s\nwant %s", err, got, want)
		}
	}
}

func TestDifferencesAreFoundAtAnyDepth(t *testing.T) {
	nested := func(depth int, value string) []byte {
		return []byte(`{"a":` + strings.Repeat(`[{"b":`, depth/2) + value + strings.Repeat(`}]`, depth/2) + `}`)
	}
	for _, depth := range []int{2, 60, 62, 64, 66, 68, 200, 9990} {
		from, to := nested(depth, `{"z":1,"y":[1.0]}`), nested(depth, `{"y":[1.00,2],"z":1}`)
		patch, err := conversion.DiffPatch(from, to)
		if err != nil || patch == nil {
			t.Fatalf("%d levels: patch %s, error %v", depth, patch, err)
		}
		p, err := conversion.ApplyPatch(from, patch)
		if err != nil || !p.Changed {
			t.Fatalf("%d levels: changed %v, error %v", depth, p.Changed, err)
		}
		if rest, err := conversion.DiffPatch(p.Raw, to); err != nil || rest != nil {
			t.Errorf("%d levels: rest %.1000s, error %v", depth, rest, err)
		}
		if patch, err := conversion.DiffPatch(from, nested(depth, `{"y":[1.00],"z":1}`)); err != nil || patch != nil {
			t.Errorf("%d levels: patch %.1000s, error %v", depth, patch, err)
		}
	}
}

// operations is a patch with n of them.
func operations(n int) string {
	return "[" + strings.Repeat(`{"op":"test","path":"/kind","value":"Pod"},`, n-1) + `{"op":"test","path":"/kind","value":"Pod"}]`
}

func TestAsManyOperationsAreTakenAsTheLimitSays(t *testing.T) {
	t.Parallel()
	if _, err := conversion.ApplyPatch([]byte(`{"kind":"Pod"}`), []byte(operations(conversion.MaxPatchOperations))); err != nil {
		t.Error(err)
	}
}

// TestCopiesOfCopiesStayWithinTheirLimit has each operation double the object.
func TestCopiesOfCopiesStayWithinTheirLimit(t *testing.T) {
	t.Parallel()
	var patch []string
	for i := range conversion.MaxPatchOperations {
		patch = append(patch, fmt.Sprintf(`{"op":"copy","from":"/a","path":"/a/c%d"}`, i))
	}
	_, err := conversion.ApplyPatch([]byte(`{"a":{"b":"x"}}`), []byte("["+strings.Join(patch, ",")+"]"))
	if !errors.Is(err, conversion.ErrInapplicable) {
		t.Errorf("got %v", err)
	}
}
