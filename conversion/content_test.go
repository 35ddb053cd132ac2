package conversion

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// contentSeeds are documents in which decoders of JSON differ, or could.
func contentSeeds() []string {
	return []string{
		`{}`, ` {"a" : [ ] , "b":{ } } `, `{"a":1,"a":2,"A":3}`, `{"a":{"b":1},"a":{"c":2}}`, `null`, `[]`, `"a"`, `7`, ``, ` `, `{`, `{"a"`, `{"a":}`, `{"a":1,}`,
		`{"a":1}x`, `{"a":1}{}`, `{"a":tru}`, `{"a":nul}`, `{a:1}`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":'b'}`, "{\"a\":\"\n\"}", "{\"a\":\"\x00\"}", `{"a":"\x"}`,
		`{"n":0}`, `{"n":-0}`, `{"n":1e3}`, `{"n":1E+2}`, `{"n":1.0}`, `{"n":-1.5e-3}`, `{"n":9223372036854775807}`, `{"n":9223372036854775808}`,
		`{"n":-9223372036854775808}`, `{"n":-9223372036854775809}`, `{"n":1e400}`, `{"n":-1e400}`, `{"n":1e-400}`, `{"n":01}`, `{"n":+1}`, `{"n":.5}`, `{"n":1.}`,
		`{"n":-}`, `{"n":1e}`, `{"n":0x1}`, `{"n":NaN}`, `{"n":12345678901234567890123}`, `{"n":[1,2.5,"3",true,false,null,{"a":[[]]}]}`,
		`{"t":"\u00e9\n\t\"\\\/"}`, `{"t":"\ud83d\ude00"}`, `{"t":"\ud83d"}`, `{"t":"\ude00\ud83d"}`, "{\"t\":\"\xff\xfe\"}", "{\"\xff\":1,\"\xfe\":2}", `{"\u0061":1,"a":2}`,
		`{"t":"` + strings.Repeat("long ", 400) + `"}`, `{"` + strings.Repeat("n", 300) + `":1}`, `{"t":` + strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990) + `}`,
		`{"t":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, "\ufeff{}",
	}
}

// checkContent compares Content with its original.
func checkContent(t *testing.T, document []byte) {
	t.Helper()
	got, longest, err := Content(document)
	want, wantErr := contentSlowly(document)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%.200q: error = %v, want %v", document, err, wantErr)
	}
	if !reflect.DeepEqual(got, want) { // cmp.Diff takes exponential time in the depth
		t.Fatalf("%.200q: %.500v, want %.500v", document, got, want)
	}
	if err != nil {
		if bound, ok := Bound(document); ok {
			t.Fatalf("%.200q: Bound = %v, of a document that is refused", document, bound)
		}
		return
	}
	least := longestReader{left: len(document) + 1}
	if !least.read(got) || longest.Or(least.Longest) != longest {
		t.Fatalf("%.200q: longest = %v, want %v at least", document, longest, least.Longest)
	}
	checkBound(t, document, got, least.Longest)
	if r := (contentReader{Scanner: Scanner{data: document}}); r.Next() == '{' { // the fast form has read it, not the original
		if r.content(); r.Err() != nil {
			t.Errorf("%.200q: the scanner refuses it: %v", document, r.Err())
		}
	}
}

// checkBound compares Bound and Value with the content of a document.
func checkBound(t *testing.T, document []byte, content map[string]any, least Longest) {
	t.Helper()
	bound, ok := Bound(document)
	if want := content != nil && utf8.Valid(document); ok != want {
		t.Fatalf("%.200q: it has a bound: %t, want %t", document, ok, want)
	}
	if !ok {
		return
	}
	if bound.Or(least) != bound {
		t.Fatalf("%.200q: Bound = %v, want %v at least", document, bound, least)
	}
	if value := Value(document); !reflect.DeepEqual(value, any(content)) {
		t.Fatalf("%.200q: Value = %.500v, want %.500v", document, value, content)
	}
}

func TestContentIsThatOfKubernetes(t *testing.T) {
	for _, document := range contentSeeds() {
		checkContent(t, []byte(document))
		checkContent(t, append([]byte("   "), document...)[3:]) // with bytes of others before and behind
		checkContent(t, append([]byte(document), "{}x"...)[:len(document)])
	}
}

func TestRandomContentIsThatOfKubernetes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		document, err := json.Marshal(map[string]any{"a": randomContent(random, 4), "b": randomContent(random, 4)})
		if err != nil {
			t.Fatal(err)
		}
		checkContent(t, document)
		if len(document) > 2 {
			document[random.IntN(len(document))] = "\x00 \"\\,:{}[]0-e.ntu\xff"[random.IntN(18)]
		}
		checkContent(t, document)
	}
}

// randomContent is a value of any type.
func randomContent(random *rand.Rand, depth int) any {
	switch n := random.IntN(8); {
	case depth > 0 && n < 2:
		members := map[string]any{}
		for range random.IntN(5) {
			members[randomText(random)] = randomContent(random, depth-1)
		}
		return members
	case depth > 0 && n < 4:
		items := []any{}
		for range random.IntN(5) {
			items = append(items, randomContent(random, depth-1))
		}
		return items
	case n == 4:
		return int64(random.Uint64())
	case n == 5:
		return random.NormFloat64()
	case n == 6:
		return []any{true, false, nil}[random.IntN(3)]
	default:
		return randomText(random)
	}
}

func randomText(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(12) {
		b.WriteRune([]rune{'a', 'b', '"', '\\', '<', '\n', 'é', '\u2028', '😀', 0xfffd}[random.IntN(10)])
	}
	return b.String()
}

// TestLongestBoundsAllValues has documents of which each part is the longest once.
func TestLongestBoundsAllValues(t *testing.T) {
	for document, want := range map[string]Longest{
		`{}`: {}, `{"":1}`: {1, 0}, `{"name":[]}`: {1, 4}, `{"a":"text","b":[1,2,3]}`: {3, 4}, `{"a":{"b":{"c":1,"d":2,"e":3}}}`: {3, 1},
		`{"a":[[],[[1,2]]]}`: {2, 1}, `{"a":["\u00e9"]}`: {1, 2}, `{"a":["\ud800"]}`: {1, 3}, `{"a":[{"b":"longer"}],"c":-1.5,"d":null,"e":true}`: {4, 6},
	} {
		content, got, err := Content([]byte(document))
		if err != nil || got != want || LongestOf(content) != want {
			t.Errorf("%s: longest = %v, and %v decoded, want %v (error %v)", document, got, LongestOf(content), want, err)
		}
	}
	for name, unknown := range map[string]any{"a type that JSON lacks": []any{int32(1)}, "very many values": []any{make([]any, maxCounted)}} {
		if got := LongestOf(unknown); got != unknownLongest() {
			t.Errorf("%s: longest = %v", name, got)
		}
	}
	if got, want := (Longest{1, 2}).Or(Longest{2, 1}), (Longest{2, 2}); got != want {
		t.Errorf("of both: %v, want %v", got, want)
	}
}

// FuzzContent compares Content with its original.
func FuzzContent(f *testing.F) {
	for _, document := range contentSeeds() {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) { checkContent(t, document) })
}

// TestContentKeepsNothingOfTheDocument: the document may be changed afterwards.
func TestContentKeepsNothingOfTheDocument(t *testing.T) {
	document := []byte(`{"a":"text","b":["other"]}`)
	got, _, err := Content(document)
	if err != nil {
		t.Fatal(err)
	}
	for i := range document {
		document[i] = 'x'
	}
	if diff := cmp.Diff(map[string]any{"a": "text", "b": []any{"other"}}, got); diff != "" {
		t.Error(diff)
	}
}
