package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// anyFlag lets every flag have a variable.
func anyFlag(string) bool { return true }

// settable is a command with one flag of each kind that is used.
func settable() (*cobra.Command, *serveConfig) {
	var c serveConfig
	cmd := &cobra.Command{Use: "x"}
	c.bind(cmd.Flags())
	return withServerSettings(cmd), &c
}

func TestTheCommandLineWinsOverVariablesAndTheyOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.yaml")
	text := "listen: file:1\nlisten-hosts: file:2\nlisten-admin: file:3\nconfig: [a, b]\nmax-body-bytes: 16777216\nstop-delay: 3s\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, c := settable()
	if err := cmd.ParseFlags([]string{"--listen=line:1", "--settings=" + file}); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"PORTCULLIS_LISTEN": "variable:1", "PORTCULLIS_LISTEN_HOSTS": "variable:2"}
	err := applySettings(cmd, anyFlag, func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	if c.listen != "line:1" || c.listenHosts != "variable:2" || c.listenAdmin != "file:3" {
		t.Errorf("got %q, %q, %q", c.listen, c.listenHosts, c.listenAdmin)
	}
	if !slices.Equal(c.stores.paths, []string{"a", "b"}) || c.maxBody != 16<<20 || c.stopDelay.String() != "3s" {
		t.Errorf("got %v, %d, %s", c.stores.paths, c.maxBody, c.stopDelay)
	}
}

func TestBadSettingsSayWhatIsWrongWithThem(t *testing.T) {
	for _, test := range []struct{ name, file, variable, want string }{
		{"an unknown flag", "liste: x", "", "no command has a flag --liste"},
		{"a list for one value", "listen: [a, b]", "", "takes one value"},
		{"names with values for a list", "config:\n  a: b", "", "a list of lines"},
		{"nothing", "listen:", "", "has no value"},
		{"a value of the wrong type", "max-body-bytes: many", "", "max-body-bytes"},
		{"a key twice", "listen: a\nlisten: b", "", "listen"},
		{"no YAML", "\tx", "", "settings"},
		{"the file names itself", "settings: other.yaml", "", "--settings"},
		{"a bad variable", "", "soon", "PORTCULLIS_STOP_DELAY"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "settings.yaml")
			if err := os.WriteFile(file, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, _ := settable()
			if err := cmd.ParseFlags([]string{"--settings=" + file}); err != nil {
				t.Fatal(err)
			}
			err := applySettings(cmd, anyFlag, func(name string) (string, bool) {
				return test.variable, test.variable != "" && name == "PORTCULLIS_STOP_DELAY"
			})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestEveryFlagOfServeSaysItsVariable(t *testing.T) {
	usage := newServeCommand().UsageString()
	for _, want := range []string{"[$PORTCULLIS_LISTEN]", "[$PORTCULLIS_HOSTS_TLS_CA]", "[$PORTCULLIS_SETTINGS]"} {
		if !strings.Contains(usage, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(usage, "PORTCULLIS_READY_FILE") {
		t.Error("serve would write over the ready file that the tools of the same shell read")
	}
}

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
	for flag, want := range map[string]string{"server": "mesh.example.com:8444", "dry-run": "false", "acknowledge": "[]"} {
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
