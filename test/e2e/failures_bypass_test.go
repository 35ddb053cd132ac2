package e2e

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// ofOpenResources are the rows of fail-closed hooks on resources that always fail open, and on others.
func ofOpenResources(t *testing.T) *failures {
	f := &failures{}
	for i, name := range []string{"validate, Fail", "validate, Fail, always fails open", "mutate, Fail", "mutate, Fail, always fails open"} {
		hook := []string{"other", "open"}[i%2] + "." + []string{"validate", "mutate"}[i/2] + ".example.com"
		f.cells = append(f.cells, newFailureCell(t, name, failureCell{
			hook: hook, policy: admissionregistrationv1.Fail, resource: []string{"configmaps", "secrets", "serviceaccounts", "limitranges"}[i],
		}))
	}
	f.start(t, mesh.Options{Documents: []string{
		strings.TrimRight(clusterDocument(t), "\n") + "\n  bypass:\n    failOpen:\n    - {apiGroups: [''], resources: [secrets, limitranges]}\n",
	}})
	f.apply(" created")
	eventually(t, "the entries and the configuration are in force", func() error { return f.all(t, "unavailable") })
	f.row(t, "Resources that always fail open: no host serves the hook", "Start a host. `portcullis_hook_fail_open_total` counts what passed.", f.expect("timeout"))
	t.Run("host", func(t *testing.T) {
		f.host(t, f.hooks()...)
		f.row(t, "Resources that always fail open: the hook denies", "Read the message: it is the hook's, and holds for all resources.", f.behaveAs("deny"))
	})
	f.row(t, "Resources that always fail open: the mesh is dead", "Start it. The list is in the entries too.",
		func(t *testing.T) func() { f.dispatcher.Stop(t); return nil })
	return f
}
