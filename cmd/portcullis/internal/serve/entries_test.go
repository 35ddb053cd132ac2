package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	clustercli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/cluster"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	judged "github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const entryHooks = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: imagepolicy}
webhooks:
- name: imagepolicy.example.com
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 3
  admissionReviewVersions: [v1]
`

const entryMesh = `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: imagepolicy}
spec: {configuration: imagepolicy, stream: {}, hosts: ["spiffe://mesh/imagepolicy"], clusters: [prod-1]}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec: {identities: [kube-apiserver], namespaces: {static: {default: {}}}}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-2}
spec: {identities: [kube-apiserver], namespaces: {static: {default: {}}}}
`

// entriesOf are the entries of a cluster.
func entriesOf(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t, clustercli.NewCommand(), nil, append([]string{"register"}, args...)...)
}

// TestEntriesOfTheMeshAreNotTakenBackUnasked has an operator who takes all that the cluster shows, entries of the mesh among it.
func TestEntriesOfTheMeshAreNotTakenBackUnasked(t *testing.T) {
	dir := filepath.Dir(clitest.Write(t, "hooks.yaml", entryHooks+"---\n"+entryMesh))
	args := []string{"prod-1", "--config", dir, "--url", "https://mesh.example.com:8443", "-o", "json"}
	entries := entriesOf(t, args...)
	if strings.Contains(entries.Notes, "danger") || strings.Contains(entries.Notes, "call itself") {
		t.Errorf("before any is there: %s", entries.Notes)
	}

	ready := withStore(t)
	apply := func(more ...string) clitest.Result {
		return clitest.Execute(t, configcli.NewApply(), strings.NewReader(entries.Out), append([]string{"-f", "-", "--ready-file", ready}, more...)...)
	}
	apply().Ends(t, cli.ExitDenied, "acknowledge danger-own-entry", "webhooks[0].clientConfig", "the mesh would call itself", "managed-by=portcullis")
	clitest.Execute(t, configcli.NewGet(), nil, "vwc", "portcullis", "--ready-file", ready).Ends(t, cli.ExitDenied, "there is no")
	apply("--acknowledge", "danger-own-entry").Ends(t, 0)

	if err := os.WriteFile(filepath.Join(dir, "entries.json"), []byte(entries.Out), 0o600); err != nil {
		t.Fatal(err)
	}
	again := entriesOf(t, args...)
	again.Ends(t, 0, "warning: ", "entries.json:", "webhooks[0].clientConfig: ", "made it for the API servers of cluster prod-1")
}

// TestClusterRegisterAsksAMesh makes entries from the configuration in force, and then changes it: reviews through the old
// entries say so.
func TestClusterRegisterAsksAMesh(t *testing.T) {
	a, _, info := appWithStore(t, func(*dev, *serveConfig) {})
	ready := readyFileOf(t, info)
	entryPath := func() string {
		r := entriesOf(t, "dev", "--ready-file", ready, "--url", "https://mesh.example.com:8443", "-o", "json")
		r.Ends(t, 0)
		_, path, ok := strings.Cut(r.Out, "https://mesh.example.com:8443/v1/clusters/dev/validate/")
		if !ok {
			t.Fatalf("no entry: %+v", r)
		}
		path, _, _ = strings.Cut(path, `"`)
		return path
	}
	comesBy := func(entry string) {
		t.Helper()
		_, err := a.judge.Review(t.Context(), &judged.Request{Stage: admissionv1.Stage_STAGE_VALIDATE, Entry: match.ParseEntry(entry), Admission: &admissionv1.AdmissionRequest{
			Uid: "u", Cluster: "dev", Operation: "DELETE", Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "services"},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	drift := func() string {
		return clitest.Execute(t, configcli.NewGet(), nil, "cluster", "dev", "-o", "json", "--ready-file", ready).Out
	}

	before := entryPath()
	comesBy(before)
	if said := drift(); strings.Contains(said, "entry-drift") {
		t.Errorf("entries that fit: %s", said)
	}

	policy := strings.NewReplacer("GROUP", "example.com").Replace(appliedHooks)
	clitest.Execute(t, configcli.NewApply(), strings.NewReader(policy), "-f", "-", "--wait", "--ready-file", ready).
		Ends(t, 0, "warning: Cluster/dev: ", `hook "policy.example.com" of ValidatingWebhookConfiguration/policy`, "portcullis cluster register dev", "(entry-drift)")
	if said := drift(); !strings.Contains(said, "entry-drift") {
		t.Errorf("entries that do not fit: %s", said)
	}

	after := entryPath()
	if after == before {
		t.Fatalf("another configuration has the same entry %s", after)
	}
	comesBy(after)
	for deadline := time.Now().Add(time.Minute); strings.Contains(drift(), "entry-drift"); {
		if time.Now().After(deadline) {
			t.Fatal("entries that fit again are still said not to")
		}
	}
}

// TestApplyWaitsForTheEntriesThatTheMeshKeeps has a cluster whose API server cannot be asked.
func TestApplyWaitsForTheEntriesThatTheMeshKeeps(t *testing.T) {
	ready := withStore(t)
	apply := func(document string) clitest.Result {
		return clitest.Execute(t, configcli.NewApply(), strings.NewReader(document), "-f", "-", "--wait", "--timeout", long.String(), "--ready-file", ready)
	}
	kept := "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: kept}\nspec:\n  identities: [a]\n  kubeconfig: " +
		filepath.Join(t.TempDir(), "absent") + "\n"

	apply(kept+"  registration: {url: 'https://mesh.example.com'}\n").
		Ends(t, 0, "warning: Cluster/kept: ", "no such file", "(entries-not-kept)")
	if r := apply(kept); strings.Contains(r.Notes, "entries-") {
		t.Errorf("without spec.registration: %s", r.Notes)
	}
}
