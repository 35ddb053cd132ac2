package schemas

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// root is the directory of the repository.
const root = "../.."

func TestTheFilesAreCurrent(t *testing.T) {
	files, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the types say (%v): run `make schemas`", name, err)
		}
	}
	for _, pattern := range []string{"deploy/chart/portcullis/crds/*", "deploy/schemas/*/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			name, err := filepath.Rel(root, file)
			if err != nil || files[name] == nil {
				t.Errorf("%s is of no kind that there is: remove it (%v)", file, err)
			}
		}
	}
}

// TestTheInstallationAndItsPageHaveEachKind looks for the rights to read objects and to write their statuses, the health in Argo CD, and the short names.
func TestTheInstallationAndItsPageHaveEachKind(t *testing.T) {
	rights := []string{`\bPLURAL[,\]]`, `\bPLURAL/status[,\]]`, `- PLURAL\.portcullis\.dev\n`}
	for file, patterns := range map[string][]string{
		"deploy/custom-resources-rbac.yaml":           rights,
		"deploy/chart/portcullis/templates/rbac.yaml": rights,
		"deploy/gitops/argocd-health.yaml":            {`health\.portcullis\.dev_KIND:`},
		"docs/configuration-store.md":                 {"\n\\| KIND \\| `SHORT`"},
		"docs/configuration-reference.md":             {`\bKIND\b`},
	} {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range kinds.Resources() {
			for _, pattern := range patterns {
				pattern = strings.NewReplacer("PLURAL", r.Plural, "KIND", r.Kind, "SHORT", r.Short[0]).Replace(pattern)
				if !regexp.MustCompile(pattern).Match(data) {
					t.Errorf("%s has no %s", file, pattern)
				}
			}
		}
	}
}
