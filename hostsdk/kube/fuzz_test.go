package kube_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

// FuzzDifference: a patch between any two objects applies to the one and makes the other, as Kubernetes reads objects.
func FuzzDifference(f *testing.F) {
	f.Add(`{"a":[1,2,{"name":"x"}]}`, `{"a":[{"name":"x","y":null},1.0]}`)
	f.Add(`{"a/b":{"~":""}}`, `{"a/b":{"~":{"":9007199254740993}}}`)
	f.Add(`{"a":1,"a":{"b":2}}`, `{"a":{"b":"\ud800"}}`)
	f.Fuzz(func(t *testing.T, from, to string) {
		for _, object := range []string{from, to} {
			if !json.Valid([]byte(object)) || !strings.HasPrefix(strings.TrimSpace(object), "{") {
				t.Skip("no object")
			}
		}
		response, err := kube.Difference(request(hosttest.Create(from)), []byte(to))
		if err != nil {
			t.Fatal(err)
		}
		got := []byte(from)
		if len(response.Patch) > 0 {
			got = apply(t, got, response.Patch)
		}
		if diff := cmp.Diff(untyped(t, []byte(to)), untyped(t, got)); diff != "" {
			t.Fatalf("%s\n%s", response.Patch, diff)
		}
	})
}
