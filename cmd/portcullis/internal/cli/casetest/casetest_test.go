package casetest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/casetest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

func test(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t, casetest.NewCommand(nil), nil, args...)
}

func TestEachFieldOfACaseHasACase(t *testing.T) {
	r := test(t, "testdata/features", "--coverage-min", "100")

	if r.Code != 0 || r.Notes != "" {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
	clitest.Golden(t, "features.txt", r.Out)
}

func TestTheLibraryIsCovered(t *testing.T) {
	citest.Sequential(t)
	if r := test(t, "../../../../../policies", "--coverage-min", "100"); r.Code != 0 {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}

func TestFailedCasesAreShownInEachForm(t *testing.T) {
	times := regexp.MustCompile(`time="[0-9.]+"`)
	for form, file := range map[string]string{"": "failing.txt", "json": "failing.json", "github": "failing-github.txt", "junit": "failing.xml"} {
		t.Run(file, func(t *testing.T) {
			args := []string{"testdata/failing", "--coverage"}
			if form != "" {
				args = append(args, "-o", form)
			}
			r := test(t, args...)
			r.Ends(t, 1)
			clitest.Golden(t, file, times.ReplaceAllString(r.Out, `time="0"`))
		})
	}
}

func TestCasesAreSelectedByName(t *testing.T) {
	r := test(t, "testdata/failing", "--run", "This .* passes", "-v")
	const want = "testdata/failing/cases.yaml:38: ok: This one passes\nok    testdata/failing/cases.yaml  1 case\nok: 1 case passed\n"
	if r.Code != 0 || r.Out != want {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
	test(t, "testdata/failing", "--run", "nothing").Fails(t, "--run nothing: no case has such a name")
	test(t, "testdata/failing", "--run", "(").Fails(t, "--run: error parsing regexp")
}

// TestReviewsOfCasesCanBeSentOn reads the reviews in JSON as Kubernetes does.
func TestReviewsOfCasesCanBeSentOn(t *testing.T) {
	var report struct {
		Files []struct {
			Cases []struct {
				Review json.RawMessage `json:"review"`
			} `json:"cases"`
		} `json:"files"`
	}
	if err := json.Unmarshal([]byte(test(t, "../../../../../policies/no-latest-tag", "-v", "-o", "json").Out), &report); err != nil {
		t.Fatal(err)
	}
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(report.Files[0].Cases[2].Review, &r); err != nil {
		t.Fatal(err)
	}
	if r.Kind != "AdmissionReview" || r.Request.Operation != admissionv1.Create || r.Request.Namespace != "shop" || r.Request.UID != r.Response.UID {
		t.Errorf("%+v", r)
	}
	const want = "Policy 'no-latest-tag' denied request: give a tag other than latest to nginx:latest"
	if r.Response.Allowed || r.Response.Result.Message != want {
		t.Errorf("allowed %t, %q, want %q", r.Response.Allowed, r.Response.Result.Message, want)
	}
	if out := test(t, "../../../../../policies/no-latest-tag", "-o", "json").Out; strings.Contains(out, `"review"`) {
		t.Errorf("reviews without --verbose: %s", out)
	}
}

func TestTooLittleCoverageFails(t *testing.T) {
	for _, least := range []string{"50", "50%"} {
		r := test(t, "--run=^This", "--coverage-min", least, "testdata/failing")
		r.Ends(t, 1, "Error: the cases cover 5.0 % of the rules, and must cover 50 %")
	}
	test(t, "testdata/failing", "--coverage-min", "101").Fails(t, "--coverage-min 101%: must be at most 100%")
	test(t, "testdata/failing", "--coverage-min", "-1").Fails(t, "write a number of percent, as in 10%")
}

func TestPathsInACaseFileMayBeAbsolute(t *testing.T) {
	library, err := filepath.Abs("../../../../../policies/no-latest-tag/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, dir := t.TempDir(), t.TempDir()
	write(t, elsewhere, "pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: 'nginx:latest'}]}}")
	write(t, dir, "cases.yaml", "policies: ["+library+"]\ncases:\n- {name: It is judged, object: "+filepath.Join(elsewhere, "pod.yaml")+", verdict: denied}\n")
	if r := test(t, dir); r.Code != 0 {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}

// TestSelectorsCountForCoverage: selectors of a policy have to leave a request out, and a binding has to meet a request and to leave one out.
func TestSelectorsCountForCoverage(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policies.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
    excludeResourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments], resourceNames: [old]}]
    objectSelector: {matchExpressions: [{key: big, operator: DoesNotExist}]}
  validations: [{expression: object.spec.replicas <= 5}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: everywhere}
spec: {policyName: few, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: production}
spec:
  policyName: few
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {env: prod}}}
`)
	const cases = `defaults:
  object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, selector: {}, template: {}}}
