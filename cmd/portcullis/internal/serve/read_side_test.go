package serve

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// filesOnly is a dispatcher whose configuration is the sample files alone.
func filesOnly(t *testing.T, change func(*dev, *serveConfig)) *rotated {
	t.Helper()
	a, d, info := appWithStore(t, func(d *dev, c *serveConfig) {
		c.stores.dataDir = ""
		change(d, c)
	})
	return &rotated{t, a, d, info, readyFileOf(t, info)}
}

// prints runs a command and compares its exit code and parts of its output, with one space between columns.
func (r *rotated) prints(code int, cmd *cobra.Command, in string, args []string, want ...string) {
	r.Helper()
	got := r.run(cmd, in, args...)
	text := oneSpace(got.Out + got.Notes)
	if got.Code != code {
		r.Errorf("%s %q: exit code %d, want %d: %s", cmd.Name(), args, got.Code, code, text)
	}
	for _, w := range want {
		if !regexp.MustCompile(w).MatchString(text) {
			r.Errorf("%s %q: no %q in %s", cmd.Name(), args, w, text)
		}
	}
}

func TestAMeshOfFilesIsReadAsOneWithAStore(t *testing.T) {
	t.Parallel()
	r := filesOnly(t, func(*dev, *serveConfig) {})
	const samples = `ValidatingWebhookConfiguration/sample-images `
	r.shows([]string{"-o", "wide"},
		samples+`(True ){3}False \(NoHost\) Deciding directory .*hooks\.yaml:\d+\n`)
	r.prints(0, configcli.NewGet(), "", []string{"vwc", "sample-images", "-o", "yaml"}, `name: pinned-images\.portcullis\.dev`)
	r.prints(0, configcli.NewExplain(), "", []string{"vwc", "sample-images"},
		`in force everywhere, and not served \(NoHost\): hook "pinned-images\.portcullis\.dev": served on 0 of 1 dispatcher`,
		`from directory, \S+hooks\.yaml:\d+\n`, `test has it judges new reviews by revision [0-9a-f]`, `error no-host-connected`)
	r.prints(0, configcli.NewGet(), "", []string{"dispatchers"},
		`test Current - `, `there is no store, so dispatchers do not know each other: this is the dispatcher that answered`)
	r.prints(0, configcli.NewGet(), "", []string{"hooks"}, `pinned-images\.portcullis\.dev validate all Fail no host InRotation`)
	r.host(func() error { return nil }) // of a hook that no configuration has
	r.shows([]string{"hosts"}, `policy \S+ \S+ test - NotGranted `)

	authority, err := certs.ReadAuthority(r.dev.path("certs/ca.crt"), r.dev.path("certs/ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, status := range map[string]int{devAPIServer: http.StatusOK, "stranger": http.StatusForbidden} {
		o := operatorOf(t, r.info, issue(t, authority, name))
		if a := o.ask("GET", "/v1/config/hosts?limit=1", ""); a.status != status || status == http.StatusOK && a.at("hosts", 0, "host") != "policy" {
			t.Errorf("%s: %d %v", name, a.status, a.body)
		}
		if a := o.ask("GET", "/v1/config/hooks?name=pinned-images.portcullis.dev", ""); a.status != status ||
			status == http.StatusOK && a.at("hooks", 0, "origin") != r.dev.path("config/hooks.yaml")+":4" {
			t.Errorf("%s: %d %v", name, a.status, a.body)
		}
	}
	text, err := os.ReadFile(filepath.Join(r.app.config.stores.paths[0], "hooks.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.prints(0, configcli.NewDiff(), string(text), []string{"-f", "-"})
	stricter := strings.Replace(string(text), "timeoutSeconds: 10", "timeoutSeconds: 6", 1)
	r.prints(1, configcli.NewDiff(), stricter, []string{"-f", "-"}, `-.*timeoutSeconds: 10\n`, `\+.*timeoutSeconds: 6\n`)
	r.prints(2, configcli.NewDiff(), strings.Replace(appliedHooks, "sideEffects: None", "sideEffects: Some", 1), []string{"-f", "-"}, "sideEffects")
}

// TestABadDocumentOfAFileIsSaid: a new document without a last good version is no object of the configuration.
func TestABadDocumentOfAFileIsSaid(t *testing.T) {
	r := filesOnly(t, func(*dev, *serveConfig) {})
	bad := "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: new}\nspec: {configurationn: policy}\n"
	if err := os.WriteFile(filepath.Join(r.app.config.stores.paths[0], "new.yaml"), []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	r.shows(nil, `error: .*new\.yaml:4.*HookRoute.*configurationn`)
	r.prints(cli.ExitDenied, configcli.NewExplain(), "", []string{"route", "new"}, `no version of HookRoute/new is in force: .*new\.yaml:4`)
}

func TestAMeshOfFilesRefusesWritesAndNamesTheFile(t *testing.T) {
	r := filesOnly(t, func(*dev, *serveConfig) {})
	text, err := os.ReadFile(filepath.Join(r.app.config.stores.paths[0], "hooks.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const none = `there is no store \(serve --data-dir or --etcd\): `
	r.prints(cli.ExitDenied, configcli.NewApply(), string(text), []string{"-f", "-"}, none+`\S+/sample-\S+ is in \S+hooks\.yaml:\d+, edit it there`)
	r.prints(cli.ExitDenied, configcli.NewApply(), strings.Replace(appliedHooks, "GROUP", "apps", 1), []string{"-f", "-"},
		none+`write the objects to --config `+regexp.QuoteMeta(r.app.config.stores.paths[0]))
	r.prints(0, configcli.NewApply(), strings.Replace(appliedHooks, "GROUP", "apps", 1), []string{"-f", "-", "--dry-run"}, `created \(dry run\)`)
	r.prints(cli.ExitDenied, configcli.NewDelete(), "", []string{"vwc", "sample-images"}, none+`\S+/sample-images is in \S+hooks\.yaml:\d+, remove it there`)
	r.prints(cli.ExitDenied, configcli.NewDelete(), "", []string{"vwc", "none"}, "there is no ValidatingWebhookConfiguration/none")
	r.prints(cli.ExitDenied, configcli.NewGet(), "", []string{"changes"}, none+"no history of changes is kept")
	r.prints(cli.ExitDenied, configcli.NewStore(), "", []string{"backup", filepath.Join(t.TempDir(), "b")}, none+"back up")
}

func TestAMeshOfFilesAnswersIdentitiesWithARoleAlone(t *testing.T) {
	for name, test := range map[string]struct {
		operators []string
		role      string
		code      int
		want      string
	}{
		"nobody is named":      {code: cli.ExitDenied, want: `"` + devAPIServer + `" has no role`},
		"another is operator":  {operators: []string{"root"}, code: cli.ExitDenied, want: "has no role"},
		"a viewer of a file":   {role: devAPIServer, want: "Role/r"},
		"another is viewer":    {role: "ann", code: cli.ExitDenied, want: "has no role"},
		"an operator of flags": {operators: []string{devAPIServer}, want: "sample-images"},
	} {
		t.Run(name, func(t *testing.T) {
			r := filesOnly(t, func(_ *dev, c *serveConfig) {
				c.stores.operator.Names = test.operators
				if test.role == "" {
					return
				}
				role := "apiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: r}\nspec: {role: viewer, identities: [\"" + test.role + "\"]}\n"
				c.stores.paths = append(c.stores.paths, clitest.Write(t, "role.yaml", role))
			})
			for _, args := range [][]string{{}, {"hosts"}, {"hooks"}, {"dispatchers"}} {
				if len(args) > 0 && test.code == 0 {
					r.prints(0, configcli.NewGet(), "", args)
				} else {
					r.prints(test.code, configcli.NewGet(), "", args, test.want)
				}
			}
		})
	}
}
