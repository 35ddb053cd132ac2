package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/webhook"
)

// bundleChanges is how often the owner of a followed object changes its
// caBundle.
const bundleChanges = 20

// TestAFollowedWebhookIsCalledOnceByTwoDispatchersThatKeepTheEntries goes from
// a document with spec.follow and spec.registration to a cluster that has left,
// while clients write: the webhook sees each write, and once alone while it is
// followed, also while its owner changes its caBundle.
func TestAFollowedWebhookIsCalledOnceByTwoDispatchersThatKeepTheEntries(t *testing.T) {
	citest.Soak(t, "waits for entries and originals to settle: 31 s")
	k := newPairOfKeepers(t, "--webhook-kubeconfig="+webhookKubeconfig(t))
	server := webhook.Serve(t, cluster.Authority(), webhook.Allow)
	original := k.original(server, "/review")
	cluster.InstallValidating(t, original)
	writes := &witness{create: k.createDryName}
	flow := newTraffic(t, writes.write)
	flow.await(t)

	k.apply(t, []string{k.keptCluster(t, k.bridge) + k.followed()}, "--wait", "--timeout=1m")
	off := func(off bool) func() error { return func() error { return k.isOff(t, original.Name, off) } }
	eventually(t, "the original is off", off(true))
	k.obeyed(t, original.Name, server)

	flow.wantNoFailure(t)
	first := writes.names.Load() + 1
	flow = newTraffic(t, writes.write)
	for i := range bundleChanges {
		k.renew(t, original.Name, i)
		flow.await(t)
	}
	flow.wantNoFailure(t)
	last, calls := writes.names.Load(), callsOf(server)
	for i := first; i <= last; i++ {
		if n := calls[fmt.Sprintf("write-%d", i)]; n != 1 {
			t.Errorf("the webhook was called %d times for write-%d", n, i)
		}
	}
	if err := k.isOff(t, original.Name, true); err != nil {
		t.Error(err)
	}
	t.Logf("%d writes during %d changes of the caBundle", last-first+1, bundleChanges)

	flow = newTraffic(t, writes.write)
	k.leave(t, original.Name)
	eventually(t, "the API server alone calls the webhook", func() error { return k.calledOnce(t, server) })
	flow.wantNoFailure(t)
	calls = callsOf(server)
	writes.made.Range(func(name, _ any) bool {
		if calls[fmt.Sprint(name)] == 0 {
			t.Errorf("the webhook did not see %v", name)
		}
		return true
	})
}

// leave has the cluster leave the mesh: its document cannot be deleted alone.
func (k *pairOfKeepers) leave(t *testing.T, original string) {
	t.Helper()
	for _, args := range [][]string{{"delete", "cluster", clusterName, "--dry-run=server"}, {"delete", "cluster", clusterName}} {
		if _, err := k.run(t, args...); err == nil || !strings.Contains(err.Error(), "portcullis cluster unregister "+clusterName+" --remove-document") {
			t.Errorf("%v: %v", args, err)
		}
	}
	kubeconfig := kubeconfigOf(t, cluster.Config())
	code, out := k.command(t, "unregister", clusterName, "--name="+k.name, "--kubeconfig="+kubeconfig)
	k.expect(t, code, 2, out, "the mesh follows validatingwebhookconfiguration/"+original, "use --remove-document")
	out, err := k.run(t, "cluster", "unregister", clusterName, "--name="+k.name, "--kubeconfig="+kubeconfig, "--remove-document", "--dry-run")
	k.expect(t, 0, 0, out, "validatingwebhookconfiguration/"+k.name+" deleted (dry run)", "Cluster/"+clusterName+" would be removed (dry run)")
	if err != nil {
		t.Error(err)
	}
	out, err = k.run(t, "cluster", "unregister", clusterName, "--name="+k.name, "--kubeconfig="+kubeconfig, "--remove-document")
	k.expect(t, 0, 0, out, "validatingwebhookconfiguration/"+k.name+" deleted", "Cluster/"+clusterName+" is being removed")
	if err != nil {
		t.Error(err)
	}
	if err := k.isOff(t, original, false); err != nil {
		t.Error(err)
	}
	eventually(t, "the store has let go of all of it", func() error {
		if out, err := k.run(t, "get", "vwc,hookroute,cluster", "-o=name"); err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	_, err = cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), k.name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the entries are left: %v", err)
	}
}

// followed is the part of a Cluster's spec that follows the webhook
// configurations labelled with the road's name.
func (r *road) followed() string {
	return fmt.Sprintf("  follow: {selector: {matchLabels: {%s: %s}}, webhookHosts: [127.0.0.1]}\n", followLabel, r.name)
}

// renew writes another caBundle into an original, as cert-manager's cainjector
// does: it changes the object that it has read.
func (*road) renew(t *testing.T, name string, i int) {
	t.Helper()
	admission := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	eventually(t, "the owner has written", func() error {
		o, err := admission.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		o.Webhooks[0].ClientConfig.CABundle = append(bytes.TrimSpace(o.Webhooks[0].ClientConfig.CABundle), bytes.Repeat([]byte("\n"), 1+i%2)...)
		_, err = admission.Update(t.Context(), o, metav1.UpdateOptions{FieldManager: "cainjector"})
		return err
	})
}

