package conversion_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/portcullis-mesh/portcullis/conversion"
)

func TestAPatchMayNotTakeAwayWhatMakesAnObject(t *testing.T) {
	const widget = `{"kind":"Widget","apiVersion":"example.com/v1","size":1.50}`
	cases := map[string]struct {
		object, patch string
		want          string // Empty for a refusal.
	}{
		"another kind":                            {widget, `[{"op":"replace","path":"/kind","value":"Gadget"}]`, `{"apiVersion":"example.com/v1","kind":"Gadget","size":1.50}`},
		"no apiVersion":                           {widget, `[{"op":"remove","path":"/apiVersion"}]`, `{"kind":"Widget","size":1.50}`},
		"no kind":                                 {widget, `[{"op":"remove","path":"/kind"}]`, ``},
		"an empty kind":                           {widget, `[{"op":"replace","path":"/kind","value":""}]`, ``},
		"a number for a kind":                     {widget, `[{"op":"replace","path":"/kind","value":1}]`, ``},
		"an apiVersion that cannot be parsed":     {widget, `[{"op":"replace","path":"/apiVersion","value":"a/b/c"}]`, ``},
		"a list for an apiVersion":                {widget, `[{"op":"replace","path":"/apiVersion","value":[]}]`, ``},
		"a kind in another case alone":            {widget, `[{"op":"move","from":"/kind","path":"/Kind"}]`, ``},
		"a second kind in another case":           {widget, `[{"op":"add","path":"/Kind","value":1}]`, ``},
		"a number out of range":                   {widget, `[{"op":"add","path":"/list","value":[{"n":1e999}]}]`, ``},
		"a number with too many digits":           {widget, `[{"op":"add","path":"/n","value":` + strings.Repeat("9", 400) + `}]`, ``},
		"a large number":                          {widget, `[{"op":"add","path":"/n","value":1e300}]`, `{"apiVersion":"example.com/v1","kind":"Widget","n":1e300,"size":1.50}`},
		"an object that had no kind needs none":   {`{"a":1}`, `[{"op":"add","path":"/b","value":2}]`, `{"a":1,"b":2}`},
		"an object that was none need not be one": {`{"kind":1}`, `[{"op":"add","path":"/b","value":2}]`, `{"b":2,"kind":1}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, changed, err := conversion.Raw{}.Apply([]byte(tc.object), []byte(tc.patch))
			if tc.want == "" {
				if err == nil || errors.Is(err, conversion.ErrUndecodable) || got != nil || changed {
					t.Errorf("got %s, changed %v, error %v", got, changed, err)
				}
				return
			}
			if err != nil || !changed || string(got) != tc.want {
				t.Errorf("got %s, changed %v, error %v, want %s", got, changed, err, tc.want)
			}
		})
	}
}

// TestOnlyWhatKubernetesCannotReadIsRefused compares the cheap way to tell with the serializers of Kubernetes.
func TestOnlyWhatKubernetesCannotReadIsRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	readable := func(object []byte) bool {
		if _, err := serializer.DefaultMetaFactory.Interpret(object); err != nil {
			return false
		}
		_, _, err := unstructured.UnstructuredJSONScheme.Decode(object, nil, &unstructured.Unstructured{})
		return err == nil
	}
	names := []string{"kind", "Kind", "apiVersion", "APIVersion", "a", "b"}
	values := []string{`"a"`, `"a/b"`, `"a/b/c"`, `""`, `null`, `1`, `1e400`, `{}`, `[]`, `[{"n":-1e309}]`}
	member := func() string {
		return `"` + names[random.IntN(len(names))] + `":` + values[random.IntN(len(values))]
	}
	var refused, admitted int
	for range 5000 {
		object := `{"kind":"K",` + member() + `,` + member() + `}`
		patch := fmt.Sprintf(`[{"op":"add","path":"/%s","value":%s}]`, names[random.IntN(len(names))], values[random.IntN(len(values))])
		p, err := conversion.ApplyPatch([]byte(object), []byte(patch))
		if err != nil {
			t.Fatalf("%s to %s: %v", patch, object, err)
		}
		want := p.Changed && readable([]byte(object)) && !readable(p.Raw)
		_, _, err = conversion.Raw{}.Apply([]byte(object), []byte(patch))
		if (err != nil) != want {
			t.Fatalf("%s to %s: error %v, want one: %v", patch, object, err, want)
		}
		if want {
			refused++
		} else {
			admitted++
		}
	}
	if refused < 300 || admitted < 300 {
		t.Errorf("a lopsided comparison: %d refused, %d admitted", refused, admitted)
	}
}

func TestARequestWithoutAnObjectTakesNoPatchButAnEmptyOne(t *testing.T) {
	for patch, want := range map[string]error{
		``: nil, `[]`: nil, `null`: nil,
		`[{"op":"add","path":"/a","value":1}]`:         conversion.ErrInapplicable,
		`[{"op":"test","path":"/a","value":1}]`:        conversion.ErrInapplicable,
		`[{"op":"replace","path":"","value":{"a":1}}]`: conversion.ErrInapplicable,
		`{`: conversion.ErrUndecodable,
	} {
		got, changed, err := conversion.Raw{}.Apply(nil, []byte(patch))
		if !errors.Is(err, want) || got != nil || changed {
			t.Errorf("%s: got %s, changed %v, error %v, want %v", patch, got, changed, err, want)
		}
	}
}
