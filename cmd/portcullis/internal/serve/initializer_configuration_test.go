package serve

import (
	"os"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
)

// podImage is an initializer for which a controller acts.
const podImage = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: example-config}
initializers:
- name: podimage.example.com
  rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: podimage}
spec: {configuration: example-config, stage: initialize, hosts: [podimage]}
`

func TestAnInitializerIsAppliedAndShownAsHooksAre(t *testing.T) {
	ready := withStore(t)
	run := func(name string, got clitest.Result, want ...string) {
		t.Helper()
		text := oneSpace(got.Out + got.Notes)
		for _, w := range want {
			if !strings.Contains(text, w) || got.Code != 0 {
				t.Errorf("%s: exit code %d, no %q in %s", name, got.Code, w, text)
			}
		}
	}
	closed := strings.Replace(podImage, "  rules:", "  failurePolicy: Fail\n  rules:", 1)
	clitest.Execute(t, configcli.NewApply(), strings.NewReader(closed), "-f", "-", "--ready-file", ready).
		Ends(t, cli.ExitDenied, "initializers[0].failurePolicy: a hook of this kind begins with Ignore")
	run("apply", clitest.Execute(t, configcli.NewApply(), strings.NewReader(podImage), "-f", "-", "--wait", "--ready-file", ready),
		"InitializerConfiguration/example-config created", "HookRoute/podimage created")
	run("closed", clitest.Execute(t, configcli.NewApply(), strings.NewReader(closed), "-f", "-", "--wait", "--ready-file", ready),
		"InitializerConfiguration/example-config updated")
	get := func(args ...string) clitest.Result {
		return clitest.Execute(t, configcli.NewGet(), nil, append(args, "--ready-file", ready)...)
	}
	run("get", get("initializerconfigurations"), "InitializerConfiguration/example-config", "True", "etcd")
	run("get by its short name", get("initconf", "example-config", "-o", "yaml"), "kind: InitializerConfiguration", "name: podimage.example.com", "failurePolicy: Fail")
	run("get hooks", get("hooks"), "podimage.example.com initialize all Fail controllers InRotation InitializerConfiguration/example-config")
	explain := func(args ...string) clitest.Result {
		return clitest.Execute(t, configcli.NewExplain(), nil, append(args, "--ready-file", ready)...)
	}
	run("explain", explain("initconf", "example-config"), "InitializerConfiguration/example-config is in force everywhere")
	run("explain hook", explain("hook", "podimage.example.com"),
		"hook podimage.example.com of InitializerConfiguration/example-config is called, and served by controllers", "stage initialize", "failure policy Fail", "timeout 5s", "test InRotation controllers")
	run("delete", clitest.Execute(t, configcli.NewDelete(), nil, "initconf", "example-config", "--wait", "--ready-file", ready), "is being removed")
}

func TestADispatcherWithoutAStoreRefusesInitializers(t *testing.T) {
	r := newRestarts(t)
	if err := os.WriteFile(r.d.path("config/initializers.yaml"), []byte(podImage), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := r.serve()
	const want = "objects are staged for initializers in etcd, and this dispatcher has none: start it with --data-dir or --etcd, or remove the document"
	if err == nil || !strings.Contains(err.Error()+log, want) {
		t.Errorf("error %v, log %s", err, log)
	}
}
