package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// anyFlag lets every flag have a variable.
func anyFlag(string) bool { return true }

// serveFlags are flags of each kind that is used.
type serveFlags struct {
	listen, listenHosts, listenAdmin string
	paths                            []string
	maxBody                          int64
	stopDelay                        time.Duration
}

// settable is a command with them.
func settable() (*cobra.Command, *serveFlags) {
	var c serveFlags
	cmd := &cobra.Command{Use: "x"}
	f := cmd.Flags()
	f.StringVar(&c.listen, "listen", "", "")
	f.StringVar(&c.listenHosts, "listen-hosts", "", "")
	f.StringVar(&c.listenAdmin, "listen-admin", "", "")
	f.StringArrayVar(&c.paths, "config", nil, "")
	f.Int64Var(&c.maxBody, "max-body-bytes", 0, "")
	f.DurationVar(&c.stopDelay, "stop-delay", 0, "")
	return WithServerSettings(cmd), &c
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
	if !slices.Equal(c.paths, []string{"a", "b"}) || c.maxBody != 16<<20 || c.stopDelay.String() != "3s" {
		t.Errorf("got %v, %d, %s", c.paths, c.maxBody, c.stopDelay)
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
