package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/check"
	"github.com/portcullis-mesh/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/internal/cli/config"
)

func TestCheckFindsHooksWithoutAHost(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := info.file(t)
	r := clitest.Execute(t, check.NewCommand(), nil, "--ready-file", ready)
	if r.Code != 0 || !strings.Contains(r.Out, "  ok   the mesh answers API servers at ") || !strings.Contains(r.Out, "  ok   every hook in force has a host") {
		t.Errorf("a mesh without hooks: exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
	documents := strings.NewReplacer("GROUP", "apps", "hosts: [me]", "hosts: [me], rotation: Immediate").Replace(appliedHooks)
	if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	r = clitest.Execute(t, check.NewCommand(), nil, "--ready-file", ready, "-o", "json")
	var told struct {
		Success bool `json:"success"`
		Checks  []struct {
			Category    string `json:"category"`
			Description string `json:"description"`
			Result      string `json:"result"`
			Hint        string `json:"hint"`
		} `json:"checks"`
	}
	if err := json.Unmarshal([]byte(r.Out), &told); err != nil || r.Code != cli.ExitDenied || told.Success {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, c := range told.Checks {
		want := "success"
		if c.Category == "hooks" {
			want = "error"
		}
		if c.Result != want || c.Result == "error" && (c.Hint == "" || c.Description != "hook policy.example.com of ValidatingWebhookConfiguration/policy has a host") {
			t.Errorf("%+v", c)
		}
	}
}
