package match

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
)

func TestLabelsAreReadFromTheRawObject(t *testing.T) {
	for name, tc := range map[string]struct {
		raw   string
		found bool
		want  map[string]string
	}{
		"labels between other metadata":                     {`{"kind":"Pod","metadata":{"name":"x","labels":{"a":"1","b":""},"annotations":{}}}`, true, map[string]string{"a": "1", "b": ""}},
		"labels of other objects within are not its own":    {`{"spec":{"template":{"metadata":{"labels":{"no":"no"}}}},"metadata":{"ownerReferences":[{"labels":{"no":"no"}}],"labels":{"a":"1"}}}`, true, map[string]string{"a": "1"}},
		"white space everywhere":                            {" {\n\t\"metadata\" : { \"labels\" :\r\n{ \"a\" : \"1\" , \"b\" : \"2\" } } }", true, map[string]string{"a": "1", "b": "2"}},
		"escapes in keys and values":                        {`{"met\u0061data":{"l\u0061bels":{"a\"}":"\\\"{","\u00e9":"\ud83d\ude00"}}}`, true, map[string]string{`a"}`: `\"{`, "é": "😀"}},
		"brackets in strings":                               {`{"spec":"}]{[\"","x":["}"],"metadata":{"labels":{"a":"}"}}}`, true, map[string]string{"a": "}"}},
		"numbers and literals are skipped":                  {`{"a":-1.5e10,"b":true,"c":null,"d":[1,2],"metadata":{"labels":{"a":"1"}}}`, true, map[string]string{"a": "1"}},
		"null is the empty string":                          {`{"metadata":{"labels":{"a":null}}}`, true, map[string]string{"a": ""}},
		"one value that is no string and there are none":    {`{"metadata":{"labels":{"a":"1","b":2}}}`, true, nil},
		"labels that are no object":                         {`{"metadata":{"labels":["a"]}}`, true, nil},
		"labels that are null":                              {`{"metadata":{"labels":null}}`, true, nil},
		"metadata without labels":                           {`{"metadata":{}}`, true, nil},
		"metadata that is null":                             {`{"metadata":null}`, true, nil},
		"keys are case-sensitive":                           {`{"Metadata":{"labels":{"a":"1"}},"metadata":{"Labels":{"a":"1"}}}`, true, nil},
		"no metadata":                                       {`{"kind":"PodExecOptions","command":["sh"]}`, false, nil},
		"nothing at all":                                    {`{}`, false, nil},
		"of duplicate metadata the last counts":             {`{"metadata":{"labels":{"a":"1","b":"1"}},"metadata":{"labels":{"a":"2"}}}`, true, map[string]string{"a": "2"}},
		"metadata without labels behind metadata with them": {`{"metadata":{"labels":{"a":"1"}},"metadata":{}}`, true, nil},
		"of duplicate labels the last count":                {`{"metadata":{"labels":{"a":"1","b":"1"},"labels":{"a":"2"}}}`, true, map[string]string{"a": "2"}},
		"of a duplicate label the last value counts":        {`{"metadata":{"labels":{"a":"1","a":"2"}}}`, true, map[string]string{"a": "2"}},
		"a string behind a number of the same name":         {`{"metadata":{"labels":{"a":1,"\u0061":"2"}}}`, true, map[string]string{"a": "2"}},
		"a number behind a string of the same name":         {`{"metadata":{"labels":{"a":"1","a":2}}}`, true, nil},
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
		`{"metadata":{"labels":{"a":"1"},!!!`,
		`{"a":[[[`, `{"a":"`, `{"a":"\`, `{"a":}`, `{"a":,"b":1}`, `{1:2}`, `{"metadata":{"labels":{"a":"\x"}}}`,
	} {
		if _, got, err := metadataLabels([]byte(raw), free); err == nil {
			t.Errorf("%q: labels %v and no error", raw, got)
		}
	}
}

// FuzzLabels compares with the labels that apimachinery reads from the same bytes, with duplicate members too.
func FuzzLabels(f *testing.F) {
	for _, raw := range []string{
		`{"kind":"Pod","metadata":{"name":"x","labels":{"a":"1","b":null}},"spec":{}}`,
		`{"spec":{"a":["\"}",{}]},"metadata":{"labels":{"\u0061":"\ud800","b":1}}}`,
		`{"metadata":[]}`,
		`{"metadata":{"labels":{"a":"1"}},"spec":{},"metadata":{"labels":{"b":1,"b":"2"},"labels":null,"labels":{"a":"3"}}}`,
		`{"metadata":{"labels":{"a":"1"}},"metadata":null}`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(checkLabels)
}

// TestLabelsOfAnythingAreThoseThatKubernetesReads is FuzzLabels over objects in which names come again and again.
func TestLabelsOfAnythingAreThoseThatKubernetesReads(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := [][]string{{"metadata", "met\\u0061data", "kind"}, {"labels", "l\\u0061bels", "name"}, {"a", "b", "\\u0061"}}
	var object func(depth int) string
	object = func(depth int) string {
		if depth == len(names) || random.IntN(8) == 0 {
			return []string{`"x"`, `"y"`, `"x"`, `null`, `1`, `[]`, `{}`}[random.IntN(7)]
		}
		members := make([]string, random.IntN(4))
		for i := range members {
			members[i] = `"` + names[depth][random.IntN(len(names[depth]))] + `":` + object(depth+1)
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	for range 50_000 {
		checkLabels(t, []byte(object(0)))
	}
}

// TestReadersDifferOverDuplicateLabels: a reader with a Go type merges duplicates, and a reader without replaces them. Hosts have Go types, and API
// servers have them for built-in kinds. So no reading is right for all, and package bridge refuses duplicate fields.
func TestReadersDifferOverDuplicateLabels(t *testing.T) {
	raw := []byte(`{"metadata":{"labels":{"a":"1"}},"metadata":{"labels":{"b":"2"}}}`)
	_, got, err := metadataLabels(raw, free)
	if diff := cmp.Diff(map[string]string{"b": "2"}, got); diff != "" || err != nil {
		t.Errorf("labels (-want +got), error %v:\n%s", err, diff)
	}
	for name, unmarshal := range map[string]func([]byte, any) error{
		"encoding/json": json.Unmarshal, "sigs.k8s.io/json": kjson.UnmarshalCaseSensitivePreserveInts,
	} {
		var pod corev1.Pod
		if err := unmarshal(raw, &pod); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, pod.Labels); diff != "" {
			t.Errorf("%s reads other labels of a Pod (-want +got):\n%s", name, diff)
		}
	}
}

// checkLabels holds metadataLabels against Kubernetes' reading of an object without a type.
func checkLabels(t *testing.T, raw []byte) {
	t.Helper()
	found, got, err := metadataLabels(raw, free)
	var content map[string]any
	invalid := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content)
	switch {
	case invalid != nil || content == nil:
		return // Not everything is looked at.
	case err != nil:
		t.Fatalf("%q is refused: %v", raw, err)
	}
	if _, want := content["metadata"]; found != want {
		t.Errorf("%q: found %v, want %v", raw, found, want)
	}
	want := (&unstructured.Unstructured{Object: content}).GetLabels()
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		t.Errorf("%q: labels (-want +got):\n%s", raw, diff)
	}
}

// free is memory without a bound.
func free(int) error { return nil }
