package kube

import (
	"context"
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// establishTimeout bounds the wait for a new kind to be served.
const establishTimeout = 2 * time.Minute

// InstallDefinitions creates CustomResourceDefinitions and returns when the
// resources of all are served. They are deleted when the test ends.
func (c *Cluster) InstallDefinitions(t testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	client, err := clientset.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range crds {
		if _, err := definitions.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create the definition %s: %v", crd.Name, err)
		}
		t.Cleanup(func() {
			if err := definitions.Delete(context.WithoutCancel(t.Context()), crd.Name, metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete the definition %s: %v", crd.Name, err)
			}
		})
	}
	for _, crd := range crds {
		err = wait.PollUntilContextTimeout(t.Context(), effectInterval, establishTimeout, true, func(ctx context.Context) (bool, error) {
			return c.serves(ctx, crd), nil
		})
		if err != nil {
			t.Fatalf("wait for %s to be served: %v", crd.Name, err)
		}
	}
}

// serves reports whether each version of a kind is served.
func (c *Cluster) serves(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, version := range crd.Spec.Versions {
		path := fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, version.Name, crd.Spec.Names.Plural)
		// The API server asks clients to come back a second later while it begins to serve a kind.
		if err := c.client.RESTClient().Get().MaxRetries(0).AbsPath(path).Do(ctx).Error(); err != nil {
			return false
		}
	}
	return true
}

// Dynamic is a client of the all-powerful user for any kind.
func (c *Cluster) Dynamic(t testing.TB) *dynamic.DynamicClient {
	t.Helper()
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
