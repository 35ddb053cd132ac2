package serve

import (
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
)

// gate is a configuration with the initializer sidecar.example.com, granted to one host. Two authors have such a configuration each.
func gate(configuration, policy, resource, host, timeout, clusters string) string {
	return `---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: ` + configuration + `}
initializers:
- name: sidecar.example.com
  failurePolicy: ` + policy + `
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [` + resource + `]}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: ` + configuration + `}
spec: {configuration: ` + configuration + `, stage: initialize, hosts: ["` + host + `"], timeout: ` + timeout + `, clusters: ` + clusters + `}
`
}

// TestAnInitializerIsNotSwitchedOffByItsName has two authors who give their initializers one name, in files, which no apply looks at. One
// fails closed. The other one fails open, and is granted to a controller that acts on all that it may.
func TestAnInitializerIsNotSwitchedOffByItsName(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{
		"about the same requests, after it":   gate("team", "Ignore", "widgets", "spiffe://team", "100ms", "[]"),
		"about the same requests, before it":  gate("a-team", "Ignore", "widgets", "spiffe://team", "100ms", "[]"),
		"about other requests":                gate("team", "Ignore", "gadgets", devAPIServer, "1s", "[]"),
		"about the same, with the controller": gate("team", "Ignore", "widgets", devAPIServer, "1s", "[]"),
		"for another cluster":                 gate("team", "Ignore", "widgets", devAPIServer, "1s", "[west]"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, info := appWithStore(t, func(d *dev, _ *serveConfig) {
				documents := gate("platform", "Fail", "widgets", "spiffe://platform", "1s", "[]") + other
				if err := os.WriteFile(d.path("config/gates.yaml"), []byte(documents), 0o600); err != nil {
					t.Fatal(err)
				}
			})
			tried := make(chan error, 2)
			runController(t, info, func(err error) { tried <- err })
			r := clitest.Execute(t, reviewcli.NewCommand(), strings.NewReader(createWidget), "-f", "-", "--stage", "mutate", "--cluster", devCluster,
				"--timeout", "30s", "--ready-file", readyFileOf(t, info))
			if !strings.Contains(r.Out, "mutate: failed (504") {
				t.Errorf("nothing has acted for the initializer that fails closed: %v", r)
			}
			for len(tried) > 0 {
				if err := <-tried; !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
					t.Errorf("the controller of the other one hears %v", err)
				}
			}
		})
	}
}

// TestTwoInitializersOfOneNameAreNotApplied unless no cluster has both.
func TestTwoInitializersOfOneNameAreNotApplied(t *testing.T) {
	t.Parallel()
	ready := withStore(t)
	apply := func(documents string) clitest.Result {
		return clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--ready-file", ready, "--acknowledge", "danger-kube-system")
	}
	for _, documents := range []string{
		gate("platform", "Ignore", "widgets", "spiffe://platform", "1s", "[east, north]"), gate("team", "Ignore", "gadgets", "spiffe://team", "1s", "[west]"),
	} {
		if r := apply(documents); r.Code != 0 {
			t.Fatal(r)
		}
	}
	for name, documents := range map[string]string{
		"a route that brings a cluster of the other one": gate("team", "Ignore", "gadgets", "spiffe://team", "1s", "[west, north]"),
		"a route for all clusters":                       gate("team", "Ignore", "gadgets", "spiffe://team", "1s", "[]"),
		"a third one":                                    gate("third", "Ignore", "gadgets", "spiffe://team", "1s", "[north]"),
	} {
		t.Run(name, func(t *testing.T) {
			apply(documents).Ends(t, cli.ExitDenied, `"sidecar.example.com" is the name of InitializerConfiguration/`)
		})
	}
}
