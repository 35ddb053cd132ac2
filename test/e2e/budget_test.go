package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// TestHooksThatHangAndFailOpenDoNotRefuseTogether has four hooks hang that may
// take ten seconds each, behind an entry that has six: kube-apiserver alone
// would refuse the request for want of time (docs/deviations.md, D2 and D9).
// The hook after them has its time, and the answer comes before the API server
// gives up.
func TestHooksThatHangAndFailOpenDoNotRefuseTogether(t *testing.T) {
	citest.Soak(t, "has 0.9 s between the answer and the time that the API server gives: 5 s")
	var hooks []kube.Hook
	for i := range 4 {
		h := onPods(fmt.Sprintf("hangs-%d.example.com", i))
		h.FailurePolicy, h.Timeout = admissionregistrationv1.Ignore, 10*time.Second
		hooks = append(hooks, h)
	}
	const last = "last.example.com"
	r := newRoad(t, kube.Mutating("hooks", append(hooks, onPods(last))...))
	served := []hostsdk.Hook{hostsdk.Mutate(last, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Patch([]byte(`[{"op":"add","path":"/metadata/labels","value":{"last":"yes"}}]`)), nil
	})}
	for _, hook := range hooks {
		served = append(served, hostsdk.Mutate(hook.Name, func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	}
	r.host(t, served...)
	entry := r.entry("mutate", []admissionregistrationv1.OperationType{admissionregistrationv1.Create})
	entry.Timeout = 6 * time.Second
	cluster.InstallMutating(t, kube.Mutating(r.name, entry))
	var heard warnings
	config := cluster.Config()
	config.WarningHandler = &heard
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	pod, err := client.CoreV1().Pods(r.namespace).Create(t.Context(), kube.Pod(r.namespace, "pod"), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}

	if pod.Labels["last"] != "yes" {
		t.Errorf("labels = %v, want that of the hook behind those that hang", pod.Labels)
	}
	for _, hook := range hooks {
		if all := heard.String(); !strings.Contains(all, hook.Name) {
			t.Errorf("warnings = %q, want one about %s", all, hook.Name)
		}
	}
}
