package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

const policies = `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: label-team}
spec:
  resources: [pods]
  exclude: {namespaces: [kube-system]}
  validations: [{expression: "'team' in labels", message: set the label team}]
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: few-replicas}
spec:
  resources: [deployments]
  validations: [{expression: object.spec.replicas < 3, message: too many replicas}]
`

const caseFile = `
cases:
- name: A team is allowed
  object: {apiVersion: v1, kind: Pod, metadata: {name: web, labels: {team: web}}}
  verdict: allowed
- name: No team is denied
  object: {apiVersion: v1, kind: Pod, metadata: {name: web}}
  verdict: denied
- name: A verdict that is wrong counts all the same
  object: {apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: web}}}
  verdict: allowed
`

func bench(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t, NewCommand(), nil, args...)
}

// begin goes to a folder with policies and their cases.
func begin(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "policies.yaml", policies)
	write(t, "cases.yaml", caseFile)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// measured is the report of the folder.
func measured(t *testing.T, args ...string) (report, clitest.Result) {
	t.Helper()
	result := bench(t, append(args, ".", "-o", "json")...)
	var r report
	if err := json.Unmarshal([]byte(result.Out), &r); err != nil {
		t.Fatalf("%v: %+v", err, result)
	}
	return r, result
}

func TestCostsAreCountedForEachPolicyAndCase(t *testing.T) {
	begin(t)
	r, result := measured(t)
	if result.Code != 0 || len(r.Policies) != 2 {
		t.Fatalf("%+v", result)
	}
	for _, p := range r.Policies {
		for _, c := range p.Cases {
			if c.Nanoseconds <= 0 {
				t.Errorf("%s: no time", c.Name)
			}
			c.Nanoseconds = 0
		}
		p.Nanoseconds = 0
	}
	file := func(line int, name string, cost int64) *caseReport {
		return &caseReport{"cases.yaml", line, name, cost, 0}
	}
	want := []*policyReport{
		{Policy: "Policy/few-replicas", File: "policies.yaml", Line: 10, Cases: []*caseReport{}},
		{
			Policy: "Policy/label-team", File: "policies.yaml", Line: 2, Cost: &cost{10, 32.0 / 3, 11}, CallShare: 5e-06, BudgetShare: 1.2e-06,
			Costliest: "A team is allowed", Cases: []*caseReport{
				file(3, "A team is allowed", 11), file(6, "No team is denied", 10), file(9, "A verdict that is wrong counts all the same", 11),
			},
		},
	}
	if diff := cmp.Diff(want, r.Policies); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCasesAreSelectedByName(t *testing.T) {
	begin(t)
	r, _ := measured(t, "--run", "^No team")
	if n := len(r.Policies[1].Cases); n != 1 {
		t.Errorf("%d cases", n)
	}
	bench(t, ".", "--run", "nothing").Fails(t, "--run nothing: no case has such a name")
}

func TestCostsAreCompared(t *testing.T) {
	begin(t)
	_, before := measured(t)
	write(t, "old.out", before.Out)
	if r := bench(t, ".", "--compare", "old.out", "--threshold", "0"); r.Code != 0 ||
		!strings.HasSuffix(r.Out, "\nno case that both have: Policy/few-replicas\nok: no cost has grown by more than 0 %, of 1 policy that both have\n") {
		t.Errorf("%+v", r)
	}

	write(t, "elsewhere.out", strings.ReplaceAll(before.Out, "policies.yaml", "elsewhere/policies.yaml"))
	if r := bench(t, ".", "--compare", "elsewhere.out"); strings.Contains(r.Out, "ok: ") {
		t.Errorf("%+v", r)
	} else {
		r.Fails(t, "--compare elsewhere.out: nothing is compared")
	}

	dearer := strings.NewReplacer("'team' in labels", "'team' in labels && object.metadata.name != ''", "few-replicas", "fewer-replicas").Replace(policies)
	write(t, "policies.yaml", dearer)
	r := bench(t, ".", "--compare", "old.out")
	r.Ends(t, 1, "the cost has grown by more than 10%: Policy/label-team")
	for _, line := range []string{
		"\ngrown: Policy/label-team: by 27.3 %, on cases that both have (3): mean 10.7 to 11.7, most 11 to 14; by the most units in \"A team is allowed\"\n",
		"\nnew: Policy/fewer-replicas\n", "\ngone: Policy/few-replicas\n",
	} {
		if !strings.Contains(r.Out, line) {
			t.Errorf("no %q in:\n%s", line, r.Out)
		}
	}
	if r := bench(t, ".", "--compare", "old.out", "--threshold", "50%"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	inJSON, _ := measured(t, "--compare", "old.out")
	if c := inJSON.Comparison; len(c.Grown) != 1 || len(c.Policies) != 1 || *c.Grown[0].Growth < 27 || len(c.New) != 1 || len(c.Gone) != 1 {
		t.Errorf("%+v", c)
	}

	write(t, "cases.yaml", strings.ReplaceAll(caseFile, "name: web", "name: web, annotations: {a: b}"))
	write(t, "policies.yaml", policies)
	if r := bench(t, ".", "--compare", "old.out", "--threshold", "0"); r.Code != 0 {
		t.Errorf("another object is no growth: %+v", r)
	}
}

func TestGrowthFromNothingIsGrowth(t *testing.T) {
	of := func(cost int64) *report {
		return &report{Policies: []*policyReport{{Policy: "Policy/a", Cases: []*caseReport{{Name: "x", Cost: cost}, {Name: "y"}}}}}
	}
	var text strings.Builder
	if err := compare(of(0), of(5), 1000).write(&text); err != nil || !strings.HasPrefix(text.String(), "grown: Policy/a: from nothing, ") {
		t.Errorf("%v, %q", err, text.String())
	}
	if c := compare(of(5), of(0), 0); len(c.Grown) != 0 || *c.Policies[0].Growth != -100 {
		t.Errorf("%+v", c)
	}
}

func TestWhatIsCalledWronglyIsSaid(t *testing.T) {
	begin(t)
	write(t, "other.out", `{"kind": "List"}`)
	for _, of := range []struct{ args, want string }{
		{"", "name the directories"},
		{". --threshold 5", "--threshold needs --compare OLD"},
		{". --compare other.out", "other.out: this is no output of `portcullis bench -o json`"},
		{". --compare cases.yaml", "cases.yaml: this is no output of `portcullis bench -o json`"},
		{". --compare nothing.json", "nothing.json"},
		{". --compare other.out --threshold much", "write a number of percent, as in 10%"},
		{". --compare other.out --threshold=-1%", "write a number of percent, as in 10%"},
		{". --count 0", "must be a number from 1 to 10000"},
		{". --run (", "--run: error parsing regexp"},
		{". --treshold 5", `did you mean "threshold"`},
	} {
		bench(t, strings.Fields(of.args)...).Fails(t, of.want)
	}
	write(t, "cases.yaml", "cases: [{name: a, object: {kind: Pod}, verdict: denied}]")
	bench(t, ".").Fails(t, "cases.yaml:1: object: it has no apiVersion")
	if err := os.Remove("cases.yaml"); err != nil {
		t.Fatal(err)
	}
	bench(t, ".").Fails(t, "there is no case file")
}

// TestThePageShowsItsOutput follows docs/policy-tests.md, whose first two documents are a policy and its cases.
func TestThePageShowsItsOutput(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "policy-tests.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string, n int) string {
		return regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(raw), n+1)[n][1]
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("policies", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "policies/label-team.yaml", block("yaml", 0))
	write(t, "policies/cases.yaml", block("yaml", 1))
	time := regexp.MustCompile(`\d+µs`)
	want := strings.TrimPrefix(block("console", 0), "$ portcullis bench policies\n")
	if diff := cmp.Diff(spaces(time.ReplaceAllString(want, "TIME")), spaces(time.ReplaceAllString(bench(t, "policies").Out, "TIME"))); diff != "" {
		t.Errorf("(-page +command):\n%s", diff)
	}
}

func spaces(text string) string { return regexp.MustCompile(` +`).ReplaceAllString(text, " ") }
