package localhosts_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/casetest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/localhosts"
)

const root = "../../../.."

// goHost and initializers are the programs of the example hosts in Go.
var goHost, initializers string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "localhosts-")
	if err == nil {
		goHost = filepath.Join(dir, "imagepolicy")
		err = exec.Command("go", "build", "-o", goHost, root+"/examples/imagepolicy").Run()
	}
	if err == nil {
		initializers = filepath.Join(dir, "initializers")
		err = exec.Command("go", "build", "-o", initializers, root+"/examples/initializers").Run()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the example host:", err)
	} else if code = m.Run(); code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// run runs `portcullis test`.
func run(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t, casetest.NewCommand(localhosts.Start), nil, args...)
}

// folder is a directory with the configuration of the example host, and a case file.
func folder(t *testing.T, cases string) string {
	t.Helper()
	return folderOf(t, "imagepolicy", cases)
}

// folderOf is a directory with the configuration of an example, and a case file.
func folderOf(t *testing.T, example, cases string) string {
	t.Helper()
	dir := t.TempDir()
	mesh, err := os.ReadFile(root + "/examples/" + example + "/mesh.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"mesh.yaml": string(mesh), "cases.yaml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTheExampleInGoPassesItsCases(t *testing.T) {
	r := run(t, root+"/examples/imagepolicy", "--host", goHost)
	if r.Code != 0 || !strings.HasSuffix(r.Out, "ok: 20 cases passed\n") {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}

// TestThePageTestsAHost follows docs/policy-tests.md.
func TestThePageTestsAHost(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/policy-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\nhosts:")
	if len(blocks) != 3 {
		t.Fatalf("%d blocks with hosts", len(blocks)-1)
	}
	for i, of := range []struct{ example, host, passed string }{
		{"imagepolicy", goHost, "ok: 2 cases passed\n"}, {"initializers", initializers, "ok: 4 cases passed\n"},
	} {
		text, _, _ := strings.Cut("hosts:"+blocks[i+1], "```")
		r := run(t, folderOf(t, of.example, strings.Replace(text, "go run .", of.host, 1)))
		if r.Code != 0 || !strings.HasSuffix(r.Out, of.passed) || strings.Contains(r.Out, "warning") {
			t.Errorf("%s: exit code %d\n%s%s", of.example, r.Code, r.Out, r.Notes)
		}
	}
}

func TestTheExampleInPythonPassesItsCases(t *testing.T) {
	python, err := filepath.Abs(root + "/.tmp/sdk-python/requirements/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import portcullis_host").Run(); err != nil {
		t.Skip("no Python with the SDK: sdk/python/check makes it, which runs where the SDK has changed")
	}
	r := run(t, root+"/examples/imagepolicy-python", "--host", python+" -B imagepolicy.py")
	if r.Code != 0 || !strings.HasSuffix(r.Out, "ok: 20 cases passed\n") {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}

// cases are cases of the example host, the last of which fails.
const cases = `
hosts:
- command: %s
defaults:
  object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: web, image: "nginx@sha256:0a"}]}}
cases:
- name: A mutating hook comes before a validating one
  verdict: allowed
  changes: {metadata.labels.team: shop}
- name: A hook denies
  with: {"spec.containers[0].image": "nginx:1"}
  verdict: denied
  message: "images are named by digest here: nginx:1"
  reason: Forbidden
  code: 403
  causes: [{field: "spec.containers[0].image", message: has no digest}]
- name: A condition leaves a request alone
  hook: imagepolicy.example.com
  with: {metadata.namespace: kube-system}
  verdict: unmatched
- name: A policy judges alone
  policy: names
  with: {"spec.containers[0].image": "nginx:1"}
  verdict: allowed
- name: Policies judge beside hooks, before any host is asked
  with: {metadata.name: x, "spec.containers[0].image": "nginx:1"}
  verdict: denied
  message: "Policy 'names' denied request: give it a name"
- name: This one fails
  verdict: denied
`

// policy is a policy beside the hooks of the example.
const policy = `---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: names}
spec:
  resources: [pods]
  validations: [{expression: object.metadata.name.size() > 1, message: give it a name}]
`

// TestHooksAndPoliciesAreJudgedAsInAMesh also leaves a process behind, as a host may do.
func TestHooksAndPoliciesAreJudgedAsInAMesh(t *testing.T) {
	dir := folder(t, fmt.Sprintf(cases, fmt.Sprintf(`[sh, -c, 'sleep 600 & echo $! >pid; echo began >&2; exec %s "$@"', sh]`, goHost)))
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, dir)
	r.Ends(t, 1)
	for _, want := range []string{"FAIL: This one fails\n    verdict: allowed, want denied\n", "output of the hosts:\n    sh -c ", "    began\n", "FAIL: 1 of 6 cases failed"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("it lacks %q:\n%s", want, r.Out)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(state), ") Z ") && syscall.Kill(pid, 0) == nil {
		t.Errorf("a process that the host has started still runs: %s", state)
	}
}

func TestTheStatusOfADenialIsCompared(t *testing.T) {
	const table = `
- name: Another status
  hook: imagepolicy.example.com
  object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: "nginx:1"}]}}
  expect: {allowed: false, code: 400, causes: [{field: spec, message: none}]}
- name: The patch of a table
  hook: team-label.example.com
  object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: []}}
  expect: {allowed: true, patch: [{op: add, path: /metadata/labels, value: {team: shop}}]}
- name: Another patch
  hook: team-label.example.com
  object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: []}}
  expect: {allowed: true, patch: []}
`
	r := run(t, folder(t, table), "--host", goHost)
	r.Ends(t, 1)
	for _, want := range []string{
		"FAIL: Another status\n    code: 403, want 400\n    causes: [spec.containers[0].image: has no digest], want [spec: none]\n",
		"FAIL: Another patch\n    object after mutations (- want, + got):\n", "    +  labels:\n    +    team: shop\n", "FAIL: 2 of 3 cases failed",
	} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("it lacks %q:\n%s", want, r.Out)
		}
	}
}

func TestHostsThatDoNotServeAreFaults(t *testing.T) {
	const one = "cases:\n- {name: a, object: {apiVersion: v1, kind: Pod, metadata: {name: a}}, verdict: denied}\n"
	for name, of := range map[string]struct {
		cases string
		args  []string
		want  string
	}{
		"it ends":                     {"hosts: [{command: 'sh -c \"echo no such module >&2; exit 3\"'}]\n" + one, nil, "has ended: exit status 3\nsh -c \"echo no such module >&2; exit 3\":\nno such module"},
		"there is no such program":    {"hosts: [{command: [/no/such/program]}]\n" + one, nil, "hosts: start the host /no/such/program: "},
		"an identity without a grant": {"hosts: [{command: [sh, -c, 'exit 3'], identity: other}]\n" + one, nil, "exit status 3"},
		"no host":                     {one, nil, `there are hooks in `},
		"no command":                  {"hosts: [{identity: a}]\n" + one, nil, "cases.yaml:1: hosts: command: it is required"},
		"an empty command":            {"hosts: [{command: []}]\n" + one, nil, "must name a program"},
		"an unknown field":            {"hosts: [{comand: a}]\n" + one, nil, `unknown field "hosts[0].comand"; did you mean "command"?`},
		"an empty flag":               {one, []string{"--host", ""}, "--host: name the command of a host"},
	} {
		t.Run(name, func(t *testing.T) { run(t, append([]string{folder(t, of.cases)}, of.args...)...).Fails(t, of.want) })
	}
}

func TestHooksThatAreNotThereAreNamed(t *testing.T) {
	const one = "cases:\n- {name: a, hook: imagepolcy.example.com, object: {apiVersion: v1, kind: Pod, metadata: {name: a}}, verdict: denied}\n"
	run(t, folder(t, one), "--host", goHost).Fails(t, `hook: there is no hook "imagepolcy.example.com"; did you mean "imagepolicy.example.com"?`)
}
