package e2e

import (
	"context"
	"os/exec"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// TestTheEntriesThatRegisterPrintsCallEachHookOnce applies the output of
// `portcullis cluster register` to the cluster, unchanged. Hooks that fail open
// and hooks that fail closed stand behind entries of their own there.
func TestTheEntriesThatRegisterPrintsCallEachHookOnce(t *testing.T) {
	const closed, open, label = "closed.example.com", "open.example.com", "label.example.com"
	failsOpen := onPods(open)
	failsOpen.FailurePolicy = admissionregistrationv1.Ignore
	r := newRoad(t, kube.Validating("judges", onPods(closed), failsOpen), kube.Mutating("labels", onPods(label)))
	var mu sync.Mutex
	calls := map[string]int{}
	count := func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if q.Namespace() == r.namespace { // entries serve the whole cluster
			calls[q.Hook]++
		}
		return hostsdk.Allow(), nil
	}
	r.host(t,
		hostsdk.Validate(closed, count),
		hostsdk.Validate(open, count),
		hostsdk.Mutate(label, count),
	)
	r.register(t)

	if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod")); err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]int{closed: 1, open: 1, label: 1}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestARequestComesToOneMutatingEntryInWhateverVersion has a fail-closed hook
// on one version of a resource, and a fail-open hook on another, each with
// matchPolicy Equivalent: an API server that had an entry for each would have
// the whole chain run twice.
func TestARequestComesToOneMutatingEntryInWhateverVersion(t *testing.T) {
	const closed, open = "scaler.closed.example.com", "scaler.open.example.com"
	onScalers := func(name string) kube.Hook {
		return kube.Hook{
			Name: name, Group: "autoscaling", Resources: []string{"horizontalpodautoscalers"},
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		}
	}
	failsOpen := onScalers(open)
	failsOpen.FailurePolicy = admissionregistrationv1.Ignore
	r := newRoad(t, inVersion(kube.Mutating("closed", onScalers(closed)), "v1"), inVersion(kube.Mutating("open", failsOpen), "v2"))
	var calls asked
	records := func(hook string) hostsdk.Hook {
		return hostsdk.Mutate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
			if q.Namespace() == r.namespace {
				calls.add(hook+": "+seen(q), q)
			}
			return hostsdk.Allow(), nil
		})
	}
	r.host(t, records(closed), records(open))
	r.register(t)

	meta := metav1.ObjectMeta{Name: "first"}
	scalers := cluster.Client()
	if _, err := scalers.AutoscalingV1().HorizontalPodAutoscalers(r.namespace).Create(t.Context(), &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: meta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "web", APIVersion: "apps/v1"}, MaxReplicas: 7,
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a scaler in v1: %v", err)
	}
	meta.Name = "second"
	if _, err := scalers.AutoscalingV2().HorizontalPodAutoscalers(r.namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web", APIVersion: "apps/v1"}, MaxReplicas: 7,
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create a scaler in v2: %v", err)
	}

	var want []string
	for _, client := range []string{"v1", "v2"} {
		want = append(want,
			closed+": autoscaling/v1 HorizontalPodAutoscaler for autoscaling/"+client,
			open+": autoscaling/v2 HorizontalPodAutoscaler for autoscaling/"+client)
	}
	if diff := cmp.Diff(want, calls.what); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// register installs the entries that the command prints.
func (r *road) register(t *testing.T) {
	t.Helper()
	r.registerBy(t, portcullis)
}

// registerBy installs the entries that the command of a program prints.
func (r *road) registerBy(t *testing.T, program string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "cluster", "register", clusterName, "--print", "--name="+r.name,
		"--config="+r.ConfigDir(), "--url="+r.bridge, "--ca="+r.AuthorityFile()).Output()
	if err != nil {
		t.Fatalf("portcullis cluster register: %v", err)
	}
	objects, problems := config.NewDecoder(apiserver.Validator{}).Decode("register", out)
	if err := problems.Err(); err != nil || len(objects) != 2 {
		t.Fatalf("%d configurations were printed: %v\n%s", len(objects), err, out)
	}
	for _, o := range objects {
		if o.Validating != nil {
			cluster.InstallValidating(t, o.Validating)
		} else {
			cluster.InstallMutating(t, o.Mutating)
		}
	}
}
