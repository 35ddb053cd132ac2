// Package clientgo_test tests hosts beside client-go. It is apart from package kube: `go mod tidy` looks for the imports of the tests of each
// package that an author imports, and an author without client-go may have a k8s.io/api that does not fit to ours.
package clientgo_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube"
)

// TestAHostBesideInformers is a host as authors write them: a handler that looks things up in a cache of client-go. This module
// requires an old client-go on purpose, and is tested with that: an author's version is not raised.
func TestAHostBesideInformers(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "checkout"}}},
	), 0)
	namespaces := factory.Core().V1().Namespaces()
	lister, synced := namespaces.Lister(), namespaces.Informer().HasSynced
	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(stop)
	factory.WaitForCacheSync(ctx.Done())

	teamLabel := func(_ context.Context, pod *corev1.Pod, r *hostsdk.Request) (*hostsdk.Response, error) {
		namespace, err := lister.Get(r.Namespace())
		if err != nil {
			return nil, hostsdk.NewError("the namespace is not in the cache", err)
		}
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", namespace.Labels["team"])
		return hostsdk.Allow(), nil
	}
	filled := func(context.Context) error {
		if !synced() {
			return hostsdk.NewError("the cache of namespaces is not filled", nil)
		}
		return nil
	}
	const hook = "team-label.example.com"
	host, err := hostsdk.New(hostsdk.Options{Name: "labels"}, hostsdk.Mutate(hook, kube.Mutate(teamLabel), hostsdk.ReadyWhen(filled)))
	if err != nil {
		t.Fatal(err)
	}
	d := hosttest.Start(t, host)
	if result, err := d.Probe(ctx, hook); err != nil || !result.GetReady() {
		t.Errorf("a filled cache: %v, %v", result, err)
	}
	verdict := d.Review(ctx, hook, hosttest.Create(`{"kind": "Pod", "metadata": {"namespace": "shop"}}`))
	if got, want := string(verdict.Patch), `[{"op":"add","path":"/metadata/labels","value":{"team":"checkout"}}]`; got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
}
