package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	certscli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/certs"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	clustercli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/cluster"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
)

func TestOnlyConnectionFlagsOfAToolHaveVariables(t *testing.T) {
	root := newRootCommand()
	apply, _, err := root.Find([]string{"apply"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PORTCULLIS_SERVER", "mesh.example.com:8444")
	t.Setenv("PORTCULLIS_DRY_RUN", "true")
	t.Setenv("PORTCULLIS_ACKNOWLEDGE", "danger-leases")
	if err := apply.PreRunE(apply, nil); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"server": "mesh.example.com:8444", "dry-run": "none", "acknowledge": "[]"} {
		if got := apply.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %q, want %q", flag, got, want)
		}
	}
}

func TestOneSettingsFileServesAllCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte("server: mesh:8444\nca: ca.crt\ncert: c.crt\nkey: c.key\ncluster: prod-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PORTCULLIS_SETTINGS", file)
	for _, path := range [][]string{
		{"apply"}, {"diff"}, {"get"}, {"explain"}, {"delete"}, {"review"}, {"serve-stale"}, {"store", "backup"},
	} {
		cmd, _, err := newRootCommand().Find(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.PreRunE(cmd, nil); err != nil {
			t.Errorf("%v: %v", path, err)
		}
		if got := cmd.Flags().Lookup("server").Value.String(); got != "mesh:8444" {
			t.Errorf("%v: --server is %q", path, got)
		}
	}
}

func TestVersionCommand(t *testing.T) {
	if r := clitest.Execute(t, cli.NewVersionCommand(), nil); r.Code != 0 || !strings.HasPrefix(r.Out, "portcullis ") {
		t.Errorf("version: %+v", r)
	}
	r := clitest.Execute(t, cli.NewVersionCommand(), nil, "-o", "json")
	var got struct {
		Version string `json:"version"`
		Go      string `json:"go"`
	}
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || got.Version != cli.Version() || got.Go == "" {
		t.Errorf("version -o json: %+v, %v", r, err)
	}
}

func TestTheVersionIsPrintedAsPeopleAskForIt(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"-v"}, {"version", "--client"}} {
		if out, code := execute(t, args...); code != 0 || !strings.HasPrefix(out, "portcullis ") || !strings.Contains(out, cli.Version()) {
			t.Errorf("%v: exit code %d, %q", args, code, out)
		}
	}
}

func TestChoiceFlag(t *testing.T) {
	newCommand := func() *cobra.Command {
		cmd := &cobra.Command{Use: "test"}
		var output string
		cli.OutputFlag(cmd, &output, "form", printer.YAML, printer.JSON)
		cmd.Run = func(cmd *cobra.Command, _ []string) { cmd.Print(output) }
		return cmd
	}
	if r := clitest.Execute(t, newCommand(), nil, "-o", "json"); r.Code != 0 || r.Out != "json" {
		t.Errorf("-o json: %+v", r)
	}
	clitest.Execute(t, newCommand(), nil, "-o", "xml").Fails(t, `"-o, --output"`, "use yaml or json")
}

func TestCompletion(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"there is a script for each shell":     {[]string{"completion", "bash"}, []string{"__start_portcullis"}},
		"commands are completed":               {[]string{"__complete", ""}, []string{"cluster\t", "completion\t", "dev\t", "review\t", "serve\t"}},
		"words of flags are completed":         {[]string{"__complete", "review", "--stage", ""}, []string{"mutate\nvalidate\n"}},
		"forms of output are completed":        {[]string{"__complete", "cluster", "register", "prod-1", "-o", ""}, []string{"yaml\njson\n"}},
		"roles of certificates are completed":  {[]string{"__complete", "certs", "issue", ""}, []string{"server\nhost\nclient\n"}},
		"kinds are completed":                  {[]string{"__complete", "get", ""}, []string{"hookroute\ncluster\nrole\ndispatchers\nhosts\nhooks\nchanges\nstaged\n:4"}},
		"kinds are completed for explain":      {[]string{"__complete", "explain", ""}, []string{"hookroute\ncluster\nrole\nhook\nstaged\n:4"}},
		"a name of an object is no file's":     {[]string{"__complete", "delete", "role", ""}, []string{":4\n"}},
		"ways to show progress are completed":  {[]string{"__complete", "apply", "--progress", ""}, []string{"terminal\nlines\nnone\n"}},
		"a name of a cluster is no file's":     {[]string{"__complete", "cluster", "register", ""}, []string{":4\n"}},
		"a file for a review is one of a disk": {[]string{"__complete", "review", "-f", ""}, []string{":0\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := newRootCommand()
			root.SetArgs(tt.args)
			root.SetOut(&out)
			root.SetErr(&bytes.Buffer{})
			if code := cli.Run(t.Context(), root); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, &out)
				}
			}
		})
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	for _, cmd := range newRootCommand().Commands() {
		for _, c := range append(cmd.Commands(), cmd) {
			if c.Example == "" || c.Long == "" {
				t.Errorf("%s: no example, or no long help", c.CommandPath())
			}
		}
	}
}

func TestACommandThatIsNoneOfItsGroupIsAnError(t *testing.T) {
	clitest.Execute(t, certscli.NewCommand(), nil, "init").Fails(t, `there is no "portcullis certs init"; `+"`portcullis certs --help`")
	clitest.Execute(t, clustercli.NewCommand(), nil, "registr", "prod-1").Fails(t, `there is no "portcullis cluster registr"`)

	if alone := clitest.Execute(t, clustercli.NewCommand(), nil); alone.Code != 0 || !strings.Contains(alone.Out, "register") {
		t.Errorf("without one: exit code %d, %q, want the help", alone.Code, alone.Out)
	}
}

// TestNoTwoCommandsHaveOneName: of two, the first one hides the other.
func TestNoTwoCommandsHaveOneName(t *testing.T) {
	taken := map[string]string{}
	for _, cmd := range newRootCommand().Commands() {
		for _, name := range append([]string{cmd.Name()}, cmd.Aliases...) {
			if other := taken[name]; other != "" {
				t.Errorf("%q is a name of %s and of %s", name, other, cmd.Name())
			}
			taken[name] = cmd.Name()
		}
	}
}
