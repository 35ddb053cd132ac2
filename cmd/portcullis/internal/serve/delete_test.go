package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

func TestDeleteRemovesWhatApplyMade(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	ready := readyFileOf(t, info)
	run := func(cmd *cobra.Command, args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, cmd, nil, append(args, "--ready-file", ready)...)
	}
	role := "---\napiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: r}\nspec: {role: viewer, identities: [me]}\n"
	file := clitest.Write(t, "hooks.yaml", role+"---\n"+strings.Replace(appliedHooks, "GROUP", "apps", 1))
	if r := run(configcli.NewApply(), "-f", file); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	dry := run(configcli.NewDelete(), "-f", file, "--dry-run")
	want := "ValidatingWebhookConfiguration/policy would be removed (dry run)\nHookRoute/policy would be removed (dry run)\nRole/r would be removed (dry run)\n"
	if dry.Code != 0 || dry.Out != want {
		t.Errorf("a dry run: exit code %d: %s%s", dry.Code, dry.Out, dry.Notes)
	}
	if r := run(configcli.NewDelete(), "-f", file, "--expect", "1"); r.Code != cli.ExitError || !strings.Contains(r.Notes, "the version of one object, and these are 3") {
		t.Errorf("--expect: %+v", r)
	}
	r := run(configcli.NewDelete(), "-f", file, "--wait")
	if r.Code != 0 || r.Out != strings.ReplaceAll(want, "would be removed (dry run)", "is being removed") {
		t.Fatalf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	if left := gone(t, run); left != "" {
		t.Errorf("there is still %s", left)
	}
	run(configcli.NewDelete(), "-f", file).Ends(t, cli.ExitDenied, "Error: there is no ValidatingWebhookConfiguration/policy")
	run(configcli.NewDelete(), "-f", file, "--ignore-not-found").Ends(t, 0)
}

// gone waits until the removed objects are gone, and returns those that stay.
func gone(t *testing.T, run func(*cobra.Command, ...string) clitest.Result) (left string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if left = run(configcli.NewGet(), "-o", "name").Out; left == "" {
			return ""
		}
	}
	return left
}

func TestDeleteRemovesSeveralNamesAndAllThatAreThere(t *testing.T) {
	ready := withStore(t)
	run := func(cmd *cobra.Command, in string, args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, cmd, strings.NewReader(in), append(args, "--ready-file", ready)...)
	}
	role := "---\napiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: NAME}\nspec: {role: viewer, identities: [me]}\n"
	three := strings.Replace(role, "NAME", "a", 1) + strings.Replace(role, "NAME", "b", 1) + strings.Replace(role, "NAME", "c", 1)
	if r := run(configcli.NewApply(), three, "-f", "-"); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	r := run(configcli.NewDelete(), "", "role", "a", "x", "b")
	r.Ends(t, cli.ExitDenied, "Error: there is no Role/x")
	if r.Out != "Role/a is being removed\nRole/b is being removed\n" {
		t.Errorf("it says %q", r.Out)
	}
	if r := run(configcli.NewDelete(), "", "role.portcullis.dev/c"); r.Code != 0 || r.Out != "Role/c is being removed\n" {
		t.Errorf("by the name that get prints: %+v", r)
	}
}

func TestWhatIsNotAskedOfTheMesh(t *testing.T) {
	nowhere := []string{"--server", "127.0.0.1:1", "--ca", "x", "--cert", "x", "--key", "x"}
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), append(nowhere, "-f", "-", "--dry-run=client")...)
	if want := "ValidatingWebhookConfiguration/policy is valid (client dry run)\nHookRoute/policy is valid (client dry run)\n"; r.Code != 0 || r.Out != want {
		t.Errorf("apply: %+v", r)
	}
	r = clitest.Execute(t, configcli.NewDelete(), strings.NewReader(documents), append(nowhere, "-f", "-", "--dry-run=client")...)
	if want := "ValidatingWebhookConfiguration/policy would be removed (client dry run)\n"; r.Code != 0 || !strings.HasPrefix(r.Out, want) {
		t.Errorf("delete: %+v", r)
	}
	clitest.Execute(t, configcli.NewDelete(), nil).Fails(t, "say which object")
	clitest.Execute(t, configcli.NewDelete(), nil, "all").Fails(t, "say which object")
	clitest.Execute(t, configcli.NewDelete(), nil, "vwc").Fails(t, "say which object")
	clitest.Execute(t, configcli.NewDelete(), nil, "vwc", "a", "-f", "x").Fails(t, "not by both")
	bad := strings.Replace(documents, "webhooks:", "webhoks:", 1)
	clitest.Execute(t, configcli.NewApply(), strings.NewReader(bad), "-f", "-", "--dry-run=client").Ends(t, cli.ExitDenied, "standard input:4", "webhoks")
}

func TestDescribeIsExplain(t *testing.T) {
	ready := withStore(t)
	root := &cobra.Command{Use: "portcullis", SilenceUsage: true}
	root.AddCommand(configcli.NewExplain())
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{"describe", "hr", "sample-images", "--ready-file", ready})
	if code := cli.Run(t.Context(), root); code != 0 || !strings.HasPrefix(out.String(), "HookRoute/") {
		t.Errorf("exit code %d: %s", code, &out)
	}
}
