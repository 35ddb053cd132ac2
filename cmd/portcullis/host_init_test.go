package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestANewHostPassesItsCases follows the step of host init that runs the cases by the program itself.
func TestANewHostPassesItsCases(t *testing.T) {
	citest.Gate(t, "compiles a host: 10 s of CPU time")
	clone, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PORTCULLIS", clone)
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "")
	t.Chdir(t.TempDir())
	steps, code := execute(t, "host", "init", "--lang", "go", "--mutating", "require-digests")
	if code != 0 {
		t.Fatal(steps)
	}
	t.Chdir("require-digests")
	ran := 0
	for line := range strings.Lines(steps) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "go work init "):
			run := exec.CommandContext(t.Context(), "bash", "-euc", line)
			run.Env = os.Environ()
			if said, err := run.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
		case strings.HasPrefix(line, "portcullis test "):
			if said, code := execute(t, commandLines(t, "the steps", line)[0][1:]...); code != 0 || !strings.Contains(said, "ok    cases.yaml") {
				t.Errorf("%s: exit code %d: %s", line, code, said)
			}
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("%d commands in:\n%s", ran, steps)
	}
}
