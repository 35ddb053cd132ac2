package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/internal/cli/config"
)

// refusal is what a refused apply prints for tools.
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
		"a danger in a later document": {documents, "danger-leases", "danger"},
		"what does not fit to others":  {documents + "\n---\n" + conflict, "route-conflict", "error"},
		"what is not valid by itself":  {strings.Replace(documents, "sideEffects: None", "sideEffects: Some", 1), "invalid", "error"},
		"what is there twice":          {conflict + "\n---\n" + conflict, "duplicate", "error"},
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
		{"use --dry-run, which asks it", "-f hook.yaml --dry-run=client"},
		{"use it alone, or with server or none", "-f hook.yaml --dry-run=maybe"},
	} {
		clitest.Execute(t, configcli.NewApply(), nil, strings.Fields(tc.args)...).Fails(t, tc.want)
	}
}
