package e2e

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/netns"
)

// TestTwoClustersOfWhichOneIsBehindABridgeWhoseLinkIsCut has two real API
// servers. One calls a dispatcher, by a capability. The bridge of the other
// reaches the second dispatcher over a link of 50 ms. While that is cut, the first
// cluster goes on as before.
func TestTwoClustersOfWhichOneIsBehindABridgeWhoseLinkIsCut(t *testing.T) {
	citest.Soak(t, "waits for sessions to notice a link that is cut, as root: 11 s")
	n := netns.New(t)
	here, far := n.Here(), n.Namespace(t)
	link := n.Link(t, here, far)
	link.Slow(25*time.Millisecond, 10<<20)
	const denier = "denier.example.com"
	hook := onPods(denier)
	hook.Timeout = bridgeTimeout
	hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{tierLabel: "strict"}}
	near, shown := newControlPlane(t), newCapability(t)
	near.kubeconfig = near.kubeconfigFor(t, "portcullis", kube.ContextReaders)
	near.Mesh = newMesh(t, mesh.Options{
		Addresses: []string{far.Address()}, Args: []string{"--allow-capabilities"}, Documents: []string{bridged},
	}, kube.Validating("denier", hook))
	near.allow(t, shown)
	near.dispatcher = near.Serve(t)
	r := newRoadOn(t, near.Mesh, near.ServeIn(t, far))
	r.host(t, hostsdk.Validate(denier, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("not in " + denier), nil
	}))
	r.startBridge(t)
	entry := r.entry("validate", nil)
	entry.Timeout = bridgeTimeout
	cluster.InstallValidating(t, kube.Validating(r.name, entry))
	near.register(t, shown)

	tier := map[string]string{tierLabel: "strict"}
	strict, nearStrict := r.newNamespace(t, tier), near.cluster.Namespace(t, tier)
	behind := func() error { return deniedIn(t.Context(), cluster, strict) }
	direct := func() error { return deniedIn(t.Context(), near.cluster, nearStrict) }
	eventually(t, "the hook denies in the cluster of the bridge", behind)
	eventually(t, "the hook denies in the other cluster", direct)

	link.Cut()
	wantError(t, createDryIn(t.Context(), cluster, strict), http.StatusInternalServerError, "failed calling webhook")
	for range 5 {
		if err := direct(); err != nil {
			t.Errorf("the other cluster while the link is cut: %v", err)
		}
	}
	if err := createDryIn(t.Context(), near.cluster, near.namespace); err != nil {
		t.Errorf("a namespace of the other cluster that the hook does not select: %v", err)
	}
	link.Mend()
	eventually(t, "the hook denies again in the cluster of the bridge", behind)
	if err := direct(); err != nil {
		t.Errorf("the other cluster after the link was restored: %v", err)
	}
}

// createDryIn creates a Pod in a dry run.
func createDryIn(ctx context.Context, in *kube.Cluster, namespace string) error {
	_, err := in.Client().CoreV1().Pods(namespace).Create(ctx, kube.Pod(namespace, "pod"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// deniedIn is an error unless a hook denies that.
func deniedIn(ctx context.Context, in *kube.Cluster, namespace string) error {
	if err := createDryIn(ctx, in, namespace); statusCode(err) != http.StatusForbidden {
		return errors.Join(errors.New("not denied"), err)
	}
	return nil
}
