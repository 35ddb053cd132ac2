package localhosts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// heldCases are cases of the example with initializers, beside a mutating policy.
const heldCases = `
defaults:
  object: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: web, image: "nginx@sha256:0a"}]}}
cases:
- name: Mutating policies follow initializers, which act once
  verdict: allowed
  changes:
    metadata.labels.containers: two
    spec.containers[1]: {name: proxy, image: "registry.example.com/proxy:1", imagePullPolicy: Always}
- name: The status of a refusal is compared
  with: {"spec.containers[0].name": proxy}
  verdict: denied
  reason: Invalid
  code: 422
  causes: [{field: "spec.containers[0].name", message: is taken}]
- name: A name may be generated
  with: {metadata.name: null, metadata.generateName: web-, spec.hostNetwork: true}
  verdict: allowed
  changes: {}
- name: A client that may initialize leaves initializers out
  with: {'metadata.annotations["initializers.portcullis.dev/pending"]': "[]"}
  authorizer: [{verb: initialize}]
  verdict: allowed
  changes: {'metadata.annotations["initializers.portcullis.dev/pending"]': null}
- name: A dry run is not held
  dryRun: true
  verdict: allowed
  changes: {}
  warnings: [dry run]
`

// counting is a policy that sees the sidecar.
const counting = `---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: counting}
spec:
  resources: [pods]
  mutations:
  - {field: metadata.labels.containers, value: "'two'", when: object.spec.containers.size() == 2}
`

func TestACreateIsHeldForItsInitializers(t *testing.T) {
	dir := folderOf(t, "initializers", heldCases)
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(counting), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{dir, "--host", initializers, "--coverage-min", "100"}, {dir, "--host", initializers, "--once"}} {
		if r := run(t, args...); r.Code != 0 || !strings.HasSuffix(r.Out, "ok: 5 cases passed\n") {
			t.Errorf("%q: exit code %d\n%s%s", args[1:], r.Code, r.Out, r.Notes)
		}
	}
}

// TestInitializersThatAreNotCalledAreNamed has an initializer that a controller serves, beside an initializer that a host serves.
func TestInitializersThatAreNotCalledAreNamed(t *testing.T) {
	const text = `
cases:
- name: A Pod
  object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: "nginx:1"}]}}
  verdict: allowed
`
	dir := folderOf(t, "initializers", text)
	const controller = `
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: controller}
spec: {configuration: example-config, hook: podimage.example.com, stage: initialize, hosts: ["spiffe://mesh/controller"]}
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: all}
spec: {resources: [pods], validations: [{expression: "true", message: never}]}
`
	if err := os.WriteFile(filepath.Join(dir, "controller.yaml"), []byte(controller), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		args []string
		want []string
	}{
		{[]string{dir, "--host", initializers}, []string{"podimage.example.com"}},
		{[]string{dir}, []string{"podimage.example.com", "sidecar.example.com"}},
	} {
		want := dir + "/cases.yaml: warning: initializers without a host are not called: " + strings.Join(of.want, ", ") + "\n"
		if r := run(t, of.args...); r.Code != 0 || !strings.Contains(r.Out, want) {
			t.Errorf("%q: exit code %d, want %q\n%s%s", of.args[1:], r.Code, want, r.Out, r.Notes)
		}
		var report struct {
			Files []struct {
				NotCalled []string `json:"initializersNotCalled"`
			} `json:"files"`
		}
		if err := json.Unmarshal([]byte(run(t, append(of.args, "-o", "json")...).Out), &report); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(of.want, report.Files[0].NotCalled); diff != "" {
			t.Errorf("%q (-want +got):\n%s", of.args[1:], diff)
		}
	}
}
