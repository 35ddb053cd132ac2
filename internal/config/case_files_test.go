package config_test

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

func TestCasesBesidePoliciesAreNoConfiguration(t *testing.T) {
	const cases = "cases:\n- {name: a, object: {apiVersion: v1, kind: Pod}, verdict: denied}\n"
	const cluster = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {identities: [a]}\n"
	for name, of := range map[string]struct {
		file, text        string
		objects, problems int
	}{
		"a case file":                        {"policies/cases.yaml", cases, 0, 0},
		"a case file with a name":            {"policies/limits.cases.yml", cases, 0, 0},
		"cases in a file of another name":    {"policies/limits.yaml", cases, 0, 1},
		"an object in a case file":           {"policies/cases.yaml", cluster, 1, 0},
		"an object without a kind":           {"policies/cases.yaml", "metadata: {name: a}\n", 0, 1},
		"a kind that is wrong, beside cases": {"policies/cases.yaml", "kind: Clustr\n" + cases, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			objects, problems := configtest.Decode(of.file, []byte(of.text))
			if len(objects) != of.objects || len(problems) != of.problems {
				t.Errorf("%d objects, %v", len(objects), problems)
			}
		})
	}
}
