package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	hostkube "github.com/portcullis-mesh/portcullis/hostsdk/kube"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// getPod is a Pod as it is stored.
func (r *road) getPod(t *testing.T, name string) (*corev1.Pod, error) {
	t.Helper()
	return cluster.Client().CoreV1().Pods(r.namespace).Get(t.Context(), name, metav1.GetOptions{})
}

func TestPodsAreAllowedAndDeniedByAHost(t *testing.T) {
	const hook = "names.example.com"
	r := newRoad(t, kube.Validating("names", onPods(hook)))
	r.host(t, hostsdk.Validate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if !strings.HasPrefix(q.Name(), "bad") {
			return hostsdk.Allow(), nil
		}
		return hostsdk.Deny("bad names are not taken").WithCode(http.StatusUnprocessableEntity).
			WithReason("Invalid").WithCause("metadata.name", "is bad"), nil
	}))
	r.validate(t)

	if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "good")); err != nil {
		t.Errorf("create a good pod: %v", err)
	}
	if _, err := r.getPod(t, "good"); err != nil {
		t.Errorf("get the good pod: %v", err)
	}

	_, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "bad"))

	wantError(t, err, http.StatusUnprocessableEntity,
		`admission webhook "`+entryName+`" denied the request: hook "`+hook+`" denied the request: bad names are not taken`)
	if !apierrors.IsInvalid(err) {
		t.Errorf("reason = %s, want Invalid", apierrors.ReasonForError(err))
	}
	if cause, ok := apierrors.StatusCause(err, ""); !ok || cause.Field != "metadata.name" {
		t.Errorf("cause = %+v, want the field at fault", cause)
	}
	if _, err := r.getPod(t, "bad"); !apierrors.IsNotFound(err) {
		t.Errorf("get the denied pod: %v, want it not found", err)
	}
}

// labelled is all that the hooks below know of a Pod.
type labelled struct {
	Metadata struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
}

func (l *labelled) set(key, value string) {
	if l.Metadata.Labels == nil {
		l.Metadata.Labels = map[string]string{}
	}
	l.Metadata.Labels[key] = value
}

func TestPodsAreMutatedByTwoHooksInOrder(t *testing.T) {
	const first, second = "first.example.com", "second.example.com"
	r := newRoad(t, kube.Mutating("labels", onPods(first), onPods(second)))
	r.host(t,
		hostsdk.Mutate(first, hostkube.Mutate(func(_ context.Context, pod *labelled, _ *hostsdk.Request) (*hostsdk.Response, error) {
			pod.set("first", "yes")
			return hostsdk.Allow(), nil
		})),
		hostsdk.Mutate(second, hostkube.Mutate(func(_ context.Context, pod *labelled, _ *hostsdk.Request) (*hostsdk.Response, error) {
			pod.set("second", "after-"+pod.Metadata.Labels["first"])
			return hostsdk.Allow(), nil
		})),
	)
	r.mutate(t)
	pod := kube.Pod(r.namespace, "mutated")
	pod.Labels = map[string]string{"own": "kept"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "UNKNOWN_TO_HOOKS", Value: "kept"}}

	if _, err := cluster.CreatePod(t.Context(), pod); err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	stored, err := r.getPod(t, "mutated")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"own": "kept", "first": "yes", "second": "after-yes"}
	if diff := cmp.Diff(want, stored.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(pod.Spec.Containers[0].Env, stored.Spec.Containers[0].Env); diff != "" {
		t.Errorf("fields that the hooks do not know (-want +got):\n%s", diff)
	}
}

func TestPodsAreDeletedWithTheirLastStateReviewed(t *testing.T) {
	const hook = "protection.example.com"
	r := newRoad(t, kube.Validating("protection", onPods(hook, admissionregistrationv1.Delete)))
	r.host(t, hostsdk.Validate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		old, err := hostkube.OldObject[corev1.Pod](q)
		if err != nil {
			return nil, err
		}
		if q.Operation() != "DELETE" || q.RawObject() != nil || old == nil {
			return hostsdk.Deny("no deletion with the old object"), nil
		}
		if old.Labels["protected"] == "yes" {
			return hostsdk.Deny(old.Name + " is protected"), nil
		}
		return hostsdk.Allow(), nil
	}))
	r.validate(t, admissionregistrationv1.Delete)
	protected := kube.Pod(r.namespace, "protected")
	protected.Labels = map[string]string{"protected": "yes"}
	for _, pod := range []*corev1.Pod{protected, kube.Pod(r.namespace, "free")} {
		if _, err := cluster.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	pods := cluster.Client().CoreV1().Pods(r.namespace)

	if err := pods.Delete(t.Context(), "free", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete a free pod: %v", err)
	}
	wantError(t, pods.Delete(t.Context(), "protected", metav1.DeleteOptions{}), http.StatusForbidden, "protected is protected")

	if _, err := r.getPod(t, "free"); !apierrors.IsNotFound(err) {
		t.Errorf("get the deleted pod: %v, want it not found", err)
	}
	if _, err := r.getPod(t, "protected"); err != nil {
		t.Errorf("get the protected pod: %v", err)
	}
}

func TestADryRunReachesTheHostAndStoresNothing(t *testing.T) {
	const hook = "dry.example.com"
	r := newRoad(t, kube.Validating("dry", onPods(hook)))
	var dry, wet atomic.Int32
	r.host(t, hostsdk.Validate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.DryRun() {
			dry.Add(1)
		} else {
			wet.Add(1)
		}
		return hostsdk.Allow(), nil
	}))
	r.validate(t)

	if err := r.createDry(t.Context()); err != nil {
		t.Fatalf("create a pod, dry: %v", err)
	}

	if dry.Load() != 1 || wet.Load() != 0 {
		t.Errorf("the host saw %d dry runs and %d others, want one dry run", dry.Load(), wet.Load())
	}
	if _, err := r.getPod(t, dryPod); !apierrors.IsNotFound(err) {
		t.Errorf("get the pod of the dry run: %v, want it not found", err)
	}
}

// dryPod is the name of the Pods that createDry does not create.
const dryPod = "dry"

// createDry creates a Pod, dry: its reviews are as real as any, and nothing
// is stored.
func (r *road) createDry(ctx context.Context) error {
	_, err := cluster.Client().CoreV1().Pods(r.namespace).
		Create(ctx, kube.Pod(r.namespace, dryPod), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
