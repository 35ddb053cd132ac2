package e2e

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// TestAHookIsInForceOnceEntriesBringItsRequests waits as `kubectl wait --for=condition=InForce` does, after each change of a hook that is a
// custom resource: rules that bring its first requests, wider rules, and a mutating hook beside it. From then on hooks see each write.
func TestAHookIsInForceOnceEntriesBringItsRequests(t *testing.T) {
	citest.Soak(t, "waits for twenty changes of entries: 200 s")
	const first, second = "first.example.com", "second.example.com"
	c := newCustomized(t)
	c.Configure(t, "initial")
	name := c.name + "-kept"
	t.Cleanup(func() { c.dispatcher.Stop(t); c.deleteEntriesOf(t, name) })
	pods := &witness{create: c.createDryName}
	configMaps := &witness{create: func(ctx context.Context, name string) error {
		_, err := cluster.Client().CoreV1().ConfigMaps(c.namespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}}
	mutated := &witness{create: configMaps.create}
	c.apply(t, mesh.Route("policies", hostName))
	c.apply(t, inOurGroup(t, kube.Validating("policies", onNothing(first))))
	c.apply(t, inOurGroup(t, kube.Mutating("policies", onNothing(second))))
	yield := otherKeeper(t, name)
	c.apply(t, c.keptClusterAs(t, c.bridge, name))
	c.host(t,
		hostsdk.Validate(first, func(ctx context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
			if q.Admission().GetResource().GetResource() == "pods" {
				return pods.judge(ctx, q)
			}
			return configMaps.judge(ctx, q)
		}),
		hostsdk.Mutate(second, mutated.judge),
	)
	on := func(hook string, resources ...string) kube.Hook {
		h := onPods(hook)
		h.NamespaceSelector, h.Resources = kube.InNamespace(c.namespace), resources
		return h
	}
	inForce := func(resource string) {
		t.Helper()
		if said, err := runKubectl(t, "wait", resource+".portcullis.dev/policies", "--for=condition=InForce", "--timeout="+patience.String()); err != nil {
			t.Fatal(err, said)
		}
	}
	seen := func(step string, w *witness) {
		t.Helper()
		const writes = 50
		w.made.Clear()
		for range writes {
			if err := w.write(t.Context()); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
		}
		if n := w.wantAll(t); n != writes {
			t.Errorf("%s: %d writes were made of %d", step, n, writes)
		}
	}
	end := inBackground(t, func(ctx context.Context) error { // the API server calls hooks all the time, as in real clusters
		return errors.Join(c.createDryName(ctx, "other"), configMaps.create(ctx, "other"))
	})
	defer end()

	hooks := inOurGroup(t, kube.Validating("policies", on(first, "configmaps")))
	c.apply(t, hooks)
	c.await(t, hooks, "InForce", "False", "on 1 of 1 dispatchers; the entries that the mesh keeps may not bring all of its requests yet in "+clusterName)
	yield()
	inForce("validatinghookconfiguration")
	seen("the entries were late", configMaps)
	for range citest.Rounds(1, 2, 5) {
		c.apply(t, inOurGroup(t, kube.Validating("policies", on(first, "pods"))))
		inForce("validatinghookconfiguration")
		seen("the hook has its first requests", pods)

		c.apply(t, inOurGroup(t, kube.Validating("policies", on(first, "pods", "configmaps"))))
		inForce("validatinghookconfiguration")
		seen("the hook has wider rules", configMaps)
		seen("the hook has wider rules", pods)

		c.apply(t, inOurGroup(t, kube.Mutating("policies", on(second, "configmaps"))))
		inForce("mutatinghookconfiguration")
		seen("a mutating hook has its first requests", mutated)
		seen("a mutating hook has its first requests", configMaps)

		c.apply(t, inOurGroup(t, kube.Mutating("policies", onNothing(second))))
		inForce("mutatinghookconfiguration")
	}
}

// otherKeeper is a dispatcher that has to write the entries of a name and does not, until the function that it returns is called.
func otherKeeper(t *testing.T, name string) (yield func()) {
	t.Helper()
	leases, who, seconds, now := cluster.Client().CoordinationV1().Leases("kube-system"), "another", int32(3600), metav1.NewMicroTime(time.Now())
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "portcullis-entries-" + name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
	if _, err := leases.Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := leases.Delete(t.Context(), l.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// inBackground makes writes one after the other until the function that it returns is called, or the test ends. The mesh must refuse none.
func inBackground(t *testing.T, write func(context.Context) error) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := write(ctx); err != nil && ctx.Err() == nil && !apierrors.IsAlreadyExists(err) {
				t.Error(err)
				return
			}
		}
	})
	return func() { stop(); running.Wait() }
}
