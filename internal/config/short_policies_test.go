package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoliciesOfAFile(t *testing.T) {
	const good = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: p}
spec:
  resources: [pods]
  parameters:
  - {name: most, default: 3}
  - {name: teams, default: [a, b], byCluster: {dev: []}}
  validations:
  - expression: parameters.most > 2 && 'a' in parameters.teams
    message: no
`
	text := strings.Replace(good, "message: no", "message: never", 1)
	for _, tc := range []struct {
		name, text string
		policies   []string
		problems   []string
	}{
		{"Two policies beside another document.", text + "---\n" + goodRoute + "---\n" + strings.Replace(text, "{name: p}", "{name: q}", 1), []string{"p 1", "q 25"}, nil},
		{"A word of YAML that is no text.", good, nil, []string{
			`f.yaml:11: Policy "p": spec.validations[0].message: wrong type: it is a boolean, and must be a string`,
		}},
		{"Errors have lines.", "# a comment\n---\n" + strings.NewReplacer("[pods]", "[pod]", "most,", "in,", "3}", "[[1]]}", "dev: []", "dev: 1").Replace(text), nil, []string{
			`f.yaml:7: Policy "p": spec.resources[0]: Invalid value: "pod": is no resource of Kubernetes that is known without its version: write its plural, ` +
				`as in pods, or GROUP/VERSION/RESOURCE, as in stable.example.com/v1/widgets; did you mean "pods"?`,
			`f.yaml:9: Policy "p": spec.parameters[0].name: Invalid value: "in": must be letters, digits and _, and no word of CEL such as in`,
			`f.yaml:9: Policy "p": spec.parameters[0].default: Invalid value: must be a list of texts, of numbers, or of true and false: lists in lists are not read`,
			`f.yaml:10: Policy "p": spec.parameters[1].byCluster[dev]: Invalid value: 1: is a number, and another value of the parameter is a list`,
		}},
		{"Expressions have lines.", strings.Replace(text, "parameters.most >", "parameters.mots >", 1), nil, []string{
			`f.yaml:10: Policy "p": spec.validations[0].expression: Invalid value: there is no parameter "mots" in spec.parameters; did you mean "most"?`,
		}},
		{"Unknown fields.", strings.Replace(text, "  resources", "  podController: true\n  resources", 1), nil, []string{
			`f.yaml:5: Policy "p": spec.podController: unknown field; did you mean "podControllers"?`,
		}},
		{"Mutations beside validations.", text + "  mutations: [{field: data.x, value: '1'}]\n", nil, []string{
			`f.yaml:12: Policy "p": spec.mutations: Forbidden: a Policy has validations or mutations: write the mutations into another Policy`,
		}},
		{"A Policy of another group.", strings.Replace(text, "portcullis.dev", "kyverno.io", 1), nil, []string{
			`f.yaml:1: Policy "p": apiVersion: Policy of kyverno.io/v1 belongs to Kyverno and is not judged here: write a Policy of portcullis.dev/v1 or a ` +
				"ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, or keep it in Kyverno, whose webhook the mesh can call (docs/coming-from.md#kyverno)",
		}},
		{"A Policy of an unknown group.", strings.Replace(text, "portcullis.dev", "example.com", 1), nil, []string{
			`f.yaml:1: Policy "p": apiVersion: Policy of example.com/v1 is not read: it is a manifest, and no policy or other configuration: ` +
				"`portcullis review -f PATH` judges manifests",
		}},
		{"No YAML.", "a: b: c\n", nil, []string{`f.yaml:1: not valid YAML: mapping values are not allowed in this context`}},
		{"Large documents.", strings.Repeat("#", MaxDocumentBytes) + "\n" + text, nil, []string{`f.yaml:1: the document has 3146015 bytes, and at most 3145728 are read`}},
		{"Large files.", strings.Repeat("#", MaxFileBytes+1), nil, []string{`f.yaml: the file has 16777217 bytes, and at most 16777216 are read: split it`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, problems := decode("f.yaml", []byte(tc.text))
			var got, found []string
			for _, o := range objects {
				if o.Short != nil {
					got = append(got, o.Name+" "+strings.TrimPrefix(o.Origin(), "f.yaml:"))
				}
			}
			for _, p := range problems {
				found = append(found, p.String())
			}
			if diff := cmp.Diff(tc.policies, got); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.problems, found); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPolicyIsAHookInEachClusterWhereItDiffers has policies with and without clusters of their own, and asks for the hook of a cluster.
func TestAPolicyIsAHookInEachClusterWhereItDiffers(t *testing.T) {
	for _, test := range []struct{ name, spec, want string }{
		{"one mode", "mode: enforce", "a enforce, b enforce, c enforce; 1 hook"},
		{"no mode", "failurePolicy: Fail", "a shadow, b shadow, c shadow; 1 hook"},
		{"modes by cluster", "modeByCluster: {a: enforce, b: warn}", "a enforce, b warn, c shadow; 3 hooks"},
		{"some clusters", "clusters: [a, c]\n  mode: warn", "a warn, b -, c warn; 1 hook"},
		{"some clusters, which differ", "clusters: [a, b]\n  mode: enforce\n  modeByCluster: {b: shadow}", "a enforce, b shadow, c -; 2 hooks"},
		{"clusters that all differ", "clusters: [a, b]\n  parameters: [{name: x, byCluster: {a: 1, b: 2}}]\n  mode: warn", "a warn, b warn, c -; 2 hooks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects, problems := decode("p.yaml", []byte("apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  resources: [pods]\n"+
				"  validations: [{expression: 'true', message: m}]\n  "+test.spec+"\n"))
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}

			snapshot, findings := Compile("r", objects)

			var modes []string
			for _, cluster := range []string{"a", "b", "c"} {
				mode := "-"
				for _, h := range snapshot.Hooks() {
					switch {
					case !h.Serves(cluster):
					case mode != "-":
						mode = "two hooks"
					case h.Route.Shadow:
						mode = "shadow"
					case h.FailurePolicy == "Fail":
						mode = "enforce"
					default:
						mode = "warn"
					}
				}
				modes = append(modes, cluster+" "+mode)
			}
			got := strings.Join(modes, ", ") + "; " + strings.TrimSuffix(fmt.Sprintf("%d hooks", len(snapshot.Hooks())), "s")
			if strings.TrimSuffix(test.want, "s") != got || len(findings) > 0 {
				t.Errorf("%s, want %s; %v", got, test.want, findings)
			}
		})
	}
}

// TestThePoliciesOfManyClustersHaveABound has the most clusters with a mode of their own that one Policy may name, and one more.
func TestThePoliciesOfManyClustersHaveABound(t *testing.T) {
	for clusters, want := range map[int]string{554: "", 555: "the document has rules with 10,008 combinations"} {
		var modes []string
		for i := range clusters {
			modes = append(modes, fmt.Sprintf("c%d: warn", i))
		}
		document := "apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  resources: [pods]\n" +
			"  podControllers: true\n  modeByCluster: {" + strings.Join(modes, ", ") + "}\n  validations: [{expression: 'true', message: m}]\n"

		objects, problems := decode("p.yaml", []byte(document))

		if err := problems.Err(); (err == nil) != (want == "") || (len(objects) == 1) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d clusters: %d objects, error %v, want %q", clusters, len(objects), err, want)
		}
	}
}
