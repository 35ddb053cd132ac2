package archtest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImagesAreBuiltOfAllSources: a .dockerignore leaves everything out but the directories that it names.
func TestImagesAreBuiltOfAllSources(t *testing.T) {
	const module = "github.com/portcullis-mesh/portcullis/"
	for program, file := range map[string]string{
		"cmd/portcullis": ".dockerignore", "examples/imagepolicy": "examples/imagepolicy/Dockerfile.dockerignore",
	} {
		var kept []string
		for line := range strings.Lines(textOf(t, root+file)) {
			if directory, found := strings.CutPrefix(strings.TrimSpace(line), "!"); found {
				kept = append(kept, directory)
			}
		}
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			directory, ours := strings.CutPrefix(strings.TrimSpace(line), module)
			if !ours {
				continue
			}
			if !slices.ContainsFunc(kept, func(k string) bool { return directory == k || strings.HasPrefix(directory, k+"/") }) {
				t.Errorf("%s leaves out %s, which %s needs", file, directory, program)
			}
		}
	}
}
