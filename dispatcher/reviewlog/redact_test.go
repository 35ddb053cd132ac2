package reviewlog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/reviewlog"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestRedactionOfRandomObjects compares redaction, which copies the bytes around the values that it takes out, with redaction of the decoded object.
func TestRedactionOfRandomObjects(t *testing.T) {
	redacted := 0
	for seed := range uint64(citest.Rounds(2_000, 10_000, 200_000)) {
		random := rand.New(rand.NewPCG(seed, 1))
		object := randomObject(random, 5)

		got, want := decoded(t, reviewlog.Redact(object)), decoded(t, object)
		redactDecoded(want, true)

		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, %s: %s", seed, object, diff)
		}
		if strings.Contains(fmt.Sprint(got), reviewlog.Redacted) {
			redacted++
		}
	}
	if redacted == 0 {
		t.Error("no value was redacted")
	}
}

// TestDocumentsThatAreNoObjectsAreLeftOut has an object that is cut off after each of its bytes.
func TestDocumentsThatAreNoObjectsAreLeftOut(t *testing.T) {
	whole := `{"metadata":{"managedFields":[{}]},"data":{"a":"b"}}`
	documents := []string{"[]", `"a"`, whole + "}", whole + " {}"}
	for n := 1; n < len(whole); n++ {
		documents = append(documents, whole[:n])
	}
	for _, document := range documents {
		if got := string(reviewlog.Redact([]byte(document))); got != "null" {
			t.Errorf("%s: %s", document, got)
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	object := fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":"a","labels":{%s}},"spec":{"containers":[{"env":[%s]}]}}`,
		strings.Repeat(`"name":"value",`, 50_000)+`"a":"b"`, strings.Repeat(`{"name":"A","value":"b"},`, 50_000)+`{}`)
	b.SetBytes(int64(len(object)))
	b.ReportAllocs()
	for b.Loop() {
		reviewlog.Redact(object)
	}
}

func decoded(t *testing.T, object []byte) (content map[string]any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	if err := decoder.Decode(&content); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	return content
}

// randomObject is an object with names about which redaction has rules, and white space.
func randomObject(random *rand.Rand, depth int) []byte {
	names := []string{
		`metadata`, `annotations`, `managedFields`, `kubectl.kubernetes.io/last-applied-configuration`, `env`, `value`, `data`, `binaryData`, `stringData`,
		`spec`, `password`, `apiToken`, `api_key`, `SECRET`, `secretName`, `tokens`, `n\u0061me`, `passwor\u0064`, `ü`, ``,
	}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	out := []byte("{ ")
	for i, name := range names[:random.IntN(6)] {
		if i > 0 {
			out = append(out, ",\n"...)
		}
		out = fmt.Appendf(out, `"%s" :%s`, name, randomValue(random, depth))
	}
	return append(out, '}')
}

func randomValue(random *rand.Rand, depth int) []byte {
	switch n := random.IntN(10); {
	case n < 4 && depth > 0:
		return randomObject(random, depth-1)
	case n < 7 && depth > 0:
		out := []byte("[")
		for i := range random.IntN(4) {
			if i > 0 {
				out = append(out, ", "...)
			}
			out = append(out, randomValue(random, depth-1)...)
		}
		return append(out, ']')
	default:
		return []byte([]string{`"a"`, `""`, `"\"}{\\"`, `null`, `true`, `12345678901234567890`, `-1.5e3`}[random.IntN(7)])
	}
}

var secretName = regexp.MustCompile(`(?i)(password|passwd|token|secret|api_?key|private_?key|access_?key|credentials?)$`)

// redactDecoded takes the values out of a decoded object.
func redactDecoded(value any, whole bool) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			redactDecoded(item, false)
		}
	case map[string]any:
		for name, field := range v {
			_, isText := field.(string)
			nested, isObject := field.(map[string]any)
			switch items, isList := field.([]any); {
			case isText && secretName.MatchString(name):
				v[name] = reviewlog.Redacted
			case isObject && whole && (name == "data" || name == "binaryData" || name == "stringData"):
				for key := range nested {
					nested[key] = reviewlog.Redacted
				}
			case isObject && name == "metadata":
				if _, ok := nested["managedFields"]; ok {
					nested["managedFields"] = []any{}
				}
				if annotations, ok := nested["annotations"].(map[string]any); ok && annotations["kubectl.kubernetes.io/last-applied-configuration"] != nil {
					annotations["kubectl.kubernetes.io/last-applied-configuration"] = reviewlog.Redacted
				}
				redactDecoded(nested, false)
			case isList && name == "env":
				for _, item := range items {
					if variable, ok := item.(map[string]any); ok && variable["value"] != nil {
						variable["value"] = reviewlog.Redacted
					}
				}
				redactDecoded(items, false)
			default:
				redactDecoded(field, false)
			}
		}
	}
}
