package config

import (
	"encoding/json"
	"testing"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

func TestTheModeOfAPolicyNamesTheClustersWhereItDiffers(t *testing.T) {
	for spec, want := range map[string][2]string{
		`{}`:                                {"shadow", `{"mode":"shadow"}`},
		`{"mode":"warn"}`:                   {"warn", `{"mode":"warn"}`},
		`{"modeByCluster":{"a":"enforce"}}`: {"shadow; enforce in a", `{"mode":"shadow","modeByCluster":{"a":"enforce"}}`},
		`{"modeByCluster":{"a":"shadow"}}`:  {"shadow", `{"mode":"shadow"}`},
		`{"mode":"enforce","modeByCluster":{"b":"warn","a":"warn","c":"shadow"}}`: {
			"enforce; shadow in c; warn in a, b", `{"mode":"enforce","modeByCluster":{"a":"warn","b":"warn","c":"shadow"}}`,
		},
		`{"clusters":["a"],"modeByCluster":{"a":"warn","b":"enforce"}}`: {"warn in a", `{"mode":"shadow","modeByCluster":{"a":"warn"}}`},
		`{"clusters":["a","b"],"modeByCluster":{"a":"warn"}}`:           {"shadow; warn in a", `{"mode":"shadow","modeByCluster":{"a":"warn"}}`},
		`{"modeByCluster":{"a":"warn","b":"warn","c":"warn","d":"warn"}}`: {
			"shadow; warn in 4 clusters", `{"mode":"shadow","modeByCluster":{"a":"warn","b":"warn","c":"warn","d":"warn"}}`,
		},
	} {
		o := &configv1.ConfigObject{
			Key:        &configv1.ConfigKey{Kind: "Policy", Name: "p"},
			Manifest:   &admissionv1.Object{Raw: []byte(`{"apiVersion":"portcullis.dev/v1","kind":"Policy","metadata":{"name":"p"},"spec":` + spec + `}`)},
			Conditions: []*configv1.Condition{{Type: "Accepted", Status: "True"}},
		}
		status := map[string]any{}
		policyModeOf(o).addTo(status)
		if got, err := json.Marshal(status); modeText(o) != want[0] || err != nil || string(got) != want[1] {
			t.Errorf("%s: %q and %s, want %q", spec, modeText(o), got, want)
		}
		o.Conditions = append(o.Conditions, &configv1.Condition{Type: "Deciding", Status: "False", Reason: "Shadow"})
		if got := modeText(o); got != "shadow" {
			t.Errorf("%s, in shadow by a HookRoute: %q", spec, got)
		}
	}
}
