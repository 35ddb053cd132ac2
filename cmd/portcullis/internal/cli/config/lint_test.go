package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// linted has a hook without a danger for a cluster, and RULES.
const linted = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: policy.example.com
  clientConfig: {url: "https://policy.example.com"}
  failurePolicy: Ignore
  rules: [{operations: [CREATE], apiGroups: [GROUP], apiVersions: [v1], resources: [RESOURCE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec: {identities: [api]}
`

// rules are linted documents for a group and a resource.
func rules(group, resource string) string {
	return strings.NewReplacer("GROUP", group, "RESOURCE", resource).Replace(linted)
}

func TestLintEndsByTheWorstSeverity(t *testing.T) {
	closed := strings.Replace(rules("coordination.k8s.io", "leases"), "Ignore", "Fail", 1)
	for name, tc := range map[string]struct {
		in   string
		args []string
		code int
		want string // in the output
	}{
		"clean":                               {in: rules("apps", "deployments"), args: []string{"--strict"}},
		"a danger":                            {in: closed, code: cli.ExitDenied, want: "standard input:5: danger: ValidatingWebhookConfiguration/policy: webhooks[0].failurePolicy: hook"},
		"a danger, strict":                    {in: closed, args: []string{"--strict"}, code: cli.ExitDenied, want: "(danger-leases)"},
		"a danger that is acknowledged":       {in: closed, args: []string{"--strict", "--acknowledge", "danger-leases"}, want: "(danger-leases)"},
		"a finding about entries of clusters": {in: rules("authentication.k8s.io", "tokenreviews"), args: []string{"--strict"}, code: cli.ExitDenied, want: "(never-matches)"},
		"an error of a document":              {in: strings.Replace(linted, "sideEffects", "sideEfects", 1), code: cli.ExitError, want: `standard input:9: error: ValidatingWebhookConfiguration/policy: `},
		"an error of documents together":      {in: linted + "---\n" + linted, code: cli.ExitError, want: "standard input:17: error: ValidatingWebhookConfiguration/policy: it is in standard input:1 too"},
		"another kind":                        {in: "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", code: cli.ExitError, want: "standard input:1: error: Pod/a: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := clitest.Execute(t, NewLint(), strings.NewReader(tc.in), append(tc.args, "-f", "-")...)
			if r.Code != tc.code || !strings.Contains(r.Out, tc.want) || tc.want == "" && r.Out != "" {
				t.Errorf("exit code %d, want %d; no %q in %s%s", r.Code, tc.code, tc.want, r.Out, r.Notes)
			}
		})
	}
	clitest.Execute(t, NewLint(), strings.NewReader(closed), "-f", "-").
		Ends(t, cli.ExitDenied, "1 warnings\nThe hooks can stop a cluster, and apply refuses them: mend them, or run it and lint with --acknowledge danger-leases\n")
	clitest.Execute(t, NewLint(), nil).Fails(t, "-f is missing")
	clitest.Execute(t, NewLint(), nil, "-f", "nowhere.yaml").Fails(t, "nowhere.yaml")
	clitest.Execute(t, NewLint(), strings.NewReader("# nothing\n"), "-f", "-").Fails(t, "there is no document in it")
}

func TestLintPrintsForTools(t *testing.T) {
	file := clitest.Write(t, "a,b.yaml", strings.Replace(rules("coordination.k8s.io", "leases"), "Ignore", "Fail", 1))
	r := clitest.Execute(t, NewLint(), nil, "-f", file, "-o", "json")
	var told struct {
		Objects  int `json:"objects"`
		Errors   int `json:"errors"`
		Warnings int `json:"warnings"`
		Findings []struct {
			Code     string `json:"code"`
			Severity string `json:"severity"`
			File     string `json:"file"`
			Line     int    `json:"line"`
			Key      struct {
				Name string `json:"name"`
			} `json:"key"`
		} `json:"findings"`
	}
	if err := json.Unmarshal([]byte(r.Out), &told); err != nil || r.Code != cli.ExitDenied || told.Objects != 2 || told.Errors != 0 || told.Warnings != len(told.Findings) {
		t.Fatalf("%v: %+v", err, r)
	}
	if f := told.Findings[0]; f.File != file || f.Line != 5 || f.Code != "danger-leases" || f.Severity != "danger" || f.Key.Name != "policy" {
		t.Errorf("%+v", f)
	}
	t.Chdir(strings.TrimSuffix(file, "a,b.yaml"))
	r = clitest.Execute(t, NewLint(), nil, "-f", file, "-o", "github")
	if !strings.HasPrefix(r.Out, "::warning file=a%2Cb.yaml,line=5,title=danger-leases::ValidatingWebhookConfiguration/policy: ") {
		t.Errorf("annotations: %s", r.Out)
	}
}

func TestAFileThatIsNotThereIsNamed(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"conf.d/hook.yaml": "-f: there is no conf.d/hook.yaml in " + dir + ": name a file", "/none": "-f: there is no /none: name a file",
	} {
		clitest.Execute(t, NewLint(), nil, "-f", path).Fails(t, want)
		clitest.Execute(t, NewApply(), nil, "-f", path, "--dry-run=client").Fails(t, want)
	}
}

// TestDirectoriesAreReadToTheirEnds: lint -f DIR read no folder in it, while test and review --config did.
func TestDirectoriesAreReadToTheirEnds(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hooks/webhooks/policy.yaml": rules("apps", "deployments"), "hooks/kustomization.yaml": "resources: [webhooks]\n", ".git/broken.yaml": "a: [",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := clitest.Execute(t, NewLint(), nil, "-f", dir); r.Code != 0 || r.Out+r.Notes != "2 objects, 0 errors, 0 warnings\n" {
		t.Errorf("%+v", r)
	}
}
