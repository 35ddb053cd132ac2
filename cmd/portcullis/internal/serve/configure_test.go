package serve

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
)

// withStore runs a dispatcher with the samples of dev and a store of its own, and returns its ready file.
func withStore(t *testing.T) string {
	t.Helper()
	info, _ := startStore(t, func(*dev, *serveConfig) {})
	return readyFileOf(t, info)
}

// startStore is withStore with a change of its settings. It returns the addresses of the dispatcher, and its files.
func startStore(t *testing.T, change func(*dev, *serveConfig)) (listen.ReadyInfo, *dev) {
	t.Helper()
	_, d, info := appWithStore(t, change)
	return info, d
}

// appWithStore is startStore, for who wants to look inside.
func appWithStore(t *testing.T, change func(*dev, *serveConfig)) (*app, *dev, listen.ReadyInfo) {
	t.Helper()
	return observedAppWithStore(t, slog.New(slog.DiscardHandler), noop.NewTracerProvider(), change)
}

// observedAppWithStore is appWithStore with a log and spans.
func observedAppWithStore(t *testing.T, log *slog.Logger, spans trace.TracerProvider, change func(*dev, *serveConfig)) (*app, *dev, listen.ReadyInfo) {
	t.Helper()
	a, d := observedApp(t, log, spans, func(d *dev, c *serveConfig) {
		c.stores.dataDir, c.stores.operator.Names = d.dir, []string{devAPIServer}
		c.id = "test"
		c.readyTimeout = time.Nanosecond // nobody serves the samples
		change(d, c)
	})
	ctx, stop := context.WithCancel(t.Context())
	started, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		ended <- a.run(ctx, func(info listen.ReadyInfo) error { started <- info; return nil })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	info := within(t, "the dispatcher", started)
	ready, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if first, err := a.store.Fresh(ready); err == nil { // else the test is about that
		a.store.Release(first)
	}
	info.ClientCert, info.ClientKey = d.path("certs/"+devClientName+".crt"), d.path("certs/"+devClientName+".key")
	return a, d, info
}

// readyFileOf writes the ready file of a mesh.
func readyFileOf(t *testing.T, i listen.ReadyInfo) string {
	t.Helper()
	data, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	return clitest.Write(t, "ready.json", string(data))
}

const appliedHooks = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: policy.example.com
  clientConfig: {}
  failurePolicy: Fail
  rules: [{operations: [CREATE], apiGroups: [GROUP], apiVersions: [v1], resources: [deployments]}]
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: policy}
spec: {configuration: policy, stream: {}, hosts: [me]}
`

func TestWhatIsAppliedIsInForceUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	ready := withStore(t)
	run := func(cmd *cobra.Command, in string, args ...string) clitest.Result {
		t.Helper()
		return clitest.Execute(t, cmd, strings.NewReader(in), append(args, "--ready-file", ready)...)
	}
	says := func(r clitest.Result, want ...string) {
		t.Helper()
		if r.Code != 0 {
			t.Fatalf("exit code %d: %s", r.Code, r.Notes)
		}
		for _, w := range want {
			if !strings.Contains(r.Out, w) {
				t.Errorf("no %q in: %s", w, r.Out)
			}
		}
	}
	documents := strings.NewReplacer("GROUP", "apps", "hosts: [me]", "hosts: [me], rotation: Immediate").Replace(appliedHooks)
	says(run(configcli.NewApply(), documents, "-f", "-", "--dry-run"), "policy created (dry run)")
	run(configcli.NewGet(), "", "vwc/policy").Ends(t, cli.ExitDenied, "there is no ValidatingWebhookConfiguration/policy")
	r := run(configcli.NewApply(), documents, "-f", "-", "--wait", "--progress", "lines")
	says(r, "ValidatingWebhookConfiguration/policy created", "HookRoute/policy created")
	if !strings.Contains(r.Notes, "1 of 1 dispatchers judge by it") {
		t.Errorf("said %q", r.Notes)
	}
	says(run(configcli.NewGet(), ""), "HookRoute/sample-images", "directory", "HookRoute/policy", "etcd")
	says(run(configcli.NewGet(), "", "vwc", "policy", "-o", "yaml"), "name: policy.example.com")
	says(run(configcli.NewGet(), "", "dispatchers"), "Current")
	says(run(configcli.NewGet(), "", "changes"), devAPIServer, "created ValidatingWebhookConfiguration/policy")
	says(run(configcli.NewApply(), documents, "-f", "-"), "policy unchanged")

	request := strings.NewReplacer(`"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment").Replace(clitest.Review)
	answer := run(reviewcli.NewCommand(), request, "-f", "-", "--stage", "validate", "--explain")
	if answer.Code != cli.ExitError || !strings.Contains(answer.Out, "policy.example.com") {
		t.Errorf("a hook that nobody serves did not refuse: %d %s%s", answer.Code, answer.Out, answer.Notes)
	}
	says(run(configcli.NewDelete(), "", "vwc", "policy", "--wait"), "is being removed")
	says(run(reviewcli.NewCommand(), request, "-f", "-", "--stage", "validate"))
}

