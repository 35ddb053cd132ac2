package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// effectTimeout bounds the wait for kube-apiserver to obey a webhook
	// configuration that it has stored; milliseconds are usual.
	effectTimeout = 2 * time.Minute
	// effectInterval is the pause between two questions.
	effectInterval = 20 * time.Millisecond
)

// configurations has the methods that tests need from the client of either kind
// of webhook configuration.
type configurations[T metav1.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// InstallValidating creates the configuration and returns when kube-apiserver
// obeys it. It is deleted, and without effect again, when the test ends.
func (c *Cluster) InstallValidating(t testing.TB, configuration *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	install(t, c, c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), configuration, validatingMarker)
}

// InstallMutating is [Cluster.InstallValidating] for mutating configurations.
func (c *Cluster) InstallMutating(t testing.TB, configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
	t.Helper()
	install(t, c, c.client.AdmissionregistrationV1().MutatingWebhookConfigurations(), configuration, mutatingMarker)
}

func install[T metav1.Object](t testing.TB, c *Cluster, client configurations[T], configuration T, marker func() T) {
	t.Helper()
	name := configuration.GetName()
	if _, err := client.Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the webhook configuration %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // a test's context ends before its cleanups run
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete the webhook configuration %s: %v", name, err)
		}
		if err := settle(ctx, c, client, marker()); err != nil {
			t.Error(err)
		}
	})
	if err := settle(t.Context(), c, client, marker()); err != nil {
		t.Fatal(err)
	}
}

// settle returns when kube-apiserver obeys every change of this kind of
// configuration that was made before the call. Changes of one kind reach its
// admission plugin through one watch, in order; so settle makes one more, the
// marker, and waits until that one shows.
func settle[T metav1.Object](ctx context.Context, c *Cluster, client configurations[T], marker T) error {
	if _, err := client.Create(ctx, marker, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a marker: %w", err)
	}
	err := c.awaitMarker(ctx, marker.GetName())
	return errors.Join(err, client.Delete(ctx, marker.GetName(), metav1.DeleteOptions{}))
}

// markerLabel holds, on the only ConfigMap that a marker applies to, the
// marker's name.
const markerLabel = "marker.e2e.portcullis.dev"

// SettleValidating returns when kube-apiserver obeys every change of validating
// configurations that was made before the call.
func (c *Cluster) SettleValidating(t testing.TB) {
	t.Helper()
	if err := settle(t.Context(), c, c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), validatingMarker()); err != nil {
		t.Fatal(err)
	}
}

// newMarker is a webhook that cannot be reached, and the selector of the one
// ConfigMap, never stored, that would be sent to it.
func newMarker() (Hook, *metav1.LabelSelector) {
	name := fmt.Sprintf("marker-%s.e2e.portcullis.dev", uuid.NewUUID())
	hook := Hook{
		Name:       name,
		URL:        "https://127.0.0.1:1/", // nobody listens on port 1: refused at once
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Resources:  []string{"configmaps"},
	}
	return hook, &metav1.LabelSelector{MatchLabels: map[string]string{markerLabel: name}}
}

func validatingMarker() *admissionregistrationv1.ValidatingWebhookConfiguration {
	hook, selector := newMarker()
	marker := Validating(hook.Name, hook)
	marker.Webhooks[0].ObjectSelector = selector
	return marker
}

func mutatingMarker() *admissionregistrationv1.MutatingWebhookConfiguration {
	hook, selector := newMarker()
	marker := Mutating(hook.Name, hook)
	marker.Webhooks[0].ObjectSelector = selector
	return marker
}

// awaitMarker asks, dry, until a ConfigMap fails because of the marker.
func (c *Cluster) awaitMarker(ctx context.Context, name string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "marker-",
		Labels:       map[string]string{markerLabel: name},
	}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, effectInterval, effectTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = c.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).
			Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInternalError(last) && strings.Contains(last.Error(), name), nil
	})
	if err != nil {
		return fmt.Errorf("webhook configurations take no effect: %w", errors.Join(err, last))
	}
	return nil
}
