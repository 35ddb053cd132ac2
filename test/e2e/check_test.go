package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// TestCheckLooksAtTheMeshAndAtTheClusterThatCallsIt runs "portcullis check" before and after a host of a fail-closed hook is there.
func TestCheckLooksAtTheMeshAndAtTheClusterThatCallsIt(t *testing.T) {
	const hook = "checked.example.com"
	r := newRoadWith(t, mesh.Options{Args: []string{"--data-dir=" + t.TempDir(), "--operator=operator"}}, kube.Validating("checked", onPods(hook)))
	r.validate(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	cert, key := r.Certify(t, "operator")
	check := func() (int, string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), portcullis, "check", "--server="+r.dispatcher.Hosts, "--ca="+r.AuthorityFile(), "--cert="+cert, "--key="+key,
			"--url="+r.bridge, "--api-server", "--kubeconfig="+kubeconfig)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	bundle := "  ok   the caBundle of the entries vouches for the mesh at " + strings.TrimPrefix(r.bridge, "https://")
	code, out := check()
	missing := "FAIL hook " + hook + " of ValidatingWebhookConfiguration/checked has a host"
	if code != 1 || !strings.Contains(out, missing) || !strings.Contains(out, bundle) || !strings.Contains(out, " of cluster "+clusterName+"\n") {
		t.Errorf("without a host: exit code %d\n%s", code, out)
	}
	r.host(t, hostsdk.Validate(hook, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }))
	eventually(t, "nothing is wrong", func() error {
		if code, out := check(); code != 0 || !strings.Contains(out, "every hook in force has a host") {
			return fmt.Errorf("exit code %d\n%s", code, out)
		}
		return nil
	})
}
