package archtest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTheImageIsBuiltOfAllSources: .dockerignore leaves everything out but the directories that it names.
func TestTheImageIsBuiltOfAllSources(t *testing.T) {
	const module = "github.com/portcullis-mesh/portcullis/"
	var kept []string
	for line := range strings.Lines(textOf(t, root+".dockerignore")) {
		if directory, found := strings.CutPrefix(strings.TrimSpace(line), "!"); found {
			kept = append(kept, directory)
		}
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"cmd/portcullis", module+"examples/imagepolicy").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		directory, ours := strings.CutPrefix(strings.TrimSpace(line), module)
		if !ours {
			continue
		}
		if !slices.ContainsFunc(kept, func(k string) bool { return directory == k || strings.HasPrefix(directory, k+"/") }) {
			t.Errorf(".dockerignore leaves out %s, which the programs need", directory)
		}
	}
}
