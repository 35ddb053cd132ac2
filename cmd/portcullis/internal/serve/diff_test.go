package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

func TestDiffShowsWhatApplyWouldChange(t *testing.T) {
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	diff := func(in string, args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, configcli.NewDiff(), strings.NewReader(in), append([]string{"-f", "-", "--ready-file", ready}, args...)...)
	}
	ends := func(r clitest.Result, code int, want string) {
		t.Helper()
		if r.Code != code || r.Out != want {
			t.Errorf("exit code %d, want %d: %s\n%s", r.Code, code, r.Out, r.Notes)
		}
	}
	made := diff(documents)
	clitest.Golden(t, "diff-created.txt", made.Out)
	ends(made, cli.ExitDenied, made.Out)
	if r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready); r.Code != 0 {
		t.Fatal(r.Notes)
	}
	ends(diff(documents), 0, "")

	// The same with its defaults, in another order, in another form.
	same := `{"webhooks": [{"admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 10, "matchPolicy": "Equivalent",
	"rules": [{"scope": "*", "resources": ["deployments"], "apiVersions": ["v1"], "apiGroups": ["apps"], "operations": ["CREATE"]}],
	"failurePolicy": "Fail", "clientConfig": {}, "name": "policy.example.com"}],
	"metadata": {"name": "policy"}, "kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1"}`
	ends(diff(same), 0, "")

	changed := diff(strings.Replace(same, `"timeoutSeconds": 10`, `"timeoutSeconds": 5`, 1))
	clitest.Golden(t, "diff-updated.txt", changed.Out)
	ends(changed, cli.ExitDenied, changed.Out)

	asJSON := diff(strings.Replace(documents, "failurePolicy: Fail", "failurePolicy: Ignore", 1), "-o", "json")
	var d struct {
		Objects []struct {
			Result string `json:"result"`
			Diff   string `json:"diff"`
		} `json:"objects"`
	}
	if err := json.Unmarshal([]byte(asJSON.Out), &d); err != nil || len(d.Objects) != 2 || d.Objects[0].Result != "updated" ||
		!strings.Contains(d.Objects[0].Diff, "-  failurePolicy: Fail\n+  failurePolicy: Ignore\n") || d.Objects[1].Result != "unchanged" || asJSON.Code != cli.ExitDenied {
		t.Errorf("%v, exit code %d: %s", err, asJSON.Code, asJSON.Out)
	}
}

func TestDiffSaysWhyAnApplyWouldBeRefused(t *testing.T) {
	ready := withStore(t)
	dangerous := strings.NewReplacer("GROUP", "coordination.k8s.io", "deployments", "leases").Replace(appliedHooks)
	r := clitest.Execute(t, configcli.NewDiff(), strings.NewReader(dangerous), "-f", "-", "--ready-file", ready)
	r.Fails(t, "acknowledge danger-leases")
	if !strings.Contains(r.Out, "+kind: ValidatingWebhookConfiguration") {
		t.Errorf("it does not show the dangers to acknowledge: %s", r.Out)
	}
	r = clitest.Execute(t, configcli.NewDiff(), strings.NewReader(dangerous), "-f", "-", "--ready-file", ready, "--acknowledge", "danger-leases")
	r.Ends(t, cli.ExitDenied, "danger: standard input:5: ValidatingWebhookConfiguration/policy")

	clitest.Execute(t, configcli.NewDiff(), strings.NewReader(strings.Replace(appliedHooks, "sideEffects: None", "sideEffects: Some", 1)), "-f", "-", "--ready-file", ready).
		Fails(t, "standard input:9", "webhooks[0].sideEffects")
	clitest.Execute(t, configcli.NewDiff(), nil, "--ready-file", ready).Fails(t, "-f is missing")
	clitest.Execute(t, configcli.NewDiff(), nil, "-f", "https://example.com/a.yaml", "--ready-file", ready).Fails(t, "are read: fetch it")
}
