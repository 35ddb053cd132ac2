package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

// TestANullMeansTheSameInEachSource puts null into the place of each value of a document, one at a time. A file has the meaning of the document that an API
// server makes of it.
func TestANullMeansTheSameInEachSource(t *testing.T) {
	server := newAPIServer(t)
	documents := map[string]string{
		"hooks": strings.Replace(fullHooks, "KIND", "Validating", 1), "initializers": fullInitializers, "params": fullParams,
		"policy": `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: a, labels: {a: b}}
spec:
  resources: [pods]
  exclude: {namespaces: [kube-system], labels: [a]}
  parameters: [{name: most, default: 3, byCluster: {a: 4, b: 5}}, {name: list, default: [a, b]}]
  mode: warn
  modeByCluster: {a: enforce, b: shadow}
  validations: [{expression: 'true', message: none}]
`,
	}
	for kind := range hookPolicies {
		documents[kind] = hookPolicy(kind)
	}
	data, err := os.ReadFile(root + "/internal/config/kinds/testdata/documents.json")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var tc struct {
			Name     string          `json:"name"`
			Document json.RawMessage `json:"document"`
		}
		if err := json.Unmarshal(line, &tc); err != nil {
			t.Fatal(err)
		}
		if len(tc.Document) < 10_000 { // others repeat a value
			documents[tc.Name] = string(tc.Document)
		}
	}
	decoder, tried := config.NewDecoder(apiserver.Validator{}), map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		document := documents[name]
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		for path := range withNulls(object, "", func(any) {}) {
			if path == "" || path == ".apiVersion" || path == ".kind" || path == ".metadata" || path == ".metadata.name" {
				continue
			}
			at := fmt.Sprint(object["kind"], path)
			if tried[at] {
				continue
			}
			tried[at] = true
			raw, _ := json.Marshal(object)
			want := "refused"
			if stored, errs := server.stores(t, raw); errs == nil {
				want = meaning(decoder, stored)
			}
			if diff := cmp.Diff(want, meaning(decoder, raw)); diff != "" {
				t.Errorf("%s, %s is null (-as a custom resource +as a file):\n%s", name, path, diff)
			}
		}
	}
	if len(tried) < 300 {
		t.Errorf("%d nulls were tried", len(tried))
	}
}

// withNulls yields the path of each value while it is null.
func withNulls(v any, path string, set func(any)) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		set(nil)
		if !yield(path) {
			return
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				withNulls(v[key], path+"."+key, func(x any) { v[key] = x })(yield)
			}
		case []any:
			for i := range v {
				withNulls(v[i], fmt.Sprintf("%s[%d]", path, i), func(x any) { v[i] = x })(yield)
			}
		}
	}
}

// meaning is the text of the object that the decoder reads.
func meaning(d *config.Decoder, document []byte) string {
	objects, problems := d.Decode("f", document)
	if problems.Err() != nil || len(objects) != 1 {
		return "refused"
	}
	o := objects[0]
	text, _ := yaml.Marshal([]any{o.Key, o.Validating, o.Mutating, o.Route, o.Cluster, o.Role, o.Short, o.Params, o.Policy, o.Binding, o.MutatingPolicy, o.MutatingBinding})
	return string(text)
}
