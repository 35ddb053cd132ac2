package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

// TestAFollowedWebhookRenewsItsAuthorityWhilePodsAreCreated: the webhook has a
// new authority, and a new certificate of it. Its owner writes both authorities
// into the caBundle before the certificate changes, and the new one alone
// after that. No write fails, and the webhook sees each of them once.
func TestAFollowedWebhookRenewsItsAuthorityWhilePodsAreCreated(t *testing.T) {
	citest.Gate(t, "renews an authority while Pods are created: 8 s")
	f := newFollowingRoad(t, "--data-dir="+t.TempDir())
	server := webhook.Serve(t, cluster.Authority(), webhook.Allow)
	original := f.original(server, "/generation-0")
	cluster.InstallValidating(t, original)
	f.followed(t, original.Name, server)
	writes := &witness{create: f.createDryName}
	flow := newTraffic(t, writes.write)
	flow.await(t)

	authority := cluster.Authority()
	var took []time.Duration
	for range citest.Rounds(1, 1, 5) {
		next, err := pki.NewAuthority("webhook")
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, f.inject(t, server, original.Name, slices.Concat(authority.PEM(), next.PEM())))
		server.Certify(t, next)
		flow.await(t)
		took = append(took, f.inject(t, server, original.Name, next.PEM()))
		flow.await(t)
		authority = next
	}
	flow.wantNoFailure(t)
	calls := callsOf(server)
	for i := range writes.names.Load() {
		if name := fmt.Sprintf("write-%d", i+1); calls[name] != 1 {
			t.Errorf("the webhook was called %d times for %s", calls[name], name)
		}
	}
	if err := f.isOff(t, original.Name, true); err != nil {
		t.Error(err)
	}
	t.Logf("changes were in force after %v", took)
}

// inject writes a caBundle into an original, as cert-manager's cainjector does:
// it changes the object that it has read. It writes another path too, by which
// the calls are known that go by the new object, and returns how long the first
// of these took to come. The mesh verifies the webhook anew for each bundle.
func (f *followingRoad) inject(t *testing.T, server *webhook.Server, name string, bundle []byte) (took time.Duration) {
	t.Helper()
	admission := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	var begun time.Time
	var path string
	eventually(t, "the owner has written", func() error {
		o, err := admission.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		begun, path = time.Now(), fmt.Sprintf("/generation-%d", o.Generation)
		client := &o.Webhooks[0].ClientConfig
		client.CABundle, client.URL = bytes.Clone(bundle), ptr.To(server.URL()+path)
		_, err = admission.Update(t.Context(), o, metav1.UpdateOptions{FieldManager: "cainjector"})
		return err
	})
	eventually(t, "the webhook is called by the new object", func() error {
		calls := server.Calls()
		at := slices.IndexFunc(calls, func(c webhook.Call) bool { return c.URL.Path == path })
		if at < 0 {
			return fmt.Errorf("no call of %s", path)
		}
		if client := calls[at].Client; client != meshName {
			t.Errorf("called by %s", client)
		}
		took = calls[at].Received.Sub(begun)
		return nil
	})
	return took
}
