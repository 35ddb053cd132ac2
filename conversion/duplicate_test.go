package conversion

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

func TestDuplicate(t *testing.T) {
	many := func(last string) string {
		var b strings.Builder
		for i := range 3 * manyNames {
			fmt.Fprintf(&b, `"n%d":{},`, i)
		}
		return `{` + b.String() + last + `}`
	}
	for name, test := range map[string]struct{ document, want string }{
		"none":                                 {`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}`, ""},
		"at the top":                           {`{"a":1,"a":2}`, "a"},
		"deep":                                 {`{"spec":{"containers":[{},{"image":"a","image":"a"}]}}`, "spec.containers[1].image"},
		"in an array at the top":               {`[[],[{"a":1,"a":2}]]`, "[1][0].a"},
		"the first counts":                     {`{"a":{"x":1,"x":2},"a":2}`, "a.x"},
		"spelled with an escape":               {`{"a":1,"\u0061":2}`, "a"},
		"another case is another name":         {`{"a":1,"A":2}`, ""},
		"an empty name":                        {`{"b":{"":1,"":2}}`, "b."},
		"among many, the first of them":        {many(`"n0":1`), "n0"},
		"among many, the last of those before": {many(fmt.Sprintf(`"n%d":1`, manyNames-1)), fmt.Sprintf("n%d", manyNames-1)},
		"among many, one behind those":         {many(fmt.Sprintf(`"n%d":1`, 3*manyNames-1)), fmt.Sprintf("n%d", 3*manyNames-1)},
		"many, and none":                       {many(`"x":1`), ""},
		"no JSON":                              {`{"a":1,"a":2`, ""},
		"more than a document":                 {`{"a":1,"a":2} x`, ""},
		"nothing":                              {``, ""},
	} {
		if got := Duplicate([]byte(test.document)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Kubernetes' own decoder finds the same, in documents of few names.
func TestDuplicateIsWhatKubernetesFinds(t *testing.T) {
	found := 0
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		document := randomDocument(random, 4)
		if random.IntN(10) == 0 {
			document = document[:random.IntN(len(document)+1)]
		}
		var into any
		twice, err := kjson.UnmarshalStrict([]byte(document), &into)
		got := Duplicate([]byte(document))
		switch {
		case err != nil || len(twice) == 0:
			if got != "" {
				t.Fatalf("%s: found %q, Kubernetes does not (%v)", document, got, err)
			}
		case got == "" || !strings.Contains(twice[0].Error(), fmt.Sprintf("%q", got)):
			t.Fatalf("%s: found %q, Kubernetes %v", document, got, twice[0])
		default:
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d documents had any", found)
	}
}

func randomDocument(random *rand.Rand, depth int) string {
	if depth == 0 || random.IntN(4) == 0 {
		return []string{"1", `"x"`, "null", "true", "{}", "[]"}[random.IntN(6)]
	}
	var parts []string
	object := random.IntN(3) > 0
	for range random.IntN(4) {
		part := randomDocument(random, depth-1)
		if object {
			part = []string{`"a"`, `"b"`, `"c"`, `"d"`, `"\u0061"`, `"e"`}[random.IntN(6)] + ":" + part
		}
		parts = append(parts, part)
	}
	if object {
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// An object is looked through without being decoded.
func TestDuplicateTakesLittle(t *testing.T) {
	document := []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"c","image":"i","ports":[{"containerPort":80}]},`, 20_000) + `{}]}}`)
	allocations := testing.AllocsPerRun(5, func() {
		if path := Duplicate(document); path != "" {
			t.Error(path)
		}
	})
	if allocations > 20 {
		t.Errorf("%v allocations for a document of 60,000 objects", allocations)
	}
}