// TestAFollowedMutatingWebhookPatchesOnce follows a mutating webhook. Its patch
// is in each Pod once, and its reinvocationPolicy counts as in the API server.
func TestAFollowedMutatingWebhookPatchesOnce(t *testing.T) {
	citest.Gate(t, "covers followed webhooks: 6 s")
	f := newFollowingRoad(t, "--data-dir="+t.TempDir(), shortLag)
	server := webhook.Serve(t, cluster.Authority(), func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if bytes.Contains(r.Object.Raw, []byte(`"name":"sidecar"`)) {
			return &admissionv1.AdmissionResponse{Allowed: true}
		}
		return webhook.Patch(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"sidecar"}}]`)(r)
	})
	hook := atURL(server, "sidecar.istio.io", "/inject")
	hook.NamespaceSelector = kube.InNamespace(f.namespace)
	original := kube.Mutating("istio-"+f.name, hook)
	original.Labels = map[string]string{followLabel: f.name}
	original.Webhooks[0].ReinvocationPolicy = ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
	cluster.InstallMutating(t, original)

	// Another webhook changes the Pod behind it, so that it is called again.
	later := webhook.Serve(t, cluster.Authority(), webhook.Patch(`[{"op":"add","path":"/metadata/labels","value":{"later":"yes"}}]`))
	behind := atURL(later, "later.example.com", "/later")
	behind.NamespaceSelector = kube.InNamespace(f.namespace)
	cluster.InstallMutating(t, kube.Mutating("zz-"+f.name, behind))
	names := 0
	// injected creates a Pod, and wants it to be reviewed by this client so often.
	injected := func(client string, calls int) error {
		names++
		name := fmt.Sprintf("injected-%d", names)
		pod, err := cluster.Client().CoreV1().Pods(f.namespace).Create(t.Context(), kube.Pod(f.namespace, name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || len(pod.Spec.Containers) != 2 || pod.Spec.Containers[1].Name != "sidecar" || pod.Labels["later"] != "yes" {
			t.Errorf("%s: %v, %v", name, pod, err)
		}
		var by []string
		for _, c := range server.Calls() {
			if c.Request.Name == name {
				by = append(by, c.Client)
			}
		}
		if want := slices.Repeat([]string{client}, calls); !slices.Equal(by, want) {
			return fmt.Errorf("called by %v, want %v", by, want)
		}
		return nil
	}
	if err := injected(kube.WebhookClientName, 2); err != nil {
		t.Errorf("before it is followed: %v", err)
	}

	f.follow(t, true)
	f.registeredWith(t, "mutatingwebhookconfigurations")
	eventually(t, "the mesh calls it, and again behind the other webhook", func() error { return injected(meshName, 2) })
	if err := injected(meshName, 2); err != nil {
		t.Error(err)
	}

	never, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/webhooks/0/reinvocationPolicy", "value": "Never"}})
	if err != nil {
		t.Fatal(err)
	}
	admission := cluster.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := admission.Patch(t.Context(), original.Name, types.JSONPatchType, never, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy has the other policy", func() error {
		if out, err := f.run(t, "get", "mutatingwebhookconfigurations", "-o=yaml"); err != nil || !strings.Contains(out, "reinvocationPolicy: Never") {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	f.registeredWith(t, "mutatingwebhookconfigurations")
	eventually(t, "the mesh calls it once", func() error { return injected(meshName, 1) })
	if err := injected(meshName, 1); err != nil {
		t.Error(err)
	}
}

// TestAFollowedServiceIsCalledAtTheAddressOfTheOperator follows a webhook whose
// Service only the cluster knows. The API server of the test reaches none.
func TestAFollowedServiceIsCalledAtTheAddressOfTheOperator(t *testing.T) {
	citest.Gate(t, "covers followed webhooks: 4 s")
	server := webhook.Serve(t, cluster.Authority(), webhook.Allow, "webhook.cert-manager.svc")
	f := newFollowingRoad(t, "--data-dir="+t.TempDir(), shortLag, "--webhook-service="+clusterName+"/cert-manager/webhook="+server.Address())
	original := f.original(server, "/review")
	original.Webhooks[0].ClientConfig.URL = nil
	original.Webhooks[0].ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: "cert-manager", Name: "webhook", Path: ptr.To("/review")}
	original.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	cluster.InstallValidating(t, original)

	f.follow(t, true)
	f.registered(t)
	eventually(t, "the original is off", func() error { return f.isOff(t, original.Name, true) })
	eventually(t, "the mesh calls the webhook", func() error { return f.calledOnce(t, server) })
	f.wantCalls(t, "service", 1, server)
	if call := server.Calls()[0]; call.Client != meshName || call.URL.Path != "/review" {
		t.Errorf("called by %s at %s", call.Client, call.URL)
	}
}
