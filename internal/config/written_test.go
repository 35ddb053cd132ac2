package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

func TestReadWritten(t *testing.T) {
	const file = "# one\na:\n  b: [1,\n    {c: 2}]\n---\n# nothing\n---\n\n{\"d\":\n 1.0}\n{\"e\": 2}\n---\nf: [\n---\ng: 1\n"
	all := config.ReadWritten("f.yaml", []byte(file))
	var got []string
	for _, w := range all {
		if len(w.Problems) > 0 {
			got = append(got, strings.ReplaceAll(w.Problems.Err().Error(), "\n", " "))
			continue
		}
		got = append(got, string(w.JSON))
	}
	want := []string{`{"a":{"b":[1,{"c":2}]}}`, "{\"d\":\n 1.0}", `{"e": 2}`, "f.yaml:13: not valid YAML: did not find expected node content", `{"g":1}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("documents (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		document int
		path     string
		line     int
		has      bool
	}{
		{0, "", 2, true}, {0, "a.b[1].c", 4, true}, {0, "a.b[1].x", 4, false}, {0, "x.y", 2, false},
		{1, "", 9, true}, {1, "d", 9, true}, {2, "e", 11, false}, {4, "g", 15, true},
	} {
		w := &all[tt.document]
		if line, has := w.LineOf(tt.path), w.Has(tt.path); line != tt.line || has != tt.has {
			t.Errorf("document %d, field %q: line %d (%t), want %d (%t)", tt.document, tt.path, line, has, tt.line, tt.has)
		}
	}
}
