package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

func TestExplainTellsOfAnObjectOfTheMesh(t *testing.T) {
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	r := clitest.Execute(t, configcli.NewExplain(), nil, "route", "policy", "--ready-file", ready)
	for _, want := range []string{"HookRoute/policy is in force everywhere\n", "etcd, generation 1", " ago) by " + devAPIServer, "test  has it  judges new reviews by revision ", "created HookRoute/policy"} {
		if !strings.Contains(r.Out, want) || r.Code != 0 {
			t.Errorf("no %q in %s%s", want, r.Out, r.Notes)
		}
	}
	var told struct {
		Object struct {
			Kind string `json:"kind"`
		} `json:"object"`
		Verdict string `json:"verdict"`
		Changes []struct {
			Actor string `json:"actor"`
		} `json:"changes"`
	}
	r = clitest.Execute(t, configcli.NewExplain(), nil, "HookRoute/policy", "-o", "json", "--ready-file", ready)
	if err := json.Unmarshal([]byte(r.Out), &told); err != nil || told.Object.Kind != "HookRoute" || told.Verdict == "" || told.Changes[0].Actor != devAPIServer {
		t.Errorf("%v: %s", err, r.Out)
	}
	r = clitest.Execute(t, configcli.NewExplain(), nil, "HookRoute/policy", "-o", "yaml", "--ready-file", ready)
	if !strings.Contains(r.Out, "\nobject:\n") && !strings.HasPrefix(r.Out, "changes:\n") {
		t.Errorf("as YAML: %s", r.Out)
	}
	clitest.Execute(t, configcli.NewExplain(), nil, "route", "none", "--ready-file", ready).Ends(t, cli.ExitDenied, "there is no HookRoute/none")
}
