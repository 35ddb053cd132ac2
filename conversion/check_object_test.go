package conversion

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

func TestCheckObject(t *testing.T) {
	many := func(last string) string {
		var b strings.Builder
		for i := range 3 * manyNames {
			fmt.Fprintf(&b, `"n%d":{},`, i)
		}
		return `{` + b.String() + last + `}`
	}
	for name, test := range map[string]struct{ document, want string }{
		"none":                                 {`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":1}]}`, ""},
		"at the top":                           {`{"a":1,"a":2}`, `duplicate field "a"`},
		"deep":                                 {`{"spec":{"containers":[{},{"image":"a","image":"a"}]}}`, `duplicate field "spec.containers[1].image"`},
		"the first counts":                     {`{"a":{"x":1,"x":2},"a":2}`, `duplicate field "a.x"`},
		"spelled with an escape":               {`{"a":1,"\u0061":2}`, `duplicate field "a"`},
		"another case is another name":         {`{"a":1,"A":2}`, ""},
		"an empty name":                        {`{"b":{"":1,"":2}}`, `duplicate field "b."`},
		"an empty name at the top":             {`{"":1,"":2}`, `duplicate field ""`},
		"names that are not UTF-8 are one":     {"{\"\xff\":1,\"\xfe\":2}", "duplicate field \"\ufffd\""},
		"among many, the first of them":        {many(`"n0":1`), `duplicate field "n0"`},
		"among many, the last of those before": {many(fmt.Sprintf(`"n%d":1`, manyNames-1)), fmt.Sprintf(`duplicate field "n%d"`, manyNames-1)},
		"among many, one behind those":         {many(fmt.Sprintf(`"n%d":1`, 3*manyNames-1)), fmt.Sprintf(`duplicate field "n%d"`, 3*manyNames-1)},
		"many, and none":                       {many(`"x":1`), ""},
		"white space around it":                {"\n {} ", ""},
		"cut off":                              {`{"a":1,"a":2`, "malformed JSON: unexpected end"},
		"something behind it":                  {`{"a":1},"userInfo":{}`, `malformed JSON: unexpected ','`},
		"a byte order mark":                    {"\xef\xbb\xbf{}", "not a JSON object"},
		"an array":                             {`[{}]`, "not a JSON object"},
		"null":                                 {`null`, "not a JSON object"},
		"nothing":                              {``, "not a JSON object"},
		"as deep as a review takes it":         {nest(maxDepth - reviewDepth), ""},
		"deeper than a review takes it":        {nest(maxDepth - reviewDepth + 1), "malformed JSON: nested deeper"},
	} {
		err := CheckObject([]byte(test.document))
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// nest is an object of n levels.
func nest(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }

// Kubernetes' own decoder finds the same, in documents of few names.
func TestDuplicateFieldsAreThoseThatKubernetesFinds(t *testing.T) {
	found := 0
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		document := `{"x":` + randomDocument(random, 4) + `}`
		if random.IntN(10) == 0 {
			document = document[:random.IntN(len(document)+1)]
		}
		var into any
		twice, err := kjson.UnmarshalStrict([]byte(document), &into)
		got := CheckObject([]byte(document))
		switch {
		case err != nil || len(twice) == 0:
			if (got == nil) != (err == nil) {
				t.Fatalf("%s: found %v, Kubernetes %v", document, got, err)
			}
		case got == nil || got.Error() != twice[0].Error():
			t.Fatalf("%s: found %v, Kubernetes %v", document, got, twice[0])
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
func TestCheckObjectTakesLittle(t *testing.T) {
	document := []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"c","image":"i","ports":[{"containerPort":80}]},`, 20_000) + `{}]}}`)
	allocations := testing.AllocsPerRun(5, func() {
		if err := CheckObject(document); err != nil {
			t.Error(err)
		}
	})
	if allocations > 20 {
		t.Errorf("%v allocations for a document of 60,000 objects", allocations)
	}
}
