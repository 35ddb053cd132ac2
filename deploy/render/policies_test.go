package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// policySpec is the part of a Policy that values change.
type policySpec struct {
	Kind string `json:"kind"`
	Spec struct {
		Mode          string            `json:"mode"`
		ModeByCluster map[string]string `json:"modeByCluster"`
		Resources     []string          `json:"resources"`
	} `json:"spec"`
}

// TestTheChartInstallsTheLibraryInShadow and as it stands in policies/, of which the chart has copies.
func TestTheChartInstallsTheLibraryInShadow(t *testing.T) {
	files, err := filepath.Glob("../../policies/*/policy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no policies: ", err)
	}
	rendered, err := render(t, "policies.library={*}", "policies.specs.no-latest-tag.mode=warn", "policies.specs.no-latest-tag.modeByCluster.prod-1=enforce")
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.ConfigMap
	objectOf(t, rendered, "ConfigMap", "portcullis-config", &got)
	if len(got.Data) != len(files) {
		t.Errorf("%d documents of %d policies", len(got.Data), len(files))
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := got.Data["policy-"+name+".yaml"]
		var p policySpec
		if err := yaml.Unmarshal([]byte(text), &p); err != nil || p.Kind != "Policy" || len(p.Spec.Resources) == 0 {
			t.Errorf("%s: %v, %s", name, err, text)
		}
		switch {
		case name == "no-latest-tag":
			if p.Spec.Mode != "warn" || p.Spec.ModeByCluster["prod-1"] != "enforce" {
				t.Errorf("%s has not the spec of the values: %s", name, text)
			}
		case strings.TrimSpace(text) != strings.TrimSpace(string(want)):
			t.Errorf("%s is not as in policies/: run make schemas", name)
		case p.Spec.Mode != "" && p.Spec.Mode != "shadow":
			t.Errorf("%s is in mode %s", name, p.Spec.Mode)
		}
	}
}

func TestPoliciesThatTheLibraryLacksAreRefused(t *testing.T) {
	for set, want := range map[string]string{
		"policies.library={no-latest}":                                   `there is no policy "no-latest"; there are allowed-registries, `,
		"policies.specs.no-latest-tag.mode=warn":                         `policies.library has no policy "no-latest-tag"`,
		"policies.library={No}":                                          "at '/policies/library/0'",
		"policies.library={probes},configuration.existingConfigMap=mine": "policies.library is written into the ConfigMap",
		"policies.library={probes},policies.specs.probes=enforce":        "at '/policies/specs/probes'",
	} {
		if _, err := render(t, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: error %v, want one that says %s", set, err, want)
		}
	}
}
