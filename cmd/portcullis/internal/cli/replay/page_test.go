package replay_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/replay"
)

// TestThePageShowsItsOutput runs the first command of docs/replay.md.
func TestThePageShowsItsOutput(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/replay.md")
	if err != nil {
		t.Fatal(err)
	}
	_, labelTeam, _ := strings.Cut(inForce, "---\n")
	labelTeam, _, _ = strings.Cut(labelTeam, "---\n")
	lines := strings.Split(log(), "\n")
	lines[0] = strings.Replace(lines[0], `"name":"web-0","namespace"`, `"name":"web-0","labels":{"team":"shop"},"namespace"`, 1)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("policies", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join("policies", "label-team.yaml"): labelTeam, "audit.log": strings.Join(append(lines[:3], lines[4]), "\n"),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const command = "portcullis replay audit.log --config policies --enforce --cluster prod-1"
	if !strings.Contains(string(page), "```sh\n"+command+"\n```") {
		t.Fatal("the page has another command")
	}
	r := clitest.Execute(t, replay.NewCommand(), nil, strings.Fields(command)[2:]...)
	if r.Code != cli.ExitDenied || !strings.Contains(string(page), "```\n"+r.Out+"```") {
		t.Errorf("exit code %d, and the page has another output than\n%s%s", r.Code, r.Out, r.Notes)
	}
}
