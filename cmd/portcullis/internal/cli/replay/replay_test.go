package replay_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/replay"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const (
	inForce = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: few-replicas}
spec:
  resources: [deployments]
  mode: enforce
  validations: [{expression: object.spec.replicas < 10, message: too many replicas}]
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: label-team}
spec:
  resources: [deployments]
  mode: warn
  validations: [{expression: "'team' in labels", message: no team}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: pipeline}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {env: prod}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: "request.userInfo.username == 'ci'", message: use the pipeline}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: pipeline}
spec: {policyName: pipeline, validationActions: [Deny]}
`
	namespaces = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: prod}}}
`
)

// log has creations of Deployments with 2, 5 and 12 replicas, and a read.
func log() string {
	var lines []string
	for i, of := range []struct{ user, namespace, replicas, code string }{
		{"ci", "shop", "2", "200"}, {"jane", "dev", "5", "200"}, {"jane", "shop", "5", "200"}, {"ci", "dev", "12", "403"},
	} {
		lines = append(lines, fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","stageTimestamp":"2026-11-28T10:00:0%d.000000Z",`+
			`"verb":"create","user":{"username":%q},"objectRef":{"resource":"deployments","apiGroup":"apps","apiVersion":"v1","namespace":%q,"name":"web-%d"},`+
			`"responseStatus":{"code":%s,"message":"Policy 'x' denied request: y"},"requestObject":{"apiVersion":"apps/v1","kind":"Deployment",`+
			`"metadata":{"name":"web-%d","namespace":%q},"spec":{"replicas":%s}}}`, i, of.user, of.namespace, i, of.code, i, of.namespace, of.replicas))
	}
	return strings.Join(append(lines, `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"list"}`), "\n")
}

func TestVerdictsOfTwoConfigurationsAreCompared(t *testing.T) {
	candidate := strings.NewReplacer("replicas < 10", "replicas < 5", "mode: warn", "mode: enforce", "== 'ci'", "in ['ci', 'jane']").Replace(inForce)
	flags := []string{
		"-", "--config", clitest.Write(t, "new.yaml", candidate), "--cluster", "prod", "--objects", clitest.Write(t, "namespaces.yaml", namespaces),
	}
	for name, of := range map[string]struct {
		golden string
		flags  []string
	}{
		"with the policies in force": {"in-force.txt", []string{"--in-force", clitest.Write(t, "old.yaml", inForce), "--explain"}},
		"with the log":               {"log.txt", nil},
		"as JSON":                    {"log.json", []string{"-o", "json"}},
		"with one case of each":      {"one.txt", []string{"--limit", "1", "--since", "2026-11-28T10:00:01Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()), append(flags, of.flags...)...)
			if r.Code != cli.ExitDenied || r.Notes != "" {
				t.Errorf("exit code %d: %s", r.Code, r.Notes)
			}
			out := r.Out
			if strings.HasSuffix(of.golden, ".json") {
				out = withoutUIDs(t, out)
			}
			clitest.Golden(t, of.golden, out)
		})
	}
}

// withoutUIDs takes the random UIDs of requests out of a report.
func withoutUIDs(t *testing.T, text string) string {
	t.Helper()
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, `"uid":`) {
			kept = append(kept, line)
		}
	}
	text = strings.Join(kept, "")
	if !json.Valid([]byte(text)) {
		t.Error("no JSON")
	}
	return text
}

func TestTheSameConfigurationHasNoDifference(t *testing.T) {
	file := clitest.Write(t, "policies.yaml", inForce)
	r := clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()), "-", "--config", file, "--in-force", file)
	if want := "4 requests, from 2026-11-28 10:00:00 to 2026-11-28 10:00:03: 0 would be denied that are allowed now, " +
		"0 would be allowed that are denied now, 4 without any difference\n"; r.Code != 0 || !strings.HasPrefix(r.Out, want) {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
}

