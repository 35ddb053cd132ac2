package kinds

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/documents.json")

// documents are the documents of TestValidate as JSON, one a line. The tests of internal/schemas show them to the schemas of API
// servers.
type documents struct{ bytes.Buffer }

func (d *documents) add(t *testing.T, name string, doc any) {
	t.Helper()
	kind := reflect.TypeOf(doc).Elem().Name()
	meta := TypeMeta{APIVersion: APIVersion, Kind: kind}
	switch doc := doc.(type) {
	case *HookRoute:
		doc.TypeMeta = meta
	case *Cluster:
		doc.TypeMeta = meta
	case *Role:
		doc.TypeMeta = meta
	}
	if err := json.NewEncoder(d).Encode(map[string]any{"name": name, "document": doc}); err != nil {
		t.Fatal(err)
	}
}

func (d *documents) compare(t *testing.T) {
	const file = "testdata/documents.json"
	if *update {
		if err := os.WriteFile(file, d.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(want, d.Bytes()) {
		t.Errorf("%s has other documents (%v): run this test with -update", file, err)
	}
}
