package conversion

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// worstObjects are objects of about n bytes of one kind of value each: the kinds that take most memory for their bytes.
func worstObjects(n int) map[string][]byte {
	items := func(item string) string { return `{"a":[` + strings.Repeat(item+",", n/(len(item)+1)) + item + `]}` }
	members := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, format+",", i)
		}
		return `{"a":{` + b.String() + `"":0}}`
	}
	all := map[string][]byte{}
	for name, object := range map[string]string{
		"empty objects":        items(`{}`),
		"empty arrays":         items(`[]`),
		"empty strings":        items(`""`),
		"numbers":              items(`0`),
		"fractions":            items(`0.5`),
		"nulls":                items(`null`),
		"objects of a member":  items(`{"a":0}`),
		"objects of a few":     items(`{"a":0,"b":"c","d":[],"e":{}}`),
		"objects of nine":      items(`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0}`),
		"arrays of an item":    items(`[0]`),
		"members":              members(`"%x":0`),
		"members with texts":   members(`"%x":""`),
		"members with objects": members(`"%x":{}`),
		"nested":               items(strings.Repeat(`{"a":`, 100) + "0" + strings.Repeat("}", 100)),
		"text":                 `{"a":"` + strings.Repeat("{,", n/2) + `"}`,
	} {
		all[name] = []byte(object)
	}
	return all
}

// inUse is how many bytes a value keeps in use.
func inUse(build func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(v)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// openAll reads a tree to its end.
func openAll(n *node) {
	children := n.elements()
	for i := range children {
		openAll(&children[i])
	}
}

func TestExtentsAreEstimatedHighEnough(t *testing.T) {
	for name, object := range worstObjects(1 << 19) {
		e := ExtentOf(object)
		untyped := inUseWithin(e.Untyped()*11/10, func() any {
			var content map[string]any
			if err := utiljson.Unmarshal(object, &content); err != nil {
				t.Error(err)
			}
			return content
		})
		tree := inUseWithin(e.Tree()*11/10, func() any {
			root, err := parseObject(object)
			if err != nil {
				t.Error(err)
			}
			openAll(&root)
			return &root
		})
		t.Logf("%-20s untyped %9d of %9d, tree %9d of %9d", name, untyped, e.Untyped(), tree, e.Tree())
		if untyped > e.Untyped()*11/10 || tree > e.Tree()*11/10 {
			t.Errorf("%s: untyped %d bytes of %d, tree %d of %d", name, untyped, e.Untyped(), tree, e.Tree())
		}
	}
}

// inUseWithin is inUse, of the first of ten times that is within a limit: how large a map becomes depends on its hash, which is
// another one for each map.
func inUseWithin(limit int64, build func() any) (n int64) {
	for range 10 {
		if n = inUse(build); n <= limit {
			break
		}
	}
	return n
}

func TestExtentsCountWhatIsThere(t *testing.T) {
	for document, want := range map[string]Extent{
		`{}`:                    {Bytes: 2, Values: 1, Empty: 1},
		`[]`:                    {Bytes: 2, Values: 1},
		`"a"`:                   {Bytes: 3, Values: 1},
		`{"a":1,"b":[1,2,{ }]}`: {Bytes: 21, Values: 6, Objects: 1, Empty: 1},
		`{"{,[":"{\"{\\","c":[{"d":[` + "\n" + `]}]}`: {Bytes: 28, Values: 5, Objects: 2},
	} {
		if got := exactExtent([]byte(document)); got.Values != want.Values || got.Objects != want.Objects || got.Empty != want.Empty {
			t.Errorf("%s: %+v, want %+v", document, got, want)
		}
	}
}

// A short document is counted by its commas and brackets alone, which may be too many, and never too few.
func TestExtentsOfShortDocuments(t *testing.T) {
	document := []byte(`{"a":"{{{,,,","b":[{},{"c":0}]}`)
	quick, exact := ExtentOf(document), exactExtent(document)
	if quick == exact || quick.Typed() < exact.Typed() || quick.Untyped() < exact.Untyped() || quick.Tree() < exact.Tree() {
		t.Errorf("%+v of %+v", quick, exact)
	}
	long := []byte(`{"a":"` + strings.Repeat("{,", 1<<20) + `"}`)
	if got := ExtentOf(long); got.Values != 2 || got.Objects != 1 {
		t.Errorf("a long one: %+v", got)
	}
}

// Whatever is cut off has an extent too.
func TestExtentsOfWhatIsNoDocument(t *testing.T) {
	for _, document := range []string{``, `{`, `[`, `"`, `"\`, `{"a`, `{"a":[`} {
		exactExtent([]byte(document))
	}
}