cases:
- {name: Few, verdict: allowed}
- {name: Many, with: {spec.replicas: 6}, verdict: denied}
`
	inProduction := strings.Replace(cases, "cases:", "  namespaceLabels: {env: prod}\ncases:", 1)
	for cases, want := range map[string][]string{
		cases: {
			":5: ValidatingAdmissionPolicy/few: spec.matchConstraints.excludeResourceRules never excluded a request\n",
			":5: ValidatingAdmissionPolicy/few: spec.matchConstraints.objectSelector never excluded a request\n",
			":22: ValidatingAdmissionPolicyBinding/production: spec.matchResources never met a request\n", "coverage: 50.0 %, 3 of 6 outcomes of rules\n",
		},
		inProduction: {":22: ValidatingAdmissionPolicyBinding/production: spec.matchResources met every request\n", "coverage: 50.0 %, 3 of 6 outcomes of rules\n"},
		cases + `- {name: In production, namespaceLabels: {env: prod}, verdict: allowed}
- {name: A big one, with: {metadata.labels.big: x, spec.replicas: 6}, verdict: unmatched}
- {name: An old one, with: {metadata.name: old, spec.replicas: 6}, verdict: unmatched}
`: {"coverage: 100.0 %, 6 of 6 outcomes of rules\n"},
	} {
		write(t, dir, "cases.yaml", cases)
		r := test(t, dir, "--coverage")
		for _, part := range want {
			if r.Code != 0 || !strings.Contains(r.Out, part) {
				t.Errorf("exit code %d, no %q in:\n%s", r.Code, part, r.Out)
			}
		}
	}
}

func TestFilesThatCannotBeReadAreFaults(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}"
	one := func(fields string) string {
		return "cases:\n- name: a\n  object: " + pod + "\n  " + strings.ReplaceAll(fields, "\n", "\n  ") + "\n"
	}
	for name, of := range map[string]struct{ cases, want string }{
		"an unknown field":                        {one("verdict: denied\nmesage: x"), `cases.yaml:2: unknown field "mesage"; did you mean "message"?`},
		"an unknown field of the file":            {"polices: [a]\ncases: []\n", `cases.yaml:1: unknown field "polices"; did you mean "policies"?`},
		"an unknown field of defaults":            {"defaults:\n  usr: a\n" + one("verdict: denied"), `cases.yaml:2: unknown field "defaults.usr"; did you mean "user"?`},
		"a field of a permission":                 {one("verdict: denied\nauthorizer: [{vreb: get}]"), `unknown field "authorizer[0].vreb"; did you mean "verb"?`},
		"a name in the defaults":                  {"defaults: {name: a}\n" + one("verdict: denied"), "cases.yaml:1: defaults.name: each case has a name of its own"},
		"no verdict":                              {one("user: a"), "cases.yaml:2: verdict: it is required: allowed, denied, unmatched, failed"},
		"a verdict that is none":                  {one("verdict: denid"), `verdict: "denid" is none: use allowed, denied, unmatched, failed; did you mean "denied"?`},
		"no name":                                 {"cases:\n- {object: " + pod + ", verdict: denied}\n", "cases.yaml:2: name: it is required"},
		"a name twice":                            {one("verdict: denied") + "- {name: a, object: " + pod + ", verdict: denied}\n", `cases.yaml:5: the name "a" stands on line 2 already`},
		"a table without a verdict":               {"- {name: a, object: " + pod + "}\n", "cases.yaml:1: expect: allowed is required"},
		"an unknown field of a table":             {"- {name: a, expect: {patches: []}}\n", `cases.yaml:1: unknown field "expect.patches"; did you mean "patch"?`},
		"a patch of a table that does not fit":    {"- {name: a, object: " + pod + ", expect: {allowed: true, patch: [{op: remove, path: /a}]}}\n", "cases.yaml:1: "},
		"a name twice in a table":                 {strings.Repeat("- {name: a, object: "+pod+", expect: {allowed: true}}\n", 2), `cases.yaml:2: the name "a" stands on line 1 already`},
		"no cases":                                {"cases: []\n", "cases.yaml: there are no cases"},
		"a field twice":                           {one("verdict: denied\nverdict: allowed"), `cases.yaml:5: not valid YAML: key "verdict" already set in map`},
		"several documents":                       {one("verdict: denied") + "---\na: b\n", "there are several documents in the file"},
		"no YAML":                                 {"cases: [\n", "cases.yaml:1: not valid YAML: "},
		"tabs":                                    {"cases:\n- name: a\n\tverdict: denied\n", "cases.yaml:3: not valid YAML: found a tab character that violates indentation: tabs indent nothing"},
		"nothing":                                 {"# nothing\n", "there is no document in the file"},
		"a list in the place of a text":           {one("verdict: [denied]"), "cases.yaml:2: verdict: wrong type: it is a list, and must be a string"},
		"a text in the place of a number":         {one("verdict: denied\ncode: many"), "cases.yaml:2: code: wrong type: it is a string, and must be a whole number (int32)"},
		"a mapping in the place of texts":         {one("verdict: denied\nmessage: {a: b}"), "cases.yaml:2: message: must be a text or a list of texts"},
		"an item of the list that is a text":      {"cases: [a]\n", "cases.yaml:1: cases[0]: wrong type: it is a string, and must be a mapping"},
		"review and object":                       {one("verdict: denied\nreview: a.yaml"), "review: it takes the place of object, with"},
		"patched and changes":                     {one("verdict: allowed\npatched: {}\nchanges: {}"), "changes: it takes the place of patched"},
		"changes of a denied object":              {one("verdict: denied\nchanges: {}"), "only an allowed request has an object after mutations"},
		"a message of an allowed one":             {one("verdict: allowed\nmessage: a"), "an allowed request has none"},
		"an operation that is none":               {one("verdict: denied\noperation: create"), `operation: "create" is none: use CREATE, UPDATE, DELETE or CONNECT`},
		"a path that is none":                     {one("verdict: denied\nwith: {a..b: c}"), `"a..b": a name is missing between two dots`},
		"a resource that is none":                 {one("verdict: denied\nauthorizer: [{resource: pod}]"), `authorizer[0]: resource: "pod" is no resource of Kubernetes`},
		"an object file that is not there":        {"cases:\n- {name: a, object: b.yaml, verdict: denied}\n", "cases.yaml:2: object: b.yaml: there is no such file"},
		"an object that is no object of its kind": {"cases:\n- {name: a, object: {apiVersion: v1, kind: Pod, spec: 5}, verdict: denied}\n", "cases.yaml:2: object: spec: wrong type: it is a number, and must be a mapping"},
		"no object":                               {"cases:\n- {name: a, verdict: denied}\n", "cases.yaml:2: object: it is required"},
		"a change of nothing":                     {one("verdict: denied\nwith: {spec.hostNetwork: null}"), `with: "spec.hostNetwork": hostNetwork: there is no such field to remove`},
		"a policy that is not there":              {one("verdict: denied\npolicy: lable-team"), `cases.yaml:2: policy: there is no policy "lable-team"; did you mean "label-team"?`},
		"a parameter that no Policy has":          {one("verdict: denied\nparams: {taems: [a]}"), `cases.yaml:2: params: no Policy has a parameter "taems"; did you mean "teams"?`},
		"a value of another type":                 {one("verdict: denied\nparams: {teams: a}"), `cases.yaml:2: params: teams of Policy/label-team: Invalid value: "a": is a text, and another value of the parameter is a list`},
		"no value":                                {one("verdict: denied\nparams: {teams: null}"), `params: teams of Policy/label-team: Invalid value: must be a text, a number`},
		"params that are a number":                {one("verdict: denied\nparams: 5"), "cases.yaml:2: params: must be a list of objects or of their files"},
		"params without a kind":                   {one("verdict: denied\nparams: [{a: b}]"), "cases.yaml:2: params[0]: Object 'Kind' is missing"},
		"a file of params that is not there":      {one("verdict: denied\nparams: b.yaml"), "b.yaml: no such file"},
		"policies that are not there":             {"policies: [x]\n" + one("verdict: denied"), "policies: "},
		"a review that is none":                   {"cases:\n- {name: a, review: {a: b}, verdict: denied}\n", "cases.yaml:2: review: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "cases.yaml", of.cases)
			policy, err := os.ReadFile("testdata/features/policies.yaml")
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, "policies.yaml", string(policy))
			test(t, dir).Fails(t, of.want)
		})
	}
}

func TestPoliciesThatCannotBeReadAreFaults(t *testing.T) {
	const cases = "cases:\n- {name: a, object: {apiVersion: v1, kind: Pod, metadata: {name: a}}, verdict: denied}\n"
	for name, of := range map[string]struct{ policies, want string }{
		"none":                 {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "there is no policy in "},
		"a kind that is wrong": {"apiVersion: portcullis.dev/v1\nkind: Polcy\nmetadata: {name: a}\n", `did you mean "Policy"?`},
		"a bad policy": {
			"apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: a}\nspec: {resources: [pods], validations: [{expression: 'objct', message: b}]}\n",
			`policies.yaml:4: Policy "a": spec.validations[0].expression`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "cases.yaml", cases)
			write(t, dir, "policies.yaml", of.policies)
			test(t, dir).Fails(t, of.want)
		})
	}
	test(t, t.TempDir()).Fails(t, "there is no case file")
	test(t, "testdata/missing").Fails(t, "testdata/missing")
	test(t).Fails(t, "name the directories")
}

// TestManyCases has a file of a thousand cases, which share an object.
func TestManyCases(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("defaults:\n  policy: label-team\n  verdict: denied\n  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}\ncases:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "- {name: case %d}\n", i)
	}
	write(t, dir, "a.cases.yaml", text.String())
	policy, err := os.ReadFile("testdata/features/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "policies.yaml", string(policy))
	if r := test(t, dir); r.Code != 0 || !strings.HasSuffix(r.Out, "ok: 1000 cases passed\n") {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
