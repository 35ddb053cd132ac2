package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// shortLag has dispatchers wait a second where they wait for five or ten, for API servers that have yet to obey a change of a webhook
// configuration. It is for tests that do not rely on the time having been enough.
const shortLag = "--api-server-lag=1s"

// keptCluster is the document of the shared cluster with the entries that the
// mesh is to keep. They are called at url.
func (r *road) keptCluster(t *testing.T, url string) string {
	t.Helper()
	return r.keptClusterAs(t, url, r.name)
}

// keptClusterAs is keptCluster with entries of a name.
func (r *road) keptClusterAs(t *testing.T, url, name string) string {
	t.Helper()
	return mesh.Document(t, map[string]any{
		"apiVersion": "portcullis.dev/v1", "kind": "Cluster", "metadata": map[string]any{"name": clusterName},
		"spec": map[string]any{
			"identities": []string{kube.WebhookClientName}, "kubeconfig": kubeconfigOf(t, cluster.Config()),
			"registration": map[string]any{"url": url, "caBundle": r.Authority().PEM(), "name": name},
		},
	})
}

// TestTheMeshKeepsItsEntries runs no command: the entries come with the
// document of the cluster, follow hooks that are added, and come back when somebody
// changes or deletes them, also after the dispatcher that wrote them is gone.
func TestTheMeshKeepsItsEntries(t *testing.T) {
	citest.Gate(t, "waits for another dispatcher to take over: 19 s")
	const denier, later = "denier.example.com", "later.example.com"
	var r *road
	t.Cleanup(func() { r.deleteEntries(t) }) // once the dispatchers have ended, which would write them again
	hooks := documents(t, kube.Validating("denier", onPods(denier)))
	m := newMesh(t, mesh.Options{Args: []string{shortLag}, Documents: append(hooks, clusterDocument(t))})
	r = newRoadOn(t, m, m.Serve(t))
	other := r.Serve(t)
	deny := func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.Namespace() == r.namespace { // entries serve the whole cluster
			return hostsdk.Deny("not today"), nil
		}
		return hostsdk.Allow(), nil
	}
	r.host(t, hostsdk.Validate(denier, deny))
	by := func(hook string, err error) error {
		if statusCode(err) != http.StatusForbidden || !strings.Contains(err.Error(), hook) || !strings.Contains(err.Error(), "not today") {
			return notDeniedError{err}
		}
		return nil
	}
	denied := func() error { return by(denier, r.createDry(t.Context())) }

	r.Configure(t, "initial", append(hooks, r.keptCluster(t, r.bridge))...)
	eventually(t, "the entries are there", denied)

	admission := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if err := admission.Delete(t.Context(), r.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deleted entries are there again", func() error {
		if _, err := admission.Get(t.Context(), r.name, metav1.GetOptions{}); err != nil {
			return err // the API server may still call by the deleted ones, which it forgets by a watch
		}
		return denied()
	})
	if _, err := admission.Patch(t.Context(), r.name, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/webhooks/0/rules/0/resources","value":["secrets"]}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "changed entries are as they were", func() error {
		entries, err := admission.Get(t.Context(), r.name, metav1.GetOptions{})
		if err == nil && entries.Webhooks[0].Rules[0].Resources[0] != "pods" {
			err = errors.New("they are about secrets")
		}
		return errors.Join(err, denied())
	})

	onConfigMaps := onPods(later)
	onConfigMaps.Resources = []string{"configmaps"}
	hooks = append(hooks, documents(t, kube.Validating("later", onConfigMaps))...)
	r.Configure(t, "initial", append(hooks, r.keptCluster(t, r.bridge))...)
	r.host(t, hostsdk.Validate(later, deny))
	eventually(t, "entries bring the requests of a hook that is added", func() error {
		_, err := cluster.Client().CoreV1().ConfigMaps(r.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return by(later, err)
	})

	r.Configure(t, "initial", append(hooks, r.keptCluster(t, other.Bridge))...)
	r.dispatcher.Stop(t)
	eventually(t, "the other dispatcher writes the entries", denied)

	unregister := func() (int, string) {
		return r.command(t, "unregister", clusterName, "--name="+r.name, "--kubeconfig="+kubeconfigOf(t, cluster.Config()))
	}
	if code, out := unregister(); code == 0 || !strings.Contains(out, "remove spec.registration") {
		t.Errorf("unregister of what the mesh keeps: exit code %d\n%s", code, out)
	}
	r.Configure(t, "initial", append(hooks, clusterDocument(t))...)
	eventually(t, "the mesh has ended to keep them", func() error {
		if code, out := unregister(); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	_, err := cluster.Client().CoordinationV1().Leases("kube-system").Get(t.Context(), "portcullis-entries-"+r.name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Lease is left: %v", err)
	}
}

// TestTheMeshKeepsNoEntriesInAnObjectOfAnother has an object of the same name that the mesh did not make: it stays as it is, the Cluster shows
// why nothing is registered, and the entries come once the operator has followed that message.
func TestTheMeshKeepsNoEntriesInAnObjectOfAnother(t *testing.T) {
	citest.Gate(t, "waits for the next comparison of entries: 6 s")
	const denier = "denier.example.com"
	var r *road
	t.Cleanup(func() { r.deleteEntries(t) })
	hook := onPods(denier)
	hooks := documents(t, kube.Validating("denier", hook))
	m := newMesh(t, mesh.Options{Args: []string{"--operator=operator", shortLag}, Documents: append(hooks, clusterDocument(t))})
	r = newRoadOn(t, m, m.Serve(t))
	operator := newOperator(t, m, r.dispatcher)
	admission := cluster.Client().AdmissionregistrationV1()
	theirs, err := admission.ValidatingWebhookConfigurations().Create(t.Context(), kube.Validating(r.name), metav1.CreateOptions{FieldManager: "helm"})
	if err != nil {
		t.Fatal(err)
	}
	registered := func(status, message string) error {
		return operator.has(t, "cluster", clusterName, "Registered", status, message)
	}

	r.Configure(t, "initial", append(hooks, r.keptCluster(t, r.bridge))...)
	eventually(t, "the Cluster shows the object of another", func() error {
		return registered("False", "validatingwebhookconfiguration/"+r.name+": it was not made by portcullis for this cluster: choose another name (--name, or spec.registration.name)")
	})
	now, err := admission.ValidatingWebhookConfigurations().Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil || now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the object of another has changed: %v, %v", now, err)
	}
	if _, err := admission.MutatingWebhookConfigurations().Get(t.Context(), r.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("half of the entries is there: %v", err)
	}

	if err := admission.ValidatingWebhookConfigurations().Delete(t.Context(), r.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the entries are there", func() error { return registered("True", "") })
	eventually(t, "the API server has learnt of them", func() error {
		err := r.createDry(t.Context())
		if statusCode(err) != http.StatusInternalServerError || !strings.Contains(err.Error(), denier) { // no host serves it
			return notDeniedError{err}
		}
		return nil
	})
}

// TestAClusterThatIsACustomResourceShowsWhetherItsEntriesAreWritten waits for the condition as `kubectl wait` does.
func TestAClusterThatIsACustomResourceShowsWhetherItsEntriesAreWritten(t *testing.T) {
	citest.Gate(t, "waits for the next comparison of entries: 8 s")
	c := newCustomized(t, "--data-dir="+t.TempDir(), shortLag) // its own entry has the name of the road, and no mesh has made it
	c.Configure(t, "initial")
	name := c.name + "-kept"
	t.Cleanup(func() { c.dispatcher.Stop(t); c.deleteEntriesOf(t, name) })
	of := func(name string) string { return c.keptClusterAs(t, c.bridge, name) }
	hook := onPods(policyHook)
	hook.NamespaceSelector = kube.InNamespace(c.namespace)
	c.apply(t, mesh.Route("policies", hostName))
	c.apply(t, inOurGroup(t, kube.Validating("policies", hook)))

	c.apply(t, of(c.name))
	c.await(t, of(c.name), "Registered", "False", "was not made by portcullis for this cluster: choose another name")
	const object = "cluster.portcullis.dev/" + clusterName
	if said, err := runKubectl(t, "wait", "--for=condition=Registered", "--timeout=1s", object); err == nil {
		t.Errorf("kubectl wait does not wait for entries that cannot be written: %s", said)
	}
	if said, err := runKubectl(t, "wait", "--for=condition=Registered=False", "--timeout="+patience.String(), object); err != nil {
		t.Error(err, said)
	}

	c.apply(t, of(name))
	if said, err := runKubectl(t, "wait", "--for=condition=Registered", "--timeout="+patience.String(), object); err != nil {
		t.Error(err, said)
	}
	entries, err := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || len(entries.Webhooks) == 0 {
		t.Errorf("the entries are not there: %v, %v", entries, err)
	}
}
