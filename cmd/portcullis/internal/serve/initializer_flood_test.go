package serve

import (
	"strings"
	"sync"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

const blobs = `
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: blobs}
initializers:
- name: blob.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [blobs]}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: blobs}
spec: {configuration: blobs, stage: initialize, hosts: ["spiffe://absent"], timeout: 300ms, clusters: [tenant]}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: tenant}
spec: {identities: [` + devAPIServer + `]}
`

// TestTheCreatesOfATenantDoNotFillTheStore: objects of one cluster that are held leave their old versions in the store. Past its share a cluster's
// are not held, and CREATEs of another cluster are, and the configuration can be changed.
func TestTheCreatesOfATenantDoNotFillTheStore(t *testing.T) {
	citest.Sequential(t)
	t.Parallel()
	a, _, info := appWithStore(t, func(_ *dev, c *serveConfig) { c.stores.quota = minQuota })
	ready := readyFileOf(t, info)
	apply := func(documents string) clitest.Result {
		return clitest.Execute(t, configcli.NewApply(), strings.NewReader(documents), "-f", "-", "--wait", "--ready-file", ready, "--acknowledge", "danger-kube-system")
	}
	closed := strings.NewReplacer("- name: sidecar.example.com", "- name: sidecar.example.com\n  failurePolicy: Fail", "30s", "5s").Replace(controlledInitializer)
	for _, documents := range []string{controlledInitializer, closed, blobs} {
		if r := apply(documents); r.Code != 0 {
			t.Fatal(r)
		}
	}
	startController(t, info)
	create := func(object, cluster string) string {
		r := clitest.Execute(t, reviewcli.NewCommand(), strings.NewReader(object), "-f", "-", "--stage", "mutate", "--cluster", cluster, "--timeout", "30s", "--ready-file", ready)
		return r.Out + r.Notes
	}
	if got := create(createWidget, devCluster); !strings.Contains(got, "mutate: allowed") {
		t.Fatalf("before the flood: %s", got)
	}
	blob := strings.NewReplacer("widgets", "blobs", "Widget", "Blob", `"n":1`, `"n":"`+strings.Repeat("x", 900_000)+`"`).Replace(createWidget)
	const creates, atATime = 90, 6 // 81 MB: more than the store may have
	refused, next := 0, make(chan struct{}, creates)
	for range creates {
		next <- struct{}{}
	}
	close(next)
	var mu sync.Mutex
	var flood sync.WaitGroup
	for range atATime {
		flood.Go(func() {
			for range next {
				if got := create(blob, "tenant"); strings.Contains(got, "may be written within") {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			}
		})
	}
	flood.Wait()
	if refused == 0 { // on a slow machine the time of many is over before
		t.Errorf("no object of %d was refused for the bytes that are written over time", creates)
	}
	if got := create(createWidget, devCluster); !strings.Contains(got, "mutate: allowed") {
		t.Errorf("another cluster after the flood: %s", got)
	}
	if r := apply(strings.Replace(blobs, "300ms", "400ms", 1)); r.Code != 0 {
		t.Errorf("apply after the flood: %v", r)
	}
	if u := a.initializers.store.Usage(); u == nil || u.Full || u.Quota != minQuota {
		t.Errorf("the store is said to have %+v", u)
	}
}
