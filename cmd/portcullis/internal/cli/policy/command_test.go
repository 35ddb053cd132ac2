package policy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

const replicas = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: few-replicas, labels: {team: platform}}
spec:
  resources: [deployments]
  clusters: [dev, prod-1]
  parameters:
  - {name: most, byCluster: {dev: 3, prod-1: 10}}
  modeByCluster: {dev: enforce}
  validations:
  - expression: object.spec.replicas <= parameters.most
    message: too many replicas
`

// write writes files by their names into a directory.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestExpandPrintsYAML(t *testing.T) {
	got := clitest.Execute(t, NewCommand(), strings.NewReader(replicas), "expand", "-", "--cluster", "dev")
	if got.Code != 0 || got.Notes != "" {
		t.Fatalf("%+v", got)
	}
	clitest.Golden(t, "expand.yaml", got.Out)
}

func TestExpandPrintsAListAsJSON(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": replicas, "b.yaml": strings.NewReplacer("few", "other", "clusters: [dev, prod-1]", "mode: warn",
		"byCluster", "default: 1, byCluster").Replace(replicas)})
	got := clitest.Execute(t, NewCommand(), nil, "expand", filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"), "-o", "json")
	if want := filepath.Join(dir, "a.yaml") + ":1: Policy/few-replicas is not in force in clusters that it does not name: --cluster takes dev, prod-1\n"; got.Notes != want {
		t.Errorf("%q, want %q", got.Notes, want)
	}
	var list struct {
		Kind  string `json:"kind"`
		Items []struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Status *struct{} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(got.Out), &list); err != nil || got.Code != 0 {
		t.Fatal(err, got)
	}
	if len(list.Items) != 2 || list.Kind != "List" || list.Items[0].Kind != "ValidatingAdmissionPolicy" || list.Items[0].Status != nil ||
		list.Items[1].Metadata.Name != "other-replicas" {
		t.Errorf("%+v", list)
	}
}

func TestExpandReadsDirectoriesToTheirEnds(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "policy.yaml"), []byte(replicas), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"expand", "import"} {
		if got := clitest.Execute(t, NewCommand(), nil, command, dir, "--cluster", "dev", "-o", "json"); !strings.Contains(got.Out, `"few-replicas"`) {
			t.Errorf("%+v", got)
		}
	}
}

func TestExpandRefuses(t *testing.T) {
	dir := write(t, map[string]string{
		"good.yaml": replicas, "same.yaml": "# a comment\n" + replicas, "empty.yaml": "a: b\nkind: Role\napiVersion: v1\n",
		"bad.yaml": strings.Replace(replicas, "parameters.most", "parameters.mots", 1),
	})
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"bad.yaml"}, cli.ExitError, `bad.yaml:11: Policy "few-replicas": spec.validations[0].expression: Invalid value: there is no parameter "mots"`},
		{[]string{"good.yaml", "same.yaml"}, cli.ExitError, `same.yaml:2: Policy/few-replicas is in good.yaml:1 too: remove either`},
		{[]string{"empty.yaml"}, cli.ExitError, "there is no Policy in empty.yaml"},
		{[]string{"absent.yaml"}, cli.ExitError, "there is no absent.yaml"},
		{[]string{"."}, cli.ExitError, "same.yaml:2: Policy/few-replicas is in good.yaml:1 too"},
		{nil, cli.ExitError, "name the files with the policies"},
		{[]string{"good.yaml", "--cluster", "prod"}, cli.ExitDenied, "good.yaml:1: Policy/few-replicas is not in force in cluster prod: --cluster takes dev, prod-1"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			t.Chdir(dir)
			got := clitest.Execute(t, NewCommand(), nil, append([]string{"expand"}, tc.args...)...)
			if got.Code != tc.code || got.Out != "" || !strings.Contains(got.Notes, tc.want) {
				t.Errorf("%+v, want %q", got, tc.want)
			}
		})
	}
}
