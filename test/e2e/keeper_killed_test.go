package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// takeover is the patience of tests that wait for another dispatcher to take
// a Lease whose holder was killed.
const takeover = 5 * time.Minute

// pairOfKeepers are two dispatchers with one store, behind one address. The
// first one holds the Lease for the entries of the cluster.
type pairOfKeepers struct {
	*road
	operator

	other *mesh.Dispatcher
}

func newPairOfKeepers(t *testing.T, args ...string) *pairOfKeepers {
	t.Helper()
	var k pairOfKeepers
	t.Cleanup(func() { k.deleteEntries(t) }) // once the dispatchers have ended, which would write them again
	m := newMesh(t, mesh.Options{Args: append(args,
		"--operator=operator", "--ready-timeout=1ns",
		"--etcd=http://"+cluster.EtcdAddress(), "--etcd-create", "--etcd-prefix=/"+rand.Text()+"/",
	)})
	k.road = newRoadOn(t, m, m.Serve(t))
	eventually(t, "the first dispatcher has the configuration", func() error { return k.dispatcher.Ready(t.Context()) })
	k.operator = newOperator(t, m, k.dispatcher)
	balancer := mesh.Balance(t, mesh.BridgePort, k.dispatcher)
	k.bridge = "https://" + balancer.Address
	k.apply(t, []string{k.keptCluster(t, k.bridge)})
	eventually(t, "the first dispatcher holds the Lease", func() error {
		holder, err := k.holder(t)
		if err == nil && holder == "" {
			err = errors.New("nobody does")
		}
		return err
	})
	k.other = m.Serve(t)
	eventually(t, "the other one has the configuration", func() error { return k.other.Ready(t.Context()) })
	balancer.Add(k.other)
	k.operator = newOperator(t, m, k.other)
	return &k
}

// holder is the dispatcher that holds the Lease for the entries.
func (r *road) holder(t *testing.T) (string, error) {
	t.Helper()
	lease, err := cluster.Client().CoordinationV1().Leases("kube-system").Get(t.Context(), "portcullis-entries-"+r.name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// bring is an error unless the entries bring requests for a resource.
func (r *road) bring(t *testing.T, resource string) error {
	t.Helper()
	entries, err := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, w := range entries.Webhooks {
		for _, rule := range w.Rules {
			if slices.Contains(rule.Resources, resource) {
				return nil
			}
		}
	}
	return fmt.Errorf("no entry for %s: %v", resource, entries.Webhooks)
}

// apply applies documents to the store.
func (k *pairOfKeepers) apply(t *testing.T, documents []string, args ...string) {
	t.Helper()
	k.runWith(t, documents, append([]string{"apply"}, args...)...)
}

// remove deletes the objects of documents from the store, and returns when no
// dispatcher begins a review with them.
func (k *pairOfKeepers) remove(t *testing.T, documents []string) {
	t.Helper()
	k.runWith(t, documents, "delete", "--wait", "--timeout="+takeover.String())
}

// runWith runs a command with documents.
func (k *pairOfKeepers) runWith(t *testing.T, documents []string, args ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "documents.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := k.run(t, append(args, "-f", file)...); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
}

// TestAKilledKeeperIsReplacedAndNoHookIsInForceBeforeItsEntries kills the
// dispatcher that writes the entries. A hook that is applied then is in
// rotation only once the other one has written them, and a hook of before
// sees each write all the time.
func TestAKilledKeeperIsReplacedAndNoHookIsInForceBeforeItsEntries(t *testing.T) {
	citest.Soak(t, "waits for the Lease of a dispatcher that was killed: 56 s")
	const onPodsName, laterName = "watching.example.com", "later.example.com"
	k := newPairOfKeepers(t)
	pods := &witness{create: k.createDryName}
	configMaps := &witness{create: func(ctx context.Context, name string) error {
		_, err := cluster.Client().CoreV1().ConfigMaps(k.namespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}}
	k.StartHost(t, hostName,
		hostsdk.Validate(onPodsName, pods.judge),
		hostsdk.Validate(laterName, configMaps.judge),
	)
	first := onPods(onPodsName)
	first.NamespaceSelector = kube.InNamespace(k.namespace)
	k.apply(t, documents(t, kube.Validating("watching", first)), "--wait", "--timeout=1m")
	eventually(t, "the hook sees Pods", func() error { return pods.sees(t.Context()) })
	flow := newTraffic(t, pods.write)
	flow.await(t)
	killed, err := k.holder(t)
	if err != nil {
		t.Fatal(err)
	}

	k.dispatcher.Kill(t)
	begun := time.Now()
	later := first
	later.Name, later.Resources = laterName, []string{"configmaps"}
	k.apply(t, documents(t, kube.Validating("later", later)))
	within(t, takeover, "the new hook is in rotation", func() error { return k.has(t, "vwc", "later", "InRotation", "True", "") })
	inRotation := time.Since(begun)
	if err := k.bring(t, "configmaps"); err != nil {
		t.Errorf("a hook is in rotation before its entries: %v", err)
	}
	eventually(t, "the API server has learnt of the entries", func() error { return configMaps.sees(t.Context()) })
	flowOfLater := newTraffic(t, configMaps.write)
	flowOfLater.await(t)
	within(t, takeover, "another dispatcher holds the Lease", func() error {
		holder, err := k.holder(t)
		if err == nil && holder == killed {
			err = fmt.Errorf("%s still does", holder)
		}
		return err
	})
	within(t, takeover, "the entries are those of the hooks", func() error { return k.has(t, "cluster", clusterName, "Registered", "True", "") })
	t.Logf("after the kill: the new hook in rotation after %v, its entries reported after %v", inRotation, time.Since(begun))

	flow.end()
	flowOfLater.wantNoFailure(t)
	t.Logf("%d Pods, of which %d failed; %d ConfigMaps", pods.wantAll(t), flow.failed, configMaps.wantAll(t))
}