// TestReplayReadsPolicyParams of the cluster that it is about.
func TestReplayReadsPolicyParams(t *testing.T) {
	const reading = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  paramKind: {apiVersion: example.com/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: object.spec.replicas <= params.spec.most, messageExpression: "'at most ' + string(params.spec.most)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits}
spec: {policyName: limits, validationActions: [Deny], paramRef: {selector: {}, parameterNotFoundAction: Deny}}
---
apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: limits}
spec: {clusters: [prod], objects: [{apiVersion: example.com/v1, kind: Limit, metadata: {name: a}, spec: {most: 4}}]}
---
apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: trial}
spec: {clusters: [trial], objects: [{apiVersion: example.com/v1, kind: Limit, metadata: {name: a}, spec: {most: 12}}]}
`
	file := clitest.Write(t, "new.yaml", reading)
	for cluster, want := range map[string][]string{
		"prod":  {"2 would be denied that are allowed now, 0 would be allowed", "at most 4"},
		"trial": {"0 would be denied that are allowed now"},
	} {
		r := clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()), "-", "--config", file, "--cluster", cluster)
		for _, text := range want {
			if !strings.Contains(r.Out, text) || r.Notes != "" {
				t.Errorf("in %s, exit code %d, want %q: %s%s", cluster, r.Code, text, r.Out, r.Notes)
			}
		}
	}
}

// TestPoliciesThatAreAboutNothingAreNoSuccess since a cluster or a resource may be misspelt.
func TestPoliciesThatAreAboutNothingAreNoSuccess(t *testing.T) {
	pods := clitest.Write(t, "policies.yaml", strings.ReplaceAll(inForce, "deployments", "statefulsets"))
	r := clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()), "-", "--config", pods)
	if want := "\nno policy that is tried is about any of them: "; r.Code != 0 || !strings.Contains(r.Out, want) {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
}

// TestTwoVersionsInShadowAreComparedAsEnforced by --enforce, which is for both.
func TestTwoVersionsInShadowAreComparedAsEnforced(t *testing.T) {
	old := strings.ReplaceAll(inForce, "mode: enforce", "mode: shadow")
	flags := []string{"-", "--enforce", "--in-force", clitest.Write(t, "old.yaml", old), "--config"}
	looser := clitest.Write(t, "new.yaml", strings.ReplaceAll(old, "'team' in labels", "true"))
	r := clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()), append(flags, looser)...)
	if want := "0 would be denied that are allowed now, 3 would be allowed that are denied now"; r.Code != 0 || !strings.Contains(r.Out, want) {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
}

// TestARunningMeshIsComparedByDryRuns and so calls no hook that has side effects.
func TestARunningMeshIsComparedByDryRuns(t *testing.T) {
	var asked atomic.Int32
	mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		if !r.GetRequest().GetDryRun() || r.GetStage() != admissionv1.Stage_STAGE_ADMIT {
			t.Errorf("%v", r)
		}
		asked.Add(1)
		denied := r.GetRequest().GetName() == "web-0"
		outcome := &admissionv1.HookOutcome{Configuration: "images", Hook: "images.example.com", Outcome: "allowed"}
		if denied {
			outcome.Outcome, outcome.Reason = "denied", "no"
		}
		return &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Allowed: !denied}, Outcomes: []*admissionv1.HookOutcome{outcome}}, nil
	})
	r := clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()),
		"-", "--config", clitest.Write(t, "policies.yaml", inForce), "--ready-file", mesh.File(t))
	if asked.Load() != 4 || r.Code != cli.ExitDenied {
		t.Errorf("%d asked, exit code %d: %s%s", asked.Load(), r.Code, r.Out, r.Notes)
	}
	clitest.Golden(t, "mesh.txt", r.Out)
	r = clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()), "-", "--ready-file", mesh.File(t))
	clitest.Golden(t, "mesh-alone.txt", r.Out)
}

func TestAReplayWithoutLogsOrPoliciesFails(t *testing.T) {
	file, empty := clitest.Write(t, "policies.yaml", inForce), t.TempDir()
	for _, of := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", file}, "name the logs"},
		{[]string{"-"}, "--config PATH, or a running mesh"},
		{[]string{"/nowhere", "--config", file}, "/nowhere"},
		{[]string{empty, "--config", file}, "there is no file that ends with"},
		{[]string{"-", "--config", "/nowhere"}, "--config: "},
		{[]string{"-", "--config", file, "--in-force", clitest.Write(t, "empty.yaml", "")}, "--in-force"},
		{[]string{"-", "--config", file, "--in-force", file, "--server", "x:1"}, "one of them"},
		{[]string{"-", "--config", file, "--objects", clitest.Write(t, "bad.yaml", "a: [")}, "--objects: "},
		{[]string{"-", "--config", file, "--since", "yesterday"}, `--since "yesterday": write the time as`},
	} {
		clitest.Execute(t, replay.NewCommand(), strings.NewReader(log()), of.args...).Fails(t, of.want)
	}
	clitest.Execute(t, replay.NewCommand(), strings.NewReader("hello\n"), "-", "--config", file).Fails(t,
		"no request of the logs could be judged", "1 left out: lines that are neither")
}
