package archtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEachMutantHasItsPiece fails when a change of code has left a mutant behind, which no test would look for then.
func TestEachMutantHasItsPiece(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("..", "..", "tools", "mutants", "mutants.toml"))
	if err != nil {
		t.Fatal(err)
	}
	entries := strings.Split(string(table), "\n[[mutant]]\n")[1:]
	if len(entries) < 100 {
		t.Fatalf("%d mutants", len(entries))
	}
	for _, entry := range entries {
		fields := map[string]string{}
		for line := range strings.Lines(entry) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
			if text, err := strconv.Unquote(value); err == nil {
				fields[name] = text
			}
		}
		code, err := os.ReadFile(filepath.Join("..", "..", fields["file"]))
		if err != nil {
			t.Errorf("%s: %v", fields["name"], err)
		} else if n := strings.Count(string(code), fields["from"]); n != 1 || fields["from"] == "" {
			t.Errorf("%s: its piece of %s stands there %d times, want once", fields["name"], fields["file"], n)
		}
	}
}
