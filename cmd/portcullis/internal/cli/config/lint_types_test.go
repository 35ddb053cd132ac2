package config

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// misspelt is a Policy whose expression names a field that no kind has.
const misspelt = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: few-replicas}
spec:
  resources: [deployments, statefulsets]
  parameters:
  - {name: most, default: 5}
  validations:
  - message: too many replicas
    expression: object.spec.replicsa <= parameters.most
`

func TestLintChecksTypes(t *testing.T) {
	const want = "standard input:8: warning: Policy/few-replicas: spec.validations[0].expression: for Deployment (apps/v1), StatefulSet (apps/v1): " +
		"line 1, column 12: undefined field 'replicsa' (type-check)\n"
	if r := clitest.Execute(t, NewLint(), strings.NewReader(misspelt), "-f", "-"); r.Code != 0 || !strings.Contains(r.Out, want) {
		t.Errorf("exit code %d, no %q in %s%s", r.Code, want, r.Out, r.Notes)
	}
	if r := clitest.Execute(t, NewLint(), strings.NewReader(misspelt), "-f", "-", "--strict"); r.Code != cli.ExitDenied {
		t.Errorf("exit code %d with --strict: %s", r.Code, r.Notes)
	}
	good := strings.Replace(misspelt, "replicsa", "replicas", 1)
	if r := clitest.Execute(t, NewLint(), strings.NewReader(good), "-f", "-"); r.Code != 0 || strings.Contains(r.Out, "type-check") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
}
