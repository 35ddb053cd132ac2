package conversion_test

import (
	"errors"
	"testing"

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
