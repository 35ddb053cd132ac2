package schemas

import (
	"os"
	"path/filepath"
	"testing"
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
