package build_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
)

func TestFindNamesTheRootsOfBothModules(t *testing.T) {
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for dir, module := range map[string]string{
		tree.Root: "module github.com/portcullis-mesh/portcullis\n",
		tree.E2E:  "module github.com/portcullis-mesh/portcullis/test/e2e\n",
	} {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(data), module) {
			t.Errorf("%s/go.mod does not begin with %q", dir, module)
		}
	}
}

func TestBuildsEtcdAgainWithoutWork(t *testing.T) {
	citest.Gate(t, "builds etcd")
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := builtEtcd(t, tree)
	after := builtEtcd(t, tree)
	if !os.SameFile(before, after) {
		t.Error("a program that is up to date was written again, which costs each start seconds")
	}
}

func builtEtcd(t *testing.T, tree build.Tree) os.FileInfo {
	t.Helper()
	file, err := tree.Etcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
