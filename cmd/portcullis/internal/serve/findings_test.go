package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	clustercli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/cluster"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

// refusal is the output of a refused apply for tools.
type refusal struct {
	Error    string `json:"error"`
	Findings []struct {
		Code     string `json:"code"`
		Severity string `json:"severity"`
		File     string `json:"file"`
		Line     int    `json:"line"`
	} `json:"findings"`
}

func TestFindingsNameTheFileAndTheLineOfTheUser(t *testing.T) {
	ready := withStore(t)
	file := filepath.Join(t.TempDir(), "hooks.yaml")
	dangerous := strings.NewReplacer("GROUP", "coordination.k8s.io", "deployments", "leases").Replace(appliedHooks)
	documents := "# a comment\n" + strings.Replace(appliedHooks, "GROUP", "apps", 1) + "\n---\n" +
		strings.NewReplacer("name: policy", "name: second", "configuration: policy", "configuration: second").Replace(dangerous)
	conflict := `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: other}
spec: {configuration: policy}`
	for name, tc := range map[string]struct{ documents, code, severity string }{
		"a danger in a later document":   {documents, "danger-leases", "danger"},
		"a conflict with another object": {documents + "\n---\n" + conflict, "route-conflict", "error"},
		"an invalid document":            {strings.Replace(documents, "sideEffects: None", "sideEffects: Some", 1), "invalid", "error"},
		"a duplicate":                    {conflict + "\n---\n" + conflict, "duplicate", "error"},
	} {
		if err := os.WriteFile(file, []byte(tc.documents), 0o600); err != nil {
			t.Fatal(err)
		}
		text := clitest.Execute(t, configcli.NewApply(), nil, "-f", file, "--ready-file", ready)
		text.Ends(t, cli.ExitDenied, file+":")
		if strings.Contains(text.Notes, "manifests[") {
			t.Errorf("%s: %s", name, text.Notes)
		}
		r := clitest.Execute(t, configcli.NewApply(), nil, "-f", file, "--ready-file", ready, "-o", "json")
		var told refusal
		if err := json.Unmarshal([]byte(r.Out), &told); err != nil || r.Code != cli.ExitDenied || told.Error == "" || len(told.Findings) == 0 {
			t.Errorf("%s: %v, exit code %d: %s", name, err, r.Code, r.Out)
			continue
		}
		f := told.Findings[0]
		if f.Code != tc.code || f.Severity != tc.severity || f.File != file || f.Line == 0 || !strings.Contains(text.Notes, file+":") {
			t.Errorf("%s: %+v\n%s", name, f, text.Notes)
		}
	}
}

func TestTheLineOfADangerIsThatOfItsHook(t *testing.T) {
	ready := withStore(t)
	dangerous := strings.NewReplacer("GROUP", "coordination.k8s.io", "deployments", "leases").Replace(appliedHooks)
	documents := "# a comment\n" + dangerous
	above, _, _ := strings.Cut(documents, "- name: policy.example.com")
	line := 1 + strings.Count(above, "\n")
	r := clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--acknowledge", "danger-leases", "-o", "json")
	var told refusal
	if err := json.Unmarshal([]byte(r.Out), &told); err != nil || r.Code != 0 {
		t.Fatalf("%v, exit code %d: %s%s", err, r.Code, r.Out, r.Notes)
	}
	for _, f := range told.Findings {
		if f.Code == "danger-leases" && (f.Line != line || f.File != "standard input") {
			t.Errorf("at %s:%d, want line %d", f.File, f.Line, line)
		}
	}
}

func TestApplyReadsPipes(t *testing.T) {
	ready := withStore(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		written <- os.WriteFile(pipe, []byte(strings.Replace(appliedHooks, "GROUP", "apps", 1)), 0o600)
	}()
	r := clitest.Execute(t, configcli.NewApply(), nil, "-f", pipe, "--ready-file", ready, "--dry-run=server")
	if err := <-written; err != nil || r.Code != 0 || !strings.Contains(r.Out, "created (dry run)") {
		t.Errorf("%v, exit code %d: %s%s", err, r.Code, r.Out, r.Notes)
	}
}

func TestApplySaysHowItIsCalled(t *testing.T) {
	for _, tc := range []struct{ want, args string }{
		{"did you mean -f hook.yaml?", "hook.yaml"},
		{"use it alone, or with client, server or none", "-f hook.yaml --dry-run=maybe"},
	} {
		clitest.Execute(t, configcli.NewApply(), nil, strings.Fields(tc.args)...).Fails(t, tc.want)
	}
}

// twoSelectors are hooks that leave kube-system out in different ways, in one cluster.
const twoSelectors = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: by-name.example.com
  clientConfig: {}
  failurePolicy: Fail
  rules: &pods [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}
  sideEffects: None
  admissionReviewVersions: [v1]
- name: by-label.example.com
  clientConfig: {}
  failurePolicy: Fail
  rules: *pods
  namespaceSelector: {matchLabels: {env: prod}}
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: policy}
spec: {configuration: policy, stream: {}, hosts: [me]}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec: {identities: [api], namespaces: {static: {default: {}}}}
`

func TestApplyLintAndRegisterFindTheSameDangerOfAnEntry(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.stores.paths = nil })
	file := clitest.Write(t, "hooks.yaml", twoSelectors)
	const danger = "the entry validate/fail-closed of cluster prod-1 fails closed and brings writes of kube-system, though no hook of it that fails closed " +
		"selects them, for example: CREATE pods kube-system/a-1 by system:serviceaccount:kube-system:replicaset-controller. The namespaceSelectors of these 2 hooks"
	apply := func(args ...string) clitest.Result {
		return clitest.Execute(t, configcli.NewApply(), nil, append(args, "-f", file, "--ready-file", readyFileOf(t, info))...)
	}
	for name, r := range map[string]clitest.Result{
		"apply":            apply(),
		"apply --dry-run":  apply("--dry-run"),
		"lint":             clitest.Execute(t, configcli.NewLint(), nil, "-f", file),
		"cluster register": clitest.Execute(t, clustercli.NewCommand(), nil, "register", "prod-1", "--config", file, "--url", "https://mesh"),
	} {
		if text := r.Out + r.Notes; strings.Count(text, danger) != 1 {
			t.Errorf("%s: exit code %d: %s", name, r.Code, text)
		}
	}
	apply().Ends(t, cli.ExitDenied, "danger-kube-system")
	if r := apply("--acknowledge", "danger-kube-system"); r.Code != 0 {
		t.Errorf("acknowledged: exit code %d: %s", r.Code, r.Notes)
	}
}
