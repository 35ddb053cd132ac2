package builtin_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is the least that makes a Pod, as a user writes it.
const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default"},"spec":{"containers":[{"name":"main","image":"main:1"}]}}`

// asServed is an object as an API server of our types' version would send it: decoded, defaulted and encoded by it.
func asServed(t testing.TB, object string) []byte {
	t.Helper()
	c := builtin.New(builtin.Options{StayedRaw: func(reason string) { t.Fatalf("%s: %s", reason, object) }})
	const mark = "builtin.example.com/mark"
	marked, _, err := c.Apply([]byte(object), []byte(`[{"op":"add","path":"/metadata/finalizers","value":["`+mark+`"]}]`))
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := c.Apply(marked, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// corpusObjects are the objects of the corpus as JSON, by the name of their file.
func corpusObjects(t testing.TB) map[string][]byte {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", "shared", "corpus", "objects", "*.yaml"))
	if len(files) == 0 {
		t.Skip("no ../shared/corpus/objects beside the module")
	}
	objects := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects[filepath.Base(file)] = raw
	}
	return objects
}

// at is a kind as people write it: "apps/v1 Deployment".
func at(t testing.TB, kind string) schema.GroupVersionKind {
	t.Helper()
	version, name, _ := strings.Cut(kind, " ")
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return gv.WithKind(name)
}

func equalJSON(t testing.TB, want, got []byte) {
	t.Helper()
	if diff := cmp.Diff(tree(t, want), tree(t, got)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func tree(t testing.TB, raw []byte) any {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// apply applies a patch as JSON.
func apply(t testing.TB, object, patch []byte) []byte {
	t.Helper()
	p, err := conversion.ApplyPatch(object, patch)
	if err != nil {
		t.Fatalf("%v: %s to %s", err, patch, object)
	}
	return p.Raw
}
