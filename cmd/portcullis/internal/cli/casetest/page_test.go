package casetest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/casetest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// TestThePageShowsItsOutputs follows docs/policy-tests.md.
func TestThePageShowsItsOutputs(t *testing.T) {
	raw, err := os.ReadFile("../../../../../docs/policy-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(language string) (all []string) {
		for _, block := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(string(raw), -1) {
			if block[1] == language {
				all = append(all, block[2])
			}
		}
		return all
	}
	documents := blocks("yaml")
	var shown []string
	for _, block := range blocks("") {
		if strings.HasPrefix(block, "$ ") {
			shown = append(shown, block)
		}
	}
	if len(documents) != 7 || len(shown) != 3 {
		t.Fatalf("%d documents, %d outputs", len(documents), len(shown))
	}
	t.Chdir(t.TempDir())
	if err := os.Mkdir("policies", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "policies", "label-team.yaml", documents[0])
	for i, cases := range []string{
		documents[1],
		strings.Replace(documents[1], "verdict: denied\n  message: set the label team", "verdict: allowed", 1),
		documents[1],
	} {
		write(t, "policies", "cases.yaml", cases)
		command, want, _ := strings.Cut(strings.TrimPrefix(shown[i], "$ portcullis test "), "\n")
		r := clitest.Execute(t, casetest.NewCommand(nil), nil, strings.Fields(command)...)
		if diff := cmp.Diff(want, r.Out+r.Notes); diff != "" {
			t.Errorf("%s (-page +command):\n%s", command, diff)
		}
	}
	write(t, "policies", "shared.cases.yaml", documents[2])
	for _, command := range strings.Split(strings.TrimSpace(blocks("sh")[0]), "\n")[1:] {
		command, _, _ = strings.Cut(strings.TrimPrefix(command, "portcullis test "), " >")
		if r := clitest.Execute(t, casetest.NewCommand(nil), nil, strings.Fields(command)...); r.Code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", command, r.Code, r.Out, r.Notes)
		}
	}

	if err := os.Mkdir("limits", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "limits", "cases.yaml", documents[3])
	write(t, "limits", "policy.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}
  validations:
  - {expression: object.spec.replicas <= int(params.data.most), messageExpression: "'at most ' + params.data.most"}
  - {expression: "authorizer.group('apps').resource('deployments').check('scale').allowed()", message: you may not scale}
`)
	if err := os.Mkdir("parameters", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "parameters", "cases.yaml", documents[4])
	write(t, "parameters", "policy.yaml", `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: few-replicas}
spec:
  resources: [deployments]
  parameters: [{name: most, default: 3}]
  validations:
  - {expression: object.spec.replicas <= parameters.most, message: too many, messageExpression: "'at most ' + string(parameters.most) + ' replicas'"}
`)
	if r := clitest.Execute(t, casetest.NewCommand(nil), nil, "limits", "parameters"); r.Code != 0 {
		t.Errorf("%s%s", r.Out, r.Notes)
	}
}
