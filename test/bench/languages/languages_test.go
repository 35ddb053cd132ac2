package languages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/test/bench/languages"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsNotBuiltIsSaid(t *testing.T) {
	root := t.TempDir()
	built, missing := languages.Built(root)
	if len(built) > 0 || len(missing) != len(scenario.Languages()) || !strings.HasPrefix(missing[0], "go skipped") {
		t.Errorf("built %v, missing %q", built, missing)
	}
	for _, name := range []string{"bare", "imagepolicy", "webhook"} {
		program(t, root, name, "exit 0")
	}
	if built, _ := languages.Built(root); len(built) != 1 || built[0] != "go" {
		t.Errorf("built %v, want go", built)
	}
}

func TestAProgramThatEndsSaysWhy(t *testing.T) {
	root := t.TempDir()
	program(t, root, "imagepolicy", "echo no port is free; exit 3")
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	_, err = languages.Start(t.Context(), languages.Options{
		Root: root, Scenario: scenario.Policy("go", scenario.Small, false), Contender: report.Host, Keys: keys,
	})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no port is free") {
		t.Errorf("got %v", err)
	}
}

// program writes a program of Go.
func program(t *testing.T, root, name, script string) {
	t.Helper()
	directory := filepath.Join(root, ".tmp", "bench", "go")
	if err := os.MkdirAll(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
