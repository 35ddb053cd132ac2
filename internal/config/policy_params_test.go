package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// paramsNamed are PolicyParams, with more lines of their spec, and objects below them.
func paramsNamed(name, spec string, objects ...string) string {
	return "apiVersion: portcullis.dev/v1\nkind: PolicyParams\nmetadata: {name: " + name + "}\nspec:\n" + spec + "  objects:\n" +
		strings.Join(append(objects, ""), "\n")
}

const (
	goodLimit  = `  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: x, labels: {a: b}}, spec: {most: 3, ratio: 0.5, of: [a, null]}}`
	goodConfig = `  - {apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: ns}, data: {most: "3"}}`
)

func TestParamsOfAFile(t *testing.T) {
	change := func(old, text string) string {
		return paramsNamed("p", "", goodConfig, strings.Replace(goodLimit, old, text, 1))
	}
	for name, tc := range map[string]struct {
		text     string
		problems []string
	}{
		"good ones": {paramsNamed("p", "  clusters: [a]\n", goodLimit, goodConfig) + "---\n" + paramsNamed("q", "  clusters: [b]\n", goodLimit), nil},
		"no object": {paramsNamed("p", ""), []string{`f.yaml:5: PolicyParams "p": spec.objects: Required value: the params, for example a ConfigMap`}},
		"null": {change(goodLimit, "  -"), []string{
			`f.yaml:7: PolicyParams "p": spec.objects[1].apiVersion: Required value: the version of the object, as in v1 or example.com/v1`,
			`f.yaml:7: PolicyParams "p": spec.objects[1].kind: Required value: the kind of the object, as in ConfigMap`,
			`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.name: Required value: paramRef.name or the order of params goes by it`,
		}},
		"no name":      {change("name: x, ", ""), []string{`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.name: Required value: paramRef.name or the order of params goes by it`}},
		"no text":      {change("name: x", "name: 5"), []string{`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.name: Invalid value: 5: must be a text: put it in quotes`}},
		"no namespace": {change("name: x", `name: x, namespace: ""`), []string{`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.namespace: Required value`}},
		"no metadata": {change("metadata: {name: x, labels: {a: b}}", "metadata: x"), []string{
			`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.name: Invalid value: null: must be a text: put it in quotes`,
			`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.namespace: Invalid value: null: must be a text: put it in quotes`,
		}},
		"no version": {change("example.com/v1", "a/b/c"), []string{
			`f.yaml:7: PolicyParams "p": spec.objects[1].apiVersion: Invalid value: "a/b/c": must be VERSION or GROUP/VERSION, as in v1 or example.com/v1`,
		}},
		"a number as a label": {change("a: b", "a: 1"), []string{
			`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.labels: Forbidden: must be a mapping of texts to texts: put values in quotes`,
		}},
		"a bad label": {change("a: b", "a: b c"), []string{`f.yaml:7: PolicyParams "p": spec.objects[1].metadata.labels: Invalid value: "b c": a valid label must be an ` +
			`empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  ` +
			`or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`}},
		"a Secret": {change("example.com/v1, kind: Limit", "v1, kind: Secret"), []string{
			`f.yaml:7: PolicyParams "p": spec.objects[1]: Forbidden: each reader of the configuration would see the Secret: leave it in the cluster, or write a ConfigMap`,
		}},
		"a Secret of another group": {change("kind: Limit", "kind: Secret"), nil},
		"a field twice":             {change("{most: 3", "{most: 3, most: 4"), []string{`f.yaml:7: PolicyParams "p": spec.objects[1].spec.most: duplicate field: it stands on line 7 already`}},
		"an unknown field":          {paramsNamed("p", "  cluster: [a]\n", goodLimit), []string{`f.yaml:5: PolicyParams "p": spec.cluster: unknown field; did you mean "clusters"?`}},
		"a bad cluster":             {paramsNamed("p", "  clusters: [a, a]\n", goodLimit), []string{`f.yaml:5: PolicyParams "p": spec.clusters[1]: Duplicate value: "a"`}},
		"a kind written nearly so": {strings.Replace(paramsNamed("p", "", goodLimit), "PolicyParams", "PolicyParam", 1), []string{
			`f.yaml:1: PolicyParam "p": apiVersion: PolicyParam of portcullis.dev/v1 is not read; ` +
				`did you mean "PolicyParams"?`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, problems := decode("f.yaml", []byte(tc.text))
			var found []string
			for _, p := range problems {
				found = append(found, p.String())
			}
			if diff := cmp.Diff(tc.problems, found); diff != "" || (len(objects) == 0) != (len(found) > 0) {
				t.Errorf("%d objects, problems (-want +got):\n%s", len(objects), diff)
			}
		})
	}
}

