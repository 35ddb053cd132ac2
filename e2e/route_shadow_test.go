package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/e2e/kube"
	"github.com/portcullis-mesh/portcullis/e2e/mesh"
)

// The hooks in shadow of a road, and one of each kind that decides.
const (
	strict, lenient  = "strict.example.com", "lenient.example.com"
	painter, labeler = "painter.example.com", "labeler.example.com"
)

// shadowRoad has a validating and a mutating hook in shadow, which would fail
// closed, and calls them by the entries that `cluster register` prints.
func shadowRoad(t *testing.T, hosts ...func(*hostsdk.Host)) *road {
	t.Helper()
	shadows := append(routes("judges", "shadow: true", strict), routes("labels", "shadow: true", painter)...)
	r := newRoadWith(t, mesh.Options{Documents: shadows},
		kube.Validating("judges", onPods(strict), onPods(lenient)), kube.Mutating("labels", onPods(painter), onPods(labeler)))
	for _, register := range hosts {
		r.host(t, register)
	}
	r.register(t)
	return r
}

// deciding serves the hooks that are not in shadow.
func deciding(h *hostsdk.Host) {
	h.Validate(lenient, allow)
	h.Mutate(labeler, setLabel("labeler"))
}

// setLabel is a hook that sets a label.
func setLabel(name string) hostsdk.Handler {
	return func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Patch(fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/%s","value":"yes"}]`, name)), nil
	}
}

// createLabelled creates a Pod that has labels, and returns those that are
// stored.
func (r *road) createLabelled(t *testing.T, name string) map[string]string {
	t.Helper()
	pod := kube.Pod(r.namespace, name)
	pod.Labels = map[string]string{"own": "kept"}
	stored, err := cluster.CreatePod(t.Context(), pod)
	if err != nil {
		t.Fatalf("create a pod: %v", err)
	}
	return stored.Labels
}

// TestHooksInShadowDecideNothing has hooks that would deny and change every
// Pod: what they would have done is counted.
func TestHooksInShadowDecideNothing(t *testing.T) {
	r := shadowRoad(t, deciding, func(h *hostsdk.Host) {
		h.Validate(strict, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Deny("not in this cluster"), nil
		})
		h.Mutate(painter, setLabel("painter"))
	})
	const pods = 3
	for i := range pods {
		if labels := r.createLabelled(t, fmt.Sprint("pod-", i)); len(labels) != 2 || labels["labeler"] != "yes" || labels["own"] != "kept" {
			t.Errorf("labels = %v, want those of the hook that decides", labels)
		}
	}
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="denied",type="validating"} %d`, strict, pods))
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="patched",type="admit"} %d`, painter, pods))
}

// TestNoWriteWaitsForAHookInShadow has hooks in shadow hang until all writes
// are answered.
func TestNoWriteWaitsForAHookInShadow(t *testing.T) {
	answered := make(chan struct{})
	hang := func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
		select {
		case <-answered:
			return hostsdk.Deny("too late"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r := shadowRoad(t, deciding, func(h *hostsdk.Host) {
		h.Validate(strict, hang)
		h.Mutate(painter, hang)
	})
	const pods = 3
	for i := range pods {
		r.createLabelled(t, fmt.Sprint("pod-", i))
	}
	close(answered)
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="denied",type="validating"} %d`, strict, pods))
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="denied",type="admit"} %d`, painter, pods))
}

// TestNobodyNeedsTheHostsOfAHookInShadow has none.
func TestNobodyNeedsTheHostsOfAHookInShadow(t *testing.T) {
	r := shadowRoad(t, deciding)
	eventually(t, "the dispatcher is ready", func() error { return r.dispatcher.Ready(t.Context()) })
	r.createLabelled(t, "pod")
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="dropped",type="validating"} 1`, strict))
}
