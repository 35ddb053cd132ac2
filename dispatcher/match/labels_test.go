package match

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

func TestLabelsAreReadFromTheRawObject(t *testing.T) {
	for name, tc := range map[string]struct {
		raw   string
		found bool
		want  map[string]string
	}{
		"labels between other metadata":                      {`{"kind":"Pod","metadata":{"name":"x","labels":{"a":"1","b":""},"annotations":{}}}`, true, map[string]string{"a": "1", "b": ""}},
		"labels of other objects within are not its own":     {`{"spec":{"template":{"metadata":{"labels":{"no":"no"}}}},"metadata":{"ownerReferences":[{"labels":{"no":"no"}}],"labels":{"a":"1"}}}`, true, map[string]string{"a": "1"}},
		"white space everywhere":                             {" {\n\t\"metadata\" : { \"labels\" :\r\n{ \"a\" : \"1\" , \"b\" : \"2\" } } }", true, map[string]string{"a": "1", "b": "2"}},
		"escapes in keys and values":                         {`{"met\u0061data":{"l\u0061bels":{"a\"}":"\\\"{","\u00e9":"\ud83d\ude00"}}}`, true, map[string]string{`a"}`: `\"{`, "é": "😀"}},
		"brackets in strings":                                {`{"spec":"}]{[\"","x":["}"],"metadata":{"labels":{"a":"}"}}}`, true, map[string]string{"a": "}"}},
		"numbers and literals are skipped":                   {`{"a":-1.5e10,"b":true,"c":null,"d":[1,2],"metadata":{"labels":{"a":"1"}}}`, true, map[string]string{"a": "1"}},
		"null is the empty string":                           {`{"metadata":{"labels":{"a":null}}}`, true, map[string]string{"a": ""}},
		"one value that is no string and there are none":     {`{"metadata":{"labels":{"a":"1","b":2}}}`, true, nil},
		"labels that are no object":                          {`{"metadata":{"labels":["a"]}}`, true, nil},
		"labels that are null":                               {`{"metadata":{"labels":null}}`, true, nil},
		"metadata without labels":                            {`{"metadata":{}}`, true, nil},
		"metadata that is null":                              {`{"metadata":null}`, true, nil},
		"keys are case-sensitive":                            {`{"Metadata":{"labels":{"a":"1"}},"metadata":{"Labels":{"a":"1"}}}`, true, nil},
		"no metadata":                                        {`{"kind":"PodExecOptions","command":["sh"]}`, false, nil},
		"nothing at all":                                     {`{}`, false, nil},
		"what is behind the labels is not looked at":         {`{"metadata":{"labels":{"a":"1"},!!!`, true, map[string]string{"a": "1"}},
		"of metadata that is written twice the first counts": {`{"metadata":{"labels":{"a":"1"}},"metadata":{"labels":{"a":"2"}}}`, true, map[string]string{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, got, err := metadataLabels([]byte(tc.raw), free)
			if err != nil {
				t.Fatal(err)
			}
			if found != tc.found {
				t.Errorf("found %v, want %v", found, tc.found)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && len(tc.want)+len(got) > 0 {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoJSONIsAnErrorAndNotAnObjectWithoutLabels(t *testing.T) {
	for _, raw := range []string{
		``, ` `, `null`, `[]`, `"x"`, `{`, `{"metadata"`, `{"metadata":`, `{"metadata":{`, `{"metadata":{"labels":{"a":"1"`,
		`{"metadata":{"labels":{"a":"1"]`, `{"metadata":{"labels":{"a" "1"}}}`, `{"metadata":{"labels":{a:"1"}}}`, `{"a":1 "b":2}`,
		`{"a":[[[`, `{"a":"`, `{"a":"\`, `{"a":}`, `{"a":,"b":1}`, `{1:2}`, `{"metadata":{"labels":{"a":"\x"}}}`,
	} {
		if _, got, err := metadataLabels([]byte(raw), free); err == nil {
			t.Errorf("%q: labels %v and no error", raw, got)
		}
	}
}

func TestDepthCostsNoStack(t *testing.T) {
	const depth = 1 << 20
	raw := `{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `,"metadata":{"labels":{"a":"1"}}}`
	if _, got, err := metadataLabels([]byte(raw), free); err != nil || got["a"] != "1" {
		t.Errorf("labels %v, error %v", got, err)
	}
}

// FuzzLabels compares with what apimachinery reads from the same bytes, where Kubernetes would accept them.
func FuzzLabels(f *testing.F) {
	f.Add([]byte(`{"kind":"Pod","metadata":{"name":"x","labels":{"a":"1","b":null}},"spec":{}}`))
	f.Add([]byte(`{"spec":{"a":["\"}",{}]},"metadata":{"labels":{"\u0061":"\ud800","b":1}}}`))
	f.Add([]byte(`{"metadata":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		found, got, err := metadataLabels(raw, free)
		var content map[string]any
		strict, invalid := kjson.UnmarshalStrict(raw, &content)
		if invalid != nil || len(strict) > 0 || content == nil {
			return // no JSON object, or one with duplicate keys: only must not panic
		}
		if err != nil {
			t.Fatalf("valid JSON is refused: %v", err)
		}
		if _, want := content["metadata"]; found != want {
			t.Errorf("found %v, want %v", found, want)
		}
		want := (&unstructured.Unstructured{Object: content}).GetLabels()
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	})
}

// free is memory without a bound.
func free(int) error { return nil }