// TestParamsThatContradictEachOtherAreProblems of both documents, at the lines of the objects.
func TestParamsThatContradictEachOtherAreProblems(t *testing.T) {
	namespaced := strings.Replace(goodLimit, "name: x", "name: other, namespace: ns", 1)
	for name, tc := range map[string]struct {
		text     string
		problems []string
	}{
		"of other clusters": {paramsNamed("p", "  clusters: [a]\n", goodLimit) + "---\n" + paramsNamed("q", "  clusters: [b]\n", namespaced), nil},
		"of other kinds":    {paramsNamed("p", "", goodLimit, strings.Replace(goodLimit, "v1", "v2", 1)), nil},
		"twice": {paramsNamed("p", "  clusters: [b, c]\n", goodConfig, goodLimit) + "---\n" + paramsNamed("q", "", goodLimit), []string{
			`f.yaml:8: PolicyParams "p": spec.objects[1]: an object stands there twice for cluster "b": see spec.objects[0] of PolicyParams/q; ` +
				`until they agree, policies with params of kind Limit fail there, and their failurePolicy decides`,
			`f.yaml:15: PolicyParams "q": spec.objects[0]: an object stands there twice for cluster "b": see spec.objects[1] of PolicyParams/p; ` +
				`until they agree, policies with params of kind Limit fail there, and their failurePolicy decides`,
		}},
		"with a namespace and without": {paramsNamed("p", "", goodLimit, namespaced), []string{
			`f.yaml:6: PolicyParams "p": spec.objects[0]: one object of a kind has a namespace and another has none: see spec.objects[1] of PolicyParams/p; ` +
				`until they agree, policies with params of kind Limit fail there, and their failurePolicy decides`,
			`f.yaml:7: PolicyParams "p": spec.objects[1]: one object of a kind has a namespace and another has none: see spec.objects[0] of PolicyParams/p; ` +
				`until they agree, policies with params of kind Limit fail there, and their failurePolicy decides`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Compile("r", decoded(t, tc.text))
			var found []string
			for _, p := range problems {
				found = append(found, p.String())
				if p.Code != CodeParamsConflict {
					t.Errorf("code %s", p.Code)
				}
			}
			if diff := cmp.Diff(tc.problems, found); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParamsHaveBounds has the most of each figure, and one more.
func TestParamsHaveBounds(t *testing.T) {
	several := func(objects, clusters int) string {
		var all, names []string
		for i := range objects {
			all = append(all, fmt.Sprintf("  - {apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, namespace: ns}}", i))
		}
		for i := range clusters {
			names = append(names, fmt.Sprintf("c%d", i))
		}
		return paramsNamed("p", "  clusters: ["+strings.Join(names, ", ")+"]\n", all...)
	}
	large := func(items int) string { // each takes 98 bytes
		return paramsNamed("p", "", "  - {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}, data: ["+strings.Repeat("1,", items)+"1]}")
	}
	for name, tc := range map[string]struct{ text, want string }{
		"objects":                 {several(kinds.MaxParamObjects, 0), ""},
		"too many objects":        {several(kinds.MaxParamObjects+1, 0), "spec.objects: Too many: 1001: must have at most 1000 items"},
		"objects by clusters":     {several(kinds.MaxParamObjects, MaxParams/kinds.MaxParamObjects), ""},
		"too many for clusters":   {several(kinds.MaxParamObjects, MaxParams/kinds.MaxParamObjects+1), "11,000 objects of PolicyParams, counted for each cluster that their document names, and at most 10,000"},
		"memory":                  {large(42_000), ""},
		"too much":                {large(43_000), "and at most 4,194,304: split it"},
		"far more than documents": {large(43_000_000 / 40), "and at most 4,194,304: split it"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, problems := decode("f.yaml", []byte(tc.text))
			if err := problems.Err(); (err == nil) != (tc.want == "") || (len(objects) == 1) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d objects, %v, want %q", len(objects), err, tc.want)
			}
		})
	}
}

// TestAChangeOfParamsIsAChangeOfTheirPolicies alone: the others are taken from the last snapshot.
func TestAChangeOfParamsIsAChangeOfTheirPolicies(t *testing.T) {
	policy := func(name, kind string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: " + name + "}\nspec:\n  paramKind: " + kind +
			"\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n" +
			"  validations: [{expression: 'true'}]\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n" +
			"metadata: {name: " + name + "}\nspec: {policyName: " + name + ", validationActions: [Deny], paramRef: {name: x, parameterNotFoundAction: Deny}}\n---\n"
	}
	policies := policy("limits", "{apiVersion: example.com/v1, kind: Limit}") + policy("maps", "{apiVersion: v1, kind: ConfigMap}")
	before, _ := Compile("a", decoded(t, policies+paramsNamed("p", "", goodLimit)+"---\n"+paramsNamed("q", "", goodConfig)))
	for changed, text := range map[string]string{
		"":       paramsNamed("p", "", goodLimit) + "---\n" + paramsNamed("q", "", goodConfig),
		"limits": paramsNamed("p", "", strings.Replace(goodLimit, "3", "4", 1)) + "---\n" + paramsNamed("q", "", goodConfig),
		"maps":   paramsNamed("p", "", goodLimit) + "---\n" + paramsNamed("q", "  clusters: [a]\n", goodConfig),
	} {
		after, problems := Recompile(before, "b", decoded(t, policies+text))
		if problems.Err() != nil {
			t.Fatal(problems)
		}
		var got string
		for i, h := range after.Hooks() {
			if h != before.Hooks()[i] {
				got += h.ID.Name
			}
		}
		if got != changed {
			t.Errorf("changed %q, want %q", got, changed)
		}
	}
}
