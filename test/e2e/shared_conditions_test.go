package e2e

import (
	"context"
	"net/http"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// TestADeadMeshLeavesKubeSystemAndLeasesAlone has fail-closed hooks on everything else, which leave
// kube-system out by a matchCondition, and by a namespaceSelector. No dispatcher runs.
func TestADeadMeshLeavesKubeSystemAndLeasesAlone(t *testing.T) {
	citest.Gate(t, "covers the conditions of entries: 2 s")
	for name, except := range map[string]func(validating *admissionregistrationv1.ValidatingWebhook, mutating *admissionregistrationv1.MutatingWebhook){
		"matchConditions": func(v *admissionregistrationv1.ValidatingWebhook, m *admissionregistrationv1.MutatingWebhook) {
			v.MatchConditions = []admissionregistrationv1.MatchCondition{
				{Name: "namespace", Expression: `request.namespace != "kube-system" && !(has(object.metadata) && object.metadata.name == "none")`},
			}
			m.MatchConditions = []admissionregistrationv1.MatchCondition{
				{Name: "other", Expression: `request.userInfo.username != "nobody"`},
				{Name: "namespace", Expression: `request.namespace != 'kube-system'`},
			}
		},
		"namespaceSelector": func(v *admissionregistrationv1.ValidatingWebhook, m *admissionregistrationv1.MutatingWebhook) {
			v.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{metav1.NamespaceSystem}},
			}}
			m.NamespaceSelector = v.NamespaceSelector.DeepCopy()
		},
	} {
		t.Run(name, func(t *testing.T) {
			const all = "all.example.com"
			hook := kube.Hook{
				Name: all, Group: "*", Resources: []string{"*/*"}, Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			}
			validating, mutating := kube.Validating("all", hook), kube.Mutating("all-too", hook)
			except(&validating.Webhooks[0], &mutating.Webhooks[0])
			r := newRoad(t, validating, mutating)
			allow := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }
			r.host(t, hostsdk.Validate(all, allow), hostsdk.Mutate(all, allow))
			r.applyEntries(t)
			eventually(t, "Pods are admitted", func() error { return r.createDry(t.Context()) })

			r.dispatcher.Stop(t)
			eventually(t, "writes that the hooks judge are refused", func() error {
				if err := r.createDry(t.Context()); statusCode(err) != http.StatusInternalServerError {
					return notDeniedError{err}
				}
				return nil
			})
			for _, err := range []error{
				createConfigMap(t.Context(), metav1.NamespaceSystem), createLease(t.Context(), metav1.NamespaceSystem), createLease(t.Context(), r.namespace),
			} {
				if err != nil {
					t.Errorf("a write that the cluster needs: %v", err)
				}
			}
			wantError(t, createConfigMap(t.Context(), r.namespace), http.StatusInternalServerError, "failed calling webhook")
		})
	}
}

// createConfigMap and createLease store nothing.
func createConfigMap(ctx context.Context, namespace string) error {
	_, err := cluster.Client().CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "needed-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func createLease(ctx context.Context, namespace string) error {
	_, err := cluster.Client().CoordinationV1().Leases(namespace).Create(ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "needed-"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
