package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// source is where a host has its policy.
type source struct{ directory, policy string }

func sources() map[string]source {
	return map[string]source{
		"go":         {"imagepolicy", "policy.go"},
		"python":     {"imagepolicy-python", "policy.py"},
		"typescript": {"imagepolicy-typescript", "src/policy.ts"},
		"java":       {"imagepolicy-java", "src/main/java/com/example/imagepolicy/Policy.java"},
		"rust":       {"imagepolicy-rust", "src/policy.rs"},
	}
}

// TestTheHostsShareTheirFiles: each has a copy, which `portcullis host init` writes.
func TestTheHostsShareTheirFiles(t *testing.T) {
	for _, name := range []string{"mesh.yaml", "cases.yaml"} {
		want := read(t, "imagepolicy", name)
		for language, s := range sources() {
			if read(t, s.directory, name) != want {
				t.Errorf("%s: %s is not that of Go: copy it", language, name)
			}
		}
	}
}

// TestThePoliciesAreWrittenAlike: they have the same functions in the same order, by their comments, with the same texts in
// them.
func TestThePoliciesAreWrittenAlike(t *testing.T) {
	inOrder := []string{
		"he host with its hooks.", `"imagepolicy.example.com"`, `"team-label.example.com"`,
		"enies a Pod with an image that is not named by digest.", `"@sha256:"`, "images are named by digest here: ", `"has no digest"`,
		"he images of all containers of a Pod, each after the path of its field.", "ontainers",
		"abels a Pod that has no team with its namespace.", "team",
	}
	for language, s := range sources() {
		rest := read(t, s.directory, s.policy)
		for _, text := range inOrder {
			var found bool
			if _, rest, found = strings.Cut(rest, text); !found {
				t.Errorf("%s: the policy does not say %q, or not where the others do", language, text)
				break
			}
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
