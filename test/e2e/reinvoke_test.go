package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// asked are the calls that a hook got, in the words of a test.
type asked struct {
	mu   sync.Mutex
	what []string
	uids []string
}

func (a *asked) add(what string, q *hostsdk.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.what, a.uids = append(a.what, what), append(a.uids, q.Admission().GetUid())
}

// ifNeeded asks for the reinvocation of all hooks of a configuration.
func ifNeeded(c *admissionregistrationv1.MutatingWebhookConfiguration) *admissionregistrationv1.MutatingWebhookConfiguration {
	for i := range c.Webhooks {
		c.Webhooks[i].ReinvocationPolicy = ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
	}
	return c
}

// limits are the containers of a Pod, each with its limit of CPU.
func limits(raw []byte) (string, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return "", err
	}
	text := ""
	for _, c := range pod.Spec.Containers {
		text += fmt.Sprintf("%s=%s ", c.Name, c.Resources.Limits.Cpu())
	}
	return text, nil
}

// TestChangesByInTreePluginsReinvokeTheHooksThatAskForIt has a plugin of the
// API server, LimitRanger, change the object after a hook did: through the
// entries that `portcullis cluster register` prints.
func TestChangesByInTreePluginsReinvokeTheHooksThatAskForIt(t *testing.T) {
	const watch, sidecar, never = "watch.example.com", "sidecar.example.com", "never.example.com"
	r := newRoad(t, ifNeeded(kube.Mutating("a-watch", onPods(watch))), kube.Mutating("b-sidecar", onPods(sidecar), onPods(never)))
	var watched, rest asked
	r.host(t,
		hostsdk.Mutate(watch, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
			if q.Namespace() != r.namespace { // entries serve the whole cluster
				return hostsdk.Allow(), nil
			}
			text, err := limits(q.RawObject())
			watched.add(text, q)
			return hostsdk.Allow(), err
		}),
		hostsdk.Mutate(sidecar, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
			rest.add(q.Hook, q)
			return hostsdk.Patch([]byte(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"sidecar:1"}}]`)), nil
		}),
		hostsdk.Mutate(never, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
			rest.add(q.Hook, q)
			return hostsdk.Allow(), nil
		}),
	)
	r.limitCPU(t, "250m")
	r.register(t)

	pod, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod"))
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	stored, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := limits(stored); err != nil || text != "main=250m sidecar=250m " {
		t.Errorf("containers = %q, %v: want a sidecar with the limit that the plugin sets", text, err)
	}
	want := []string{
		"main=250m ",              // in its turn
		"main=250m sidecar=0 ",    // after the sidecar, inside the mesh
		"main=250m sidecar=250m ", // after the plugin, by the API server
	}
	if diff := cmp.Diff(want, watched.what); diff != "" {
		t.Errorf("what the hook saw that asks for reinvocation (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{sidecar, never}, rest.what); diff != "" {
		t.Errorf("calls of the hooks that do not (-want +got):\n%s", diff)
	}
	if len(watched.uids) == 3 && watched.uids[1] == watched.uids[2] {
		t.Errorf("the reinvocation has uid %s again, want one of its own", watched.uids[2])
	}
}

// TestAnUnchangedObjectReinvokesNobody has no plugin change anything after the
// hooks: /reinvoke is asked all the same, since nobody told the API server.
func TestAnUnchangedObjectReinvokesNobody(t *testing.T) {
	citest.Gate(t, "covers reinvocation: a second")
	const hook = "label.example.com"
	r := newRoad(t, ifNeeded(kube.Mutating("labels", onPods(hook))))
	var calls asked
	r.host(t, hostsdk.Mutate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.Namespace() != r.namespace {
			return hostsdk.Allow(), nil
		}
		calls.add(q.Operation(), q)
		return hostsdk.Patch([]byte(`[{"op":"add","path":"/metadata/labels","value":{"label":"yes"}}]`)), nil
	}))
	r.register(t)

	if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod")); err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	if diff := cmp.Diff([]string{"CREATE"}, calls.what); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// limitCPU gives every container without a limit of CPU that one. No Pod was
// there before, so that the plugin looks the limit up when the first comes.
func (r *road) limitCPU(t *testing.T, cpu string) {
	t.Helper()
	_, err := cluster.Client().CoreV1().LimitRanges(r.namespace).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "cpu"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a limit range: %v", err)
	}
}

// TestAWriteIsReviewedAgainOnAConflict has somebody else write between the
// reviews of a patch and its storage: the API server applies the patch anew,
// and reviews it anew.
func TestAWriteIsReviewedAgainOnAConflict(t *testing.T) {
	citest.Gate(t, "covers reinvocation: a second")
	const hook, meddled = "meddle.example.com", "meddled"
	r := newRoad(t, kube.Validating("meddle", onPods(hook, admissionregistrationv1.Update, admissionregistrationv1.Create)))
	var calls asked
	r.host(t, hostsdk.Validate(hook, func(ctx context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.Operation() != "UPDATE" {
			return hostsdk.Allow(), nil
		}
		var before, after metav1.PartialObjectMetadata
		if err := errors.Join(json.Unmarshal(q.RawOldObject(), &before), json.Unmarshal(q.RawObject(), &after)); err != nil {
			return nil, err
		}
		if after.Labels["patched"] == "" { // the hook's own label
			return hostsdk.Allow(), nil
		}
		calls.add(fmt.Sprintf("old=%q new=%q", before.Annotations[meddled], after.Annotations[meddled]), q)
		if before.Annotations[meddled] == "" {
			_, err := cluster.Client().CoreV1().Pods(q.Namespace()).Patch(ctx, q.Name(), types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"meddled":"yes"}}}`), metav1.PatchOptions{})
			return hostsdk.Allow(), err
		}
		return hostsdk.Allow(), nil
	}))
	r.validate(t, admissionregistrationv1.Create, admissionregistrationv1.Update)
	if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod")); err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	pod, err := cluster.Client().CoreV1().Pods(r.namespace).Patch(t.Context(), "pod", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"patched":"yes"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patch the pod: %v", err)
	}

	if pod.Annotations[meddled] != "yes" || pod.Labels["patched"] != "yes" {
		t.Errorf("annotations %v, labels %v: want both changes", pod.Annotations, pod.Labels)
	}
	if diff := cmp.Diff([]string{`old="" new=""`, `old="yes" new="yes"`}, calls.what); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
	if slices.Sort(calls.uids); len(slices.Compact(calls.uids)) != len(calls.what) {
		t.Errorf("uids = %v, want one for each review", calls.uids)
	}
}

// TestAnApplyOfWhatIsNotThereIsACreation holds the operation that hooks see.
func TestAnApplyOfWhatIsNotThereIsACreation(t *testing.T) {
	citest.Gate(t, "covers reinvocation: a second")
	const hook = "operations.example.com"
	r := newRoad(t, kube.Validating("operations", onPods(hook, admissionregistrationv1.Update, admissionregistrationv1.Create)))
	var calls asked
	r.host(t, hostsdk.Validate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		calls.add(q.Operation()+" "+q.Name(), q)
		return hostsdk.Allow(), nil
	}))
	r.validate(t, admissionregistrationv1.Create, admissionregistrationv1.Update)
	pod := kube.Pod(r.namespace, "pod")
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}

	for _, label := range []string{"one", "two"} {
		pod.Labels = map[string]string{"label": label}
		body, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		_, err = cluster.Client().CoreV1().Pods(r.namespace).Patch(t.Context(), "pod", types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "e2e"})
		if err != nil {
			t.Fatalf("apply the pod: %v", err)
		}
	}

	if diff := cmp.Diff([]string{"CREATE pod", "UPDATE pod"}, calls.what); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
}
