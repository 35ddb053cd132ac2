package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

// contextsFile are two meshes; commands use prod.
const contextsFile = `# meshes of mine
current-context: prod # for now
contexts:
  prod:
    server: prod.example.com:8444
    ca: prod/ca.crt
    cert: prod/me.crt
    key: /keys/me.key
    cluster: prod-1
  dev: {ready-file: ready.json}
timeout: 5m
`

// inHome makes text the settings file of the user, and returns its directory.
func inHome(t *testing.T, text string) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	dir := filepath.Join(home, "portcullis")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// execute runs the command line as a whole.
func execute(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var text bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&text)
	root.SetErr(&text)
	code = cli.Run(t.Context(), root)
	return text.String(), code
}

func TestOneSourceNamesTheMesh(t *testing.T) {
	for name, tc := range map[string]struct {
		args      []string
		variables map[string]string
		want      map[string]string // DIR is the directory of the file
		err       string
	}{
		"the current context is used when nothing else names a mesh": {
			want: map[string]string{"server": "prod.example.com:8444", "ca": "DIR/prod/ca.crt", "key": "/keys/me.key", "cluster": "prod-1", "timeout": "5m0s"},
		},
		"the command line changes one flag of a context": {
			args: []string{"--context=prod", "--server=other:1"},
			want: map[string]string{"server": "other:1", "ca": "DIR/prod/ca.crt"},
		},
		"variables of another mesh do not mix with --context": {
			args: []string{"--context=dev"}, variables: map[string]string{"SERVER": "other:1", "CERT": "other.crt"},
			want: map[string]string{"server": "", "cert": "", "ready-file": "DIR/ready.json"},
		},
		"a variable names a context": {
			variables: map[string]string{"CONTEXT": "dev"},
			want:      map[string]string{"server": "", "ready-file": "DIR/ready.json", "timeout": "5m0s"},
		},
		"a variable that names a mesh wins over the current context": {
			variables: map[string]string{"READY_FILE": "other.json"},
			want:      map[string]string{"server": "", "ca": "", "ready-file": "other.json"},
		},
		"a ready file on the command line wins over everything": {
			args: []string{"--ready-file=mine.json"}, variables: map[string]string{"SERVER": "other:1", "CONTEXT": "prod"},
			want: map[string]string{"server": "", "ca": "", "ready-file": "mine.json"},
		},
		"an empty variable names nothing": {
			variables: map[string]string{"SERVER": "", "SETTINGS": ""},
			want:      map[string]string{"server": "prod.example.com:8444"},
		},
		"two variables name a mesh":        {variables: map[string]string{"CONTEXT": "prod", "SERVER": "other:1"}, err: "PORTCULLIS_CONTEXT and PORTCULLIS_SERVER both name a mesh"},
		"there is no context of that name": {args: []string{"--context=test"}, err: `there is no context "test": settings DIR/config has dev, prod`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := inHome(t, contextsFile)
			for k, v := range tc.variables {
				t.Setenv("PORTCULLIS_"+k, v)
			}
			cmd, _, err := newRootCommand().Find([]string{"review"})
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.ParseFlags(tc.args); err != nil {
				t.Fatal(err)
			}
			err = cmd.PreRunE(cmd, nil)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(tc.err, "DIR", dir))) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			for flag, want := range tc.want {
				if got := cmd.Flag(flag).Value.String(); got != strings.ReplaceAll(want, "DIR", dir) {
					t.Errorf("--%s is %q, want %q", flag, got, want)
				}
			}
		})
	}
}

func TestAServerReadsNoFileOfTheUser(t *testing.T) {
	inHome(t, "listen: file:1\n")
	t.Setenv("PORTCULLIS_READY_FILE", "ready.json")
	for _, name := range []string{"serve", "dev"} {
		cmd, _, err := newRootCommand().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.PreRunE(cmd, nil); err != nil {
			t.Fatal(err)
		}
		if f := cmd.Flag("listen"); f != nil && f.Value.String() == "file:1" {
			t.Errorf("%s: --listen is from the file of the user", name)
		}
		if got := cmd.Flag("ready-file").Value.String(); got != "" {
			t.Errorf("%s would write %q", name, got)
		}
	}
}

func TestWrongSettingsAreNamedWithTheirLine(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a flag that no command has":        {"timeout: 1m\ntimeuot: 1m\n", "config:2: no command has a flag --timeuot"},
		"a bad value":                       {"\ntimeout: soon\n", "config:2: timeout: "},
		"a key of a context that is no key": {"contexts:\n  a:\n    servre: x\n", `config:3: a context has no "servre": use ready-file, ca, cert, key, server, cluster`},
		"a flag that names no mesh":         {"contexts:\n  a: {timeout: 1m}\n", `config:2: a context has no "timeout"`},
		"a key without a value":             {"contexts:\n  a:\n    server:\n", "config:3: server takes one value"},
		"a context that is a text":          {"contexts:\n  a: b\n", "config:2: want a mapping, ready-file"},
		"contexts as a list":                {"contexts:\n- name: a\n", "config:2: want a mapping, contexts by their names"},
		"a context twice":                   {"contexts:\n  a: {server: x}\n  a: {server: y}\n", "config:3: a is in line 2 too"},
		"a mesh beside contexts":            {"contexts:\n  a: {server: x}\nserver: y\n", "config:3: server is outside of the contexts of line 2"},
		"a current context that is none":    {"current-context: b\ncontexts:\n  a: {server: x}\n", `no context "b": settings`},
		"two documents":                     {"timeout: 1m\n---\ntimeout: 2m\n", "several documents"},
		"a text":                            {"hello\n", "config:1: want a mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			inHome(t, tc.text)
			if out, code := execute(t, "get"); code != cli.ExitError || !strings.Contains(out, tc.want) {
				t.Errorf("exit code %d, %q, want %q", code, out, tc.want)
			}
		})
	}
}

func TestConfigShowsAndChoosesContexts(t *testing.T) {
	dir := inHome(t, contextsFile)
	run := func(want int, args ...string) string {
		t.Helper()
		out, code := execute(t, append([]string{"config"}, args...)...)
		if code != want {
			t.Errorf("%v: exit code %d, %s", args, code, out)
		}
		return out
	}
	want := "CURRENT  NAME  MESH                   CLUSTER\n" +
		"         dev   " + dir + "/ready.json  -\n*        prod  prod.example.com:8444"
	if got := run(0, "get-contexts"); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want+" prod-1"), " ") {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := run(0, "get-contexts", "-o", "name"); got != "dev\nprod\n" {
		t.Errorf("names: %q", got)
	}
	if got := run(0, "use-context", "dev"); got != "Commands use the context \"dev\" now.\n" {
		t.Errorf("use-context: %q", got)
	}
	if got := run(0, "current-context"); got != "dev\n" {
		t.Errorf("current-context: %q", got)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil || string(data) != strings.Replace(contextsFile, "context: prod", "context: dev", 1) {
		t.Errorf("%v: the file is\n%s", err, data)
	}
	run(cli.ExitDenied, "use-context", "tset")
	if out, _ := execute(t, "__complete", "get", "--context", ""); !strings.HasPrefix(out, "dev\nprod\n") {
		t.Errorf("completes %q", out)
	}
}

func TestConfigWithoutAFileSaysWhereItWouldBe(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if out, code := execute(t, "config", "get-contexts"); code != cli.ExitError || !strings.Contains(out, "portcullis/config") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := execute(t, "get", "--context", "prod"); code != cli.ExitError || !strings.Contains(out, "does not exist") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
