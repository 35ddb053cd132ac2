package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// bypassLabel marks the namespaces whose Pods the hook of these tests denies.
const bypassLabel = "e2e.portcullis.dev/bypass"

// TestABypassHoldsWhileTheMeshIsDeadAndOneLineOpensTheRest has a hook that denies each Pod, and a
// Cluster that exempts a namespace, a user and a group.
func TestABypassHoldsWhileTheMeshIsDeadAndOneLineOpensTheRest(t *testing.T) {
	citest.Gate(t, "runs kubectl: 2 s")
	judged, exempt := cluster.Namespace(t, map[string]string{bypassLabel: "yes"}), cluster.Namespace(t, map[string]string{bypassLabel: "yes"})
	const denier = "denier.example.com"
	hook := onPods(denier)
	hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{bypassLabel: "yes"}}
	document := strings.TrimRight(clusterDocument(t), "\n") + "\n  bypass:\n    namespaces: [" + exempt + "]\n" +
		"    users: [e2e-exempt-user]\n    groups: [e2e-exempt-group]\n"
	m := newMesh(t, mesh.Options{Documents: []string{document}}, kube.Validating("denier", hook), kube.Mutating("denier-too", hook))
	r := newRoadOn(t, m, m.Serve(t))
	deny := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("not today"), nil
	}
	r.host(t, hostsdk.Validate(denier, deny), hostsdk.Mutate(denier, deny))
	r.applyEntries(t)

	create := func(namespace, user string, groups ...string) error {
		t.Helper()
		config, err := cluster.ConfigFor(user, append(groups, "system:masters")...)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		defer kube.CloseIdleConnections(client)
		_, err = client.CoreV1().Pods(namespace).Create(t.Context(), kube.Pod(namespace, "pod"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	passes := func() {
		t.Helper()
		for _, err := range []error{
			create(exempt, "somebody"), create(judged, "e2e-exempt-user"), create(judged, "somebody", "a", "e2e-exempt-group"),
		} {
			if err != nil {
				t.Errorf("an exempt write: %v", err)
			}
		}
	}

	eventually(t, "the hook denies", func() error {
		if err := create(judged, "somebody"); statusCode(err) != http.StatusForbidden {
			return notDeniedError{err}
		}
		return nil
	})
	passes()

	r.dispatcher.Stop(t)
	wantError(t, create(judged, "somebody", "a"), http.StatusInternalServerError, "failed calling webhook")
	passes()

	on, _ := breakGlassLines(t)
	kubectl(t, strings.ReplaceAll(on, " "+registration.DefaultName+" ", " "+r.name+" "))
	eventually(t, "every write passes", func() error { return create(judged, "somebody") })
}

type notDeniedError struct{ error }

// deleteEntries deletes both configurations, if they are there.
func (r *road) deleteEntries(t *testing.T) {
	t.Helper()
	r.deleteEntriesOf(t, r.name)
}

// deleteEntriesOf deletes the entries of a name, if they are there.
func (*road) deleteEntriesOf(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	admission := cluster.Client().AdmissionregistrationV1()
	for _, err := range []error{
		admission.ValidatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{}),
		admission.MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}
