package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// failOpenLabel marks the namespaces whose objects the hooks of this test judge.
const failOpenLabel = "e2e.portcullis.dev/fail-open"

// failOpen is a cluster whose leases always fail open, and fail-closed hooks on leases and ConfigMaps.
type failOpen struct {
	*road
	namespace string
	client    *kubernetes.Clientset
	ear       ear
}

// TestALeaseThatAlwaysFailsOpenPassesWithoutAHostAndWithoutAMesh has fail-closed hooks on leases and ConfigMaps, in a cluster
// whose leases always fail open. Host and mesh die and come back.
func TestALeaseThatAlwaysFailsOpenPassesWithoutAHostAndWithoutAMesh(t *testing.T) {
	citest.Gate(t, "covers leases that fail open: 8 s")
	f := newFailOpen(t)
	eventually(t, "the entries and the configuration are in force", func() error {
		if err := createConfigMap(t.Context(), f.namespace); statusCode(err) != http.StatusInternalServerError {
			return notDeniedError{err}
		}
		return nil
	})

	f.wantUnjudged(t, "no host serves the hooks")
	f.wantLoud(t)
	t.Run("a host", f.wantDenials)
	eventually(t, "the host is dead", func() error {
		_, err := f.update(t)
		return err
	})
	f.wantUnjudged(t, "the host is dead")

	f.dispatcher.Stop(t)
	f.wantUnjudged(t, "no dispatcher lives")

	f.dispatcher.Start(t)
	t.Run("a host again", f.wantDenials)
}

func newFailOpen(t *testing.T) *failOpen {
	t.Helper()
	f := &failOpen{namespace: cluster.Namespace(t, map[string]string{failOpenLabel: "yes"})}
	hook := kube.Hook{
		Name: "frozen.example.com", Resources: []string{"configmaps"}, Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{failOpenLabel: "yes"}},
	}
	validating, mutating := kube.Validating("frozen", hook), kube.Mutating("frozen-too", hook)
	onLeases := validating.Webhooks[0].Rules[0]
	onLeases.APIGroups, onLeases.Resources = []string{"coordination.k8s.io"}, []string{"leases"}
	validating.Webhooks[0].Rules = append(validating.Webhooks[0].Rules, onLeases)
	mutating.Webhooks[0].Rules = append(mutating.Webhooks[0].Rules, onLeases)
	document := strings.TrimRight(clusterDocument(t), "\n") + "\n  bypass:\n    failOpen:\n" +
		"    - {apiGroups: [coordination.k8s.io], resources: [leases]}\n"
	config := cluster.Config()
	config.WarningHandler = &f.ear
	var err error
	if f.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kube.CloseIdleConnections(f.client) })
	if _, err := f.client.CoordinationV1().Leases(f.namespace).Create(t.Context(),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m := newMesh(t, mesh.Options{Documents: []string{document}, Args: []string{"--ready-timeout=1ns"}}, validating, mutating)
	f.road = newRoadOn(t, m, m.Serve(t))
	f.applyEntries(t)
	return f
}

