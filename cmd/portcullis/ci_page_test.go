package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestThePageAboutCIShowsItsOutputs runs the commands of docs/ci.md in one shell: the commands of the page, and then its recipes, which find the denial.
func TestThePageAboutCIShowsItsOutputs(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		citest.Lacks(t, "bash is not installed")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "ci.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, shown := tourOf(string(page))
	var steps []string
	for _, found := range regexp.MustCompile(`(?m)^ *(?:- run: |- |entry: )(portcullis .*)$`).FindAllStringSubmatch(string(page), -1) {
		step := found[1]
		if strings.HasPrefix(strings.TrimSpace(found[0]), "entry: ") {
			step += " deploy/web.yaml" // as pre-commit adds it
		}
		steps = append(steps, step)
		script += "echo '" + tourMark + "'\n" + step + "\necho code=$?\n"
	}
	if len(steps) != 8 {
		t.Errorf("%d commands in recipes, want 8: %q", len(steps), steps)
	}
	outputs := strings.Split(runTour(t, script), tourMark+"\n")
	if len(outputs) != 1+len(shown)+len(steps) {
		t.Fatalf("the shell printed %d outputs:\n%s", len(outputs)-1, outputs)
	}
	for i, lines := range shown {
		if missing := missingLine(lines, outputs[i+1]); missing != "" {
			t.Errorf("the page shows %q in:\n%s", missing, outputs[i+1])
		}
	}
	for i, step := range steps {
		code := "code=0"
		if strings.Contains(step, " review ") {
			code = "code=1"
		}
		if output := outputs[1+len(shown)+i]; !strings.HasSuffix(strings.TrimSpace(output), code) {
			t.Errorf("%s ends without %s:\n%s", step, code, output)
		}
	}
}
