package casetest_test

import (
	"os"
	"strings"
	"testing"
)

func TestCaseFilesOfKyvernoAreRead(t *testing.T) {
	r := test(t, "testdata/kyverno", "--coverage-min", "100", "-v")

	const want = `testdata/kyverno/kyverno-test.yaml:7: ok: few-replicas: Deployment shop/small: pass
testdata/kyverno/kyverno-test.yaml:12: ok: few-replicas: Deployment large: fail
testdata/kyverno/kyverno-test.yaml:17: ok: few-replicas: ConfigMap settings: skip
testdata/kyverno/kyverno-test.yaml:22: ok: add-label: ConfigMap settings: pass
ok    testdata/kyverno/kyverno-test.yaml  4 cases
coverage: 100.0 %, 3 of 3 outcomes of rules
ok: 4 cases passed
`
	if r.Code != 0 || r.Out != want {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}

func TestCaseFilesOfKyvernoThatAreNotRead(t *testing.T) {
	for name, of := range map[string]struct{ old, changed, want string }{
		"a field that changes verdicts": {"results:", "variables: values.yaml\nresults:", "kyverno-test.yaml:6: variables: it is not read"},
		"a resource that is not there":  {"[large]", "[huge]", "kyverno-test.yaml:12: there is no Deployment huge in resources.yaml"},
		"a result that is none":         {"result: fail", "result: error", `kyverno-test.yaml:12: result: "error" is none of pass, fail and skip`},
		"a policy of Kyverno":           {"policies: [policy.yaml]", "policies: [kyverno.yaml]", "ClusterPolicy of kyverno.io/v1 belongs to Kyverno and is not judged here"},
		"no policy":                     {"policies: [policy.yaml]", "policies: []", "there are no policies or no results"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range []string{"kyverno-test.yaml", "policy.yaml", "resources.yaml", "patched.yaml"} {
				raw, err := os.ReadFile("testdata/kyverno/" + file)
				if err != nil {
					t.Fatal(err)
				}
				text := string(raw)
				if file == "kyverno-test.yaml" {
					text = strings.Replace(text, of.old, of.changed, 1)
				}
				write(t, dir, file, text)
			}
			write(t, dir, "kyverno.yaml", "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: few-replicas}\n")
			test(t, dir).Fails(t, of.want)
		})
	}
}
