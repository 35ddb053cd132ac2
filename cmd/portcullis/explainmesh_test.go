package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestExplainTellsOfAnObjectOfTheMesh(t *testing.T) {
	ready := withStore(t)
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	if r := execute(t, newApplyCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--wait"); r.code != 0 {
		t.Fatal(r.notes)
	}
	r := execute(t, newExplainCommand(), nil, "route", "policy", "--ready-file", ready)
	for _, want := range []string{"HookRoute/policy is in force everywhere\n", "etcd, generation 1", " ago) by " + devAPIServer, "test  has it  judges new reviews by revision ", "created HookRoute/policy"} {
		if !strings.Contains(r.out, want) || r.code != 0 {
			t.Errorf("no %q in %s%s", want, r.out, r.notes)
		}
	}
	var told struct {
		Object struct {
			Manifest struct {
				Kind string `json:"kind"`
			} `json:"manifest"`
		} `json:"object"`
		Verdict string `json:"verdict"`
		Changes []struct {
			Actor string `json:"actor"`
		} `json:"changes"`
	}
	r = execute(t, newExplainCommand(), nil, "HookRoute/policy", "-o", "json", "--ready-file", ready)
	if err := json.Unmarshal([]byte(r.out), &told); err != nil || told.Object.Manifest.Kind != "HookRoute" || told.Verdict == "" || told.Changes[0].Actor != devAPIServer {
		t.Errorf("%v: %s", err, r.out)
	}
	r = execute(t, newExplainCommand(), nil, "HookRoute/policy", "-o", "yaml", "--ready-file", ready)
	if !strings.Contains(r.out, "\nobject:\n") && !strings.HasPrefix(r.out, "changes:\n") {
		t.Errorf("as YAML: %s", r.out)
	}
	execute(t, newExplainCommand(), nil, "route", "none", "--ready-file", ready).ends(t, exitDenied, "there is no HookRoute/none")
}
