package serve

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/check"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

func TestCheckFindsHooksWithoutAHost(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := readyFileOf(t, info)
	r := clitest.Execute(t, check.NewCommand(), nil, "--ready-file", ready)
	for deadline := time.Now().Add(2 * time.Minute); strings.Contains(r.Out, "judges nothing") && time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		r = clitest.Execute(t, check.NewCommand(), nil, "--ready-file", ready) // the first report of a dispatcher may be older than its first listing
	}
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

// servedInitializer is an initializer of hosts.
const servedInitializer = `
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: sidecars}
initializers:
- name: sidecar.example.com
  rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: sidecars}
spec: {configuration: sidecars, stage: initialize, stream: {}, hosts: [me], rotation: Immediate}
`

// TestCheckLooksAtInitializers: an initializer of a host needs a connected host. The mesh cannot see whether foreign
// controllers run.
func TestCheckLooksAtInitializers(t *testing.T) {
	t.Parallel()
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := readyFileOf(t, info)
	apply := func(documents string) {
		t.Helper()
		if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.Code != 0 {
			t.Fatal(r.Notes)
		}
	}
	says := func(command func() *cobra.Command, args []string, want ...string) { // in a moment: calls of a hook without a host wait that long
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(10 * time.Millisecond) {
			r := clitest.Execute(t, command(), nil, append(args, "--ready-file", ready)...)
			text := oneSpace(r.Out)
			missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.Contains(text, w) })
			if r.Code == 0 && len(missing) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("exit code %d, no %q in %s%s", r.Code, missing, text, r.Notes)
			}
		}
	}
	apply(podImage)
	says(check.NewCommand, nil,
		"ok every hook in force has a host or a webhook: 1 hooks; 1 of them are initializers of controllers, of which the mesh does not know whether they run")
	apply(podImage + servedInitializer)
	says(check.NewCommand, nil,
		"warn hook sidecar.example.com of InitializerConfiguration/sidecars has a host: none on dispatcher test, and it fails open: objects are created without it")
	says(configcli.NewExplain, []string{"hook", "sidecar.example.com"},
		"is called, and no host answers: objects that it covers are created without it", "stage initialize", "test InRotation no host")
	says(configcli.NewExplain, []string{"initconf", "sidecars"},
		"InitializerConfiguration/sidecars is in force everywhere, and not served")
}
