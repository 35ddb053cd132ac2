package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDiffShowsWhatApplyWouldChange(t *testing.T) {
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	diff := func(in string, args ...string) ran {
		t.Helper()
		return execute(t, newDiffCommand(), strings.NewReader(in), append([]string{"-f", "-", "--ready-file", ready}, args...)...)
	}
	ends := func(r ran, code int, want string) {
		t.Helper()
		if r.code != code || r.out != want {
			t.Errorf("exit code %d, want %d: %s\n%s", r.code, code, r.out, r.notes)
		}
	}
	made := diff(documents)
	golden(t, "diff-created.txt", made.out)
	ends(made, exitDenied, made.out)
	if r := execute(t, newApplyCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", ready); r.code != 0 {
		t.Fatal(r.notes)
	}
	ends(diff(documents), 0, "")

	// The same with its defaults, in another order, in another form.
	same := `{"webhooks": [{"admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 10, "matchPolicy": "Equivalent",
	"rules": [{"scope": "*", "resources": ["deployments"], "apiVersions": ["v1"], "apiGroups": ["apps"], "operations": ["CREATE"]}],
	"failurePolicy": "Fail", "clientConfig": {}, "name": "policy.example.com"}],
	"metadata": {"name": "policy"}, "kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1"}`
	ends(diff(same), 0, "")

	changed := diff(strings.Replace(same, `"timeoutSeconds": 10`, `"timeoutSeconds": 5`, 1))
	golden(t, "diff-updated.txt", changed.out)
	ends(changed, exitDenied, changed.out)

	asJSON := diff(strings.Replace(documents, "failurePolicy: Fail", "failurePolicy: Ignore", 1), "-o", "json")
	var d struct {
		Objects []difference `json:"objects"`
	}
	if err := json.Unmarshal([]byte(asJSON.out), &d); err != nil || len(d.Objects) != 2 || d.Objects[0].Result != "updated" ||
		!strings.Contains(d.Objects[0].Diff, "-  failurePolicy: Fail\n+  failurePolicy: Ignore\n") || d.Objects[1].Result != "unchanged" || asJSON.code != exitDenied {
		t.Errorf("%v, exit code %d: %s", err, asJSON.code, asJSON.out)
	}
}

func TestDiffSaysWhyAnApplyWouldBeRefused(t *testing.T) {
	ready := withStore(t)
	dangerous := strings.NewReplacer("GROUP", "coordination.k8s.io", "deployments", "leases").Replace(appliedHooks)
	r := execute(t, newDiffCommand(), strings.NewReader(dangerous), "-f", "-", "--ready-file", ready)
	r.fails(t, "acknowledge danger-leases")
	if !strings.Contains(r.out, "+kind: ValidatingWebhookConfiguration") {
		t.Errorf("it does not show what there is to acknowledge: %s", r.out)
	}
	r = execute(t, newDiffCommand(), strings.NewReader(dangerous), "-f", "-", "--ready-file", ready, "--acknowledge", "danger-leases")
	r.ends(t, exitDenied, "danger: standard input:5: ValidatingWebhookConfiguration/policy")

	execute(t, newDiffCommand(), strings.NewReader(strings.Replace(appliedHooks, "sideEffects: None", "sideEffects: Some", 1)), "-f", "-", "--ready-file", ready).
		fails(t, "standard input:9", "webhooks[0].sideEffects")
	execute(t, newDiffCommand(), nil, "--ready-file", ready).fails(t, "-f is missing")
	execute(t, newDiffCommand(), nil, "-f", "https://example.com/a.yaml", "--ready-file", ready).fails(t, "is not read: fetch it")
}
