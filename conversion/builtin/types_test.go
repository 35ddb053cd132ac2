package builtin_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

func FuzzAnObjectIsOfTheKindThatItSays(f *testing.F) {
	f.Add(`{"kind":"K","apiVersion":"g/v"}`)
	f.Add(`{"metadata":{"kind":"x"},"kind":"K"}`)
	f.Add(`{"kind":null,"apiVersion":[]}`)
	c := builtin.New(builtin.Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		var whole struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := json.Unmarshal([]byte(raw), &whole); err != nil || whole.Kind == "" || strings.Count(whole.APIVersion, "/") > 1 {
			return
		}
		keys := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(raw), &keys); err != nil || keys["kind"] == nil || keys["apiVersion"] == nil || strings.Count(raw, "ind") > 1 {
			return // told by encoding/json in more ways than Kubernetes reads
		}
		kind := whole.APIVersion + " " + whole.Kind
		if got, err := c.Convert([]byte(raw), at(t, kind)); err != nil || string(got) != raw {
			t.Errorf("%q is not of kind %q: %s %v", raw, kind, got, err)
		}
	})
}