func TestApplySaysWhereAndWhat(t *testing.T) {
	ready := withStore(t)
	dangerous := strings.NewReplacer("GROUP", "coordination.k8s.io", "deployments", "leases").Replace(appliedHooks)
	clitest.Execute(t, configcli.NewApply(), strings.NewReader(dangerous), "-f", "-", "--ready-file", ready).
		Ends(t, cli.ExitDenied, "acknowledge danger-leases", `hook "policy.example.com" fails closed`)
	file := clitest.Write(t, "hooks.yaml", strings.Replace(appliedHooks, "sideEffects: None", "sideEffects: Some", 1))
	clitest.Execute(t, configcli.NewApply(), nil, "-f", file, "--ready-file", ready).Ends(t, cli.ExitDenied, "hooks.yaml:9", "webhooks[0].sideEffects")
	clitest.Execute(t, configcli.NewApply(), nil, "--ready-file", ready).Fails(t, "-f is missing")
	clitest.Execute(t, configcli.NewGet(), nil, "pods", "--ready-file", ready).Fails(t, `there is no kind "pods"`, "or dispatchers, hosts, hooks, changes, staged")
	clitest.Execute(t, configcli.NewDelete(), nil, "vwc", "none", "--ready-file", ready).Ends(t, cli.ExitDenied, "there is no ValidatingWebhookConfiguration/none")
}

// TestDangersOfFilesAreWarnings has a hook that nobody could be asked to answer for.
func TestDangersOfFilesAreWarnings(t *testing.T) {
	info, _ := startStore(t, func(d *dev, _ *serveConfig) {
		dangerous := strings.NewReplacer("GROUP", "coordination.k8s.io", "deployments", "leases").Replace(appliedHooks)
		if err := os.WriteFile(d.path("config/dangerous.yaml"), []byte(dangerous), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	ready := readyFileOf(t, info)
	for { // findings follow the configuration in force by a moment
		r := clitest.Execute(t, configcli.NewGet(), nil, "vwc", "policy", "-o", "json", "--ready-file", ready)
		if r.Code != 0 && strings.Contains(r.Notes, "there is no ValidatingWebhookConfiguration/policy") {
			continue // not even the files have been read
		}
		var object struct {
			Status struct {
				Source   string `json:"source"`
				Findings []struct {
					Code     string `json:"code"`
					Severity string `json:"severity"`
					Path     string `json:"path"`
				} `json:"findings"`
				Conditions []struct {
					Type   string `json:"type"`
					Status string `json:"status"`
				} `json:"conditions"`
			} `json:"status"`
		}
		if err := json.Unmarshal([]byte(r.Out), &object); err != nil {
			t.Fatalf("%v: %s", err, r.Out)
		}
		o := object.Status
		if len(o.Findings) == 0 {
			continue
		}
		f := o.Findings[0]
		if f.Code != "danger-leases" || f.Severity != "danger" || f.Path != "webhooks[0].failurePolicy" || o.Source != "directory" {
			t.Errorf("the object is %s", r.Out)
		}
		if c := o.Conditions[0]; c.Type != "Accepted" || c.Status != "True" {
			t.Errorf("it is in force, and said not to be: %s", r.Out)
		}
		return
	}
}

func TestAMeshWithoutConfigServiceIsOlder(t *testing.T) {
	ready := clitest.StartMesh(t, clitest.Sample).File(t)
	clitest.Execute(t, configcli.NewGet(), nil, "--ready-file", ready).Fails(t, "does not know this call: it is older than this command")
}

// TestServerThatIsAnotherListenerIsNamed: people copy the port that API servers call.
func TestServerThatIsAnotherListenerIsNamed(t *testing.T) {
	r := newRotated(t)
	address := strings.TrimPrefix(r.info.Bridge, "https://")
	want := address + " is a listener for HTTP, as that for the JSON of API servers is (serve --listen, often port 8443): " +
		"--server wants the listener for hosts (serve --listen-hosts, often port 8444)"
	r.run(configcli.NewGet(), "", "--server", address).Fails(t, want)
	r.run(analyze.NewCommand(), "", "--server", address).Fails(t, want)
	r.run(reviewcli.NewCommand(), clitest.Review, "-f", "-", "--stage", "validate", "--server", address).Fails(t, want)
	r.run(configcli.NewGet(), "", "--server", strings.TrimPrefix(r.info.Admin, "http://")).Fails(t, "speaks plain HTTP at this port")
}
