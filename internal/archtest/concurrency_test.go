package archtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/archtest"
)

func TestConcurrentPackagesHaveAGoroutineAChannelOrALock(t *testing.T) {
	sources := map[string]string{
		"none":    "package p\nimport \"time\"\nvar At = time.Now\nfunc F(n int) int { return -n }",
		"go":      "package p\nfunc F() { go func() {}() }",
		"channel": "package p\ntype T struct{ c chan int }",
		"send":    "package p\nfunc F() { c <- 1 }",
		"receive": "package p\nfunc F() int { return <-c }",
		"select":  "package p\nfunc F() { select {} }",
		"lock":    "package p\nimport \"sync\"\nvar L sync.Mutex",
		"atomic":  "package p\nimport a \"sync/atomic\"\nvar L a.Bool",
		"group":   "package p\nimport \"golang.org/x/sync/errgroup\"\nvar G errgroup.Group",
	}
	dir := t.TempDir()
	g := &archtest.Graph{Module: "example.com/m", Packages: map[string]*archtest.Package{}}
	for name, source := range sources {
		file := name + ".go"
		if err := os.WriteFile(filepath.Join(dir, file), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		g.Packages["example.com/m/"+name] = &archtest.Package{Dir: dir, GoFiles: []string{file}}
		g.Packages["example.com/m/tested/"+name] = &archtest.Package{Dir: dir, GoFiles: []string{"none.go"}, TestGoFiles: []string{file}}
		g.Packages["example.com/m/xtested/"+name] = &archtest.Package{Dir: dir, XTestGoFiles: []string{file}}
		g.Packages["example.com/other/"+name] = &archtest.Package{Dir: dir, GoFiles: []string{file}}
	}
	var want []string
	for _, kind := range []string{"", "tested/", "xtested/"} {
		for _, name := range []string{"atomic", "channel", "go", "group", "lock", "receive", "select", "send"} {
			want = append(want, "example.com/m/"+kind+name)
		}
	}

	got, err := archtest.Concurrent(g)

	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("concurrent packages: %v (-want +got):\n%s", err, diff)
	}
}

func TestConcurrentPackagesOfSourcesThatCannotBeReadAreAnError(t *testing.T) {
	g := &archtest.Graph{Module: "example.com/m", Packages: map[string]*archtest.Package{
		"example.com/m/p": {Dir: t.TempDir(), GoFiles: []string{"gone.go"}},
	}}
	if got, err := archtest.Concurrent(g); err == nil {
		t.Errorf("concurrent packages = %v, want an error", got)
	}
}
