package policies_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// TestEachFolderIsAPolicyWithCasesAndAPage: the policy has the name of its folder, and refuses nothing yet.
func TestEachFolderIsAPolicyWithCasesAndAPage(t *testing.T) {
	for _, name := range folders(t) {
		if diff := cmp.Diff([]string{"README.md", "cases.yaml", "policy.yaml"}, names(t, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
			continue
		}
		if p := read(t, name); p.Short.Metadata.Name != name || p.Short.Spec.Mode != kinds.ModeShadow {
			t.Errorf("%s: the policy is %s in mode %q, want the name of the folder, in shadow", name, p.Short.Metadata.Name, p.Short.Spec.Mode)
		}
		if page := text(t, name, "README.md"); !regexp.MustCompile("(?s)^# " + name + "\n.*It stops.*Exceptions.*Parameters").MatchString(page) {
			t.Errorf("%s: its page must say what it stops, with what exceptions, by which parameters", name)
		}
	}
}

// TestEachPolicyIsInstalledAndListed: the page has a row for each, and the kustomization installs all.
func TestEachPolicyIsInstalledAndListed(t *testing.T) {
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| \[([\w-]+)\]\(([\w-]+)\) \|`).FindAllStringSubmatch(text(t, "README.md"), -1) {
		if row[1] == row[2] {
			listed = append(listed, row[1])
		}
	}
	if diff := cmp.Diff(folders(t), listed); diff != "" {
		t.Errorf("README.md (-folders +rows):\n%s", diff)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal([]byte(text(t, "kustomization.yaml")), &kustomization); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range folders(t) {
		files = append(files, name+"/policy.yaml")
	}
	if diff := cmp.Diff(files, kustomization.Resources); diff != "" {
		t.Errorf("kustomization.yaml (-folders +resources):\n%s", diff)
	}
}

// folders are the policies, in order.
func folders(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(names(t, "."), func(name string) bool { return filepath.Ext(name) != "" })
}

// names are the files and folders in a folder, in order.
func names(t *testing.T, folder string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func text(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// read is the policy of a folder.
func read(t *testing.T, folder string) config.Object {
	t.Helper()
	objects, problems := configtest.Decode(folder, []byte(text(t, folder, "policy.yaml")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if len(objects) != 1 || objects[0].Short == nil {
		t.Fatalf("%s: the file must be one Policy", folder)
	}
	return objects[0]
}