// update renews the lease, and returns the warnings of the API server.
func (f *failOpen) update(t *testing.T) (warnings []string, err error) {
	t.Helper()
	leases, before := f.client.CoordinationV1().Leases(f.namespace), len(f.ear.heard())
	lease, err := leases.Get(t.Context(), "leader", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	lease.Spec.RenewTime = &now
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	return f.ear.heard()[before:], err
}

// wantUnjudged has a ConfigMap refused, and the lease renewed, while nobody judges them.
func (f *failOpen) wantUnjudged(t *testing.T, while string) {
	t.Helper()
	wantError(t, createConfigMap(t.Context(), f.namespace), http.StatusInternalServerError, "failed calling webhook")
	if _, err := f.update(t); err != nil {
		t.Errorf("the lease, while %s: %v", while, err)
	}
}

// wantLoud has the warnings and the audit annotations of a write that a living mesh lets pass.
func (f *failOpen) wantLoud(t *testing.T) {
	t.Helper()
	warnings, err := f.update(t)
	if err != nil || !slices.ContainsFunc(warnings, func(text string) bool {
		return strings.Contains(text, `hook "frozen.example.com" failed (unavailable) and was skipped`) && strings.Contains(text, "always fail open")
	}) {
		t.Errorf("error %v, warnings %q", err, warnings)
	}
	for _, stage := range []string{"validate", "mutate"} {
		eventually(t, "the audit log names the hook that was skipped", func() error {
			return auditHas(func(e *auditv1.Event) bool {
				if e.ObjectRef == nil || e.ObjectRef.Namespace != f.namespace || e.ObjectRef.Resource != "leases" {
					return false
				}
				for key, value := range e.Annotations {
					if strings.HasPrefix(key, "always-fail-open."+stage+"."+f.name+"/failed-open.") && strings.Contains(value, `"bypass":"fail-open"`) {
						return true
					}
				}
				return false
			})
		})
	}
	const counter = `portcullis_hook_fail_open_total{name="frozen.example.com",type="validating"}`
	if metrics, err := f.dispatcher.Metrics(t.Context()); err != nil || !strings.Contains(metrics, "\n"+counter+" ") {
		t.Errorf("no metric %s (%v)", counter, err)
	}
}

// wantDenials has a host whose denials hold, of the lease too.
func (f *failOpen) wantDenials(t *testing.T) {
	deny := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Deny("frozen"), nil }
	allow := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }
	f.host(t, hostsdk.Validate("frozen.example.com", deny), hostsdk.Mutate("frozen.example.com", allow))
	eventually(t, "the lease is denied", func() error {
		if _, err := f.update(t); statusCode(err) != http.StatusForbidden || !strings.Contains(err.Error(), "frozen") {
			return notDeniedError{fmt.Errorf("not denied: %w", err)}
		}
		return nil
	})
	wantError(t, createConfigMap(t.Context(), f.namespace), http.StatusForbidden, "frozen")
}

// TestTheGroupThatAClientAsksForDecidesWhetherItAlwaysFailsOpen has events, which API servers serve in two groups. The hook names one,
// and matches equivalents; the other one always fails open.
func TestTheGroupThatAClientAsksForDecidesWhetherItAlwaysFailsOpen(t *testing.T) {
	citest.Gate(t, "covers leases that fail open: a second")
	namespace := cluster.Namespace(t, map[string]string{failOpenLabel: "events"})
	const hook = "events.example.com"
	judged := kube.Hook{
		Name: hook, Resources: []string{"events"}, Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{failOpenLabel: "events"}},
	}
	document := strings.TrimRight(clusterDocument(t), "\n") + "\n  bypass:\n    failOpen:\n    - {apiGroups: [events.k8s.io], resources: [events]}\n"
	m := newMesh(t, mesh.Options{Documents: []string{document}, Args: []string{"--ready-timeout=1ns"}}, kube.Validating("events", judged), kube.Mutating("events-too", judged))
	r := newRoadOn(t, m, m.Serve(t))
	r.applyEntries(t)
	unjudged := func() {
		t.Helper()
		eventually(t, "an event of the core group is refused", func() error {
			if err := createEvent(t.Context(), namespace); statusCode(err) != http.StatusInternalServerError {
				return notDeniedError{err}
			}
			return nil
		})
		if err := createEventOfGroup(t.Context(), namespace); err != nil {
			t.Errorf("an event of events.k8s.io: %v", err)
		}
	}

	unjudged()
	t.Run("a host", func(t *testing.T) {
		deny := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Deny("no news"), nil
		}
		r.host(t, hostsdk.Validate(hook, deny), hostsdk.Mutate(hook, deny))
		for _, create := range []func(context.Context, string) error{createEvent, createEventOfGroup} {
			eventually(t, "an event is denied", func() error {
				if err := create(t.Context(), namespace); statusCode(err) != http.StatusForbidden || !strings.Contains(err.Error(), "no news") {
					return notDeniedError{fmt.Errorf("not denied: %w", err)}
				}
				return nil
			})
		}
	})
	r.dispatcher.Stop(t)
	unjudged()
}

// createEvent and createEventOfGroup store nothing.
func createEvent(ctx context.Context, namespace string) error {
	_, err := cluster.Client().CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "news-"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func createEventOfGroup(ctx context.Context, namespace string) error {
	_, err := cluster.Client().EventsV1().Events(namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "news-"}, EventTime: metav1.MicroTime{Time: time.Now()}, ReportingController: "example.com/e2e",
		ReportingInstance: "e2e", Action: "Test", Reason: "Test", Type: corev1.EventTypeNormal, Regarding: corev1.ObjectReference{Namespace: namespace},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
