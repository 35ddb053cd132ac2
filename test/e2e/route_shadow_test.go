package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// The hooks in shadow of a road, and a deciding hook of each kind.
const (
	strict, lenient  = "strict.example.com", "lenient.example.com"
	painter, labeler = "painter.example.com", "labeler.example.com"
)

// shadowRoad has a validating and a mutating hook in shadow, which would fail
// closed, and calls them by the entries that `cluster register` prints. One
// host serves the hooks that decide, another one the hooks that are given.
func shadowRoad(t *testing.T, inShadow ...hostsdk.Hook) *road {
	t.Helper()
	shadows := append(routes("judges", "shadow: true", strict), routes("labels", "shadow: true", painter)...)
	r := newRoadWith(t, mesh.Options{Documents: shadows, Args: []string{"--operator=operator"}},
		kube.Validating("judges", onPods(strict), onPods(lenient)), kube.Mutating("labels", onPods(painter), onPods(labeler)))
	r.host(t, hostsdk.Validate(lenient, allow), hostsdk.Mutate(labeler, setLabel("labeler")))
	if len(inShadow) > 0 {
		r.host(t, inShadow...)
	}
	r.register(t)
	return r
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
// Pod. The mesh counts the denials and changes that they would have made.
func TestHooksInShadowDecideNothing(t *testing.T) {
	r := shadowRoad(t,
		hostsdk.Validate(strict, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Deny("not in this cluster"), nil
		}),
		hostsdk.Mutate(painter, setLabel("painter")),
	)
	const pods = 3
	for i := range pods {
		if labels := r.createLabelled(t, fmt.Sprint("pod-", i)); len(labels) != 2 || labels["labeler"] != "yes" || labels["own"] != "kept" {
			t.Errorf("labels = %v, want those of the hook that decides", labels)
		}
	}
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="denied",type="validating"} %d`, strict, pods))
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="patched",type="admit"} %d`, painter, pods))
}

// shadowReport has some fields of a hook in `shadow report`.
type shadowReport struct {
	Name       string `json:"name"`
	Cluster    string `json:"cluster"`
	State      string `json:"state"`
	P99        string `json:"p99"`
	Calls      int    `json:"calls"`
	WouldDeny  int    `json:"wouldDeny"`
	WouldPatch int    `json:"wouldPatch"`
	Failed     int    `json:"failed"`
	Dropped    int    `json:"dropped"`
	Subjects   []struct {
		Namespace  string `json:"namespace"`
		User       string `json:"user"`
		WouldDeny  int    `json:"wouldDeny"`
		WouldPatch int    `json:"wouldPatch"`
	} `json:"subjects"`
	Cases []struct {
		Outcome   string `json:"outcome"`
		Namespace string `json:"namespace"`
		User      string `json:"user"`
		Message   string `json:"message"`
		Operation string `json:"operation"`
		Resource  string `json:"resource"`
		Name      string `json:"name"`
	} `json:"cases"`
}

// operate runs a command of an operator of the dispatcher.
func (r *road) operate(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return r.operateAs(t, "operator", args...)
}

// operateAs runs a command of an identity.
func (r *road) operateAs(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cert, key := r.Certify(t, name)
	out, err := exec.CommandContext(t.Context(), portcullis, append(args, "--server="+r.dispatcher.Hosts, "--ca="+r.AuthorityFile(), "--cert="+cert, "--key="+key)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return string(out), err
}

// TestAReportNamesWhatHooksInShadowWouldHaveDone has the API server send Pods
// of which one has a name that the API server completes.
func TestAReportNamesWhatHooksInShadowWouldHaveDone(t *testing.T) {
	citest.Gate(t, "covers hooks in shadow: a second")
	r := shadowRoad(t,
		hostsdk.Validate(strict, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Deny("not in this cluster"), nil
		}),
		hostsdk.Mutate(painter, setLabel("painter")),
	)
	r.createLabelled(t, "pod")
	generated := kube.Pod(r.namespace, "")
	generated.GenerateName, generated.Labels = "job-", map[string]string{"own": "kept"}
	if _, err := cluster.CreatePod(t.Context(), generated); err != nil {
		t.Fatal(err)
	}
	var denies, patches shadowReport
	eventually(t, "both hooks in shadow have answered twice", func() error {
		out, err := r.operate(t, "shadow", "report", "-o=json")
		if err != nil {
			return err
		}
		var report struct {
			Hooks []shadowReport `json:"hooks"`
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return err
		}
		for _, h := range report.Hooks {
			switch h.Name {
			case strict:
				denies = h
			case painter:
				patches = h
			}
		}
		if denies.Calls != 2 || patches.Calls != 2 {
			return fmt.Errorf("the report is %s", out)
		}
		return nil
	})
	if denies.WouldDeny != 2 || denies.Cluster != clusterName || denies.State != "shadow" || denies.P99 == "0s" {
		t.Errorf("the hook that denies: %+v", denies)
	}
	if patches.WouldPatch != 2 || len(patches.Cases) != 1 || patches.Cases[0].Outcome != "patched" {
		t.Errorf("the hook that patches: %+v", patches)
	}
	if len(denies.Subjects) != 1 || denies.Subjects[0].Namespace != r.namespace || denies.Subjects[0].User == "" || denies.Subjects[0].WouldDeny != 2 {
		t.Errorf("whose Pods it would have denied: %+v", denies.Subjects)
	}
	if c := denies.Cases; len(c) != 1 || c[0].Message != "not in this cluster" || c[0].Operation != "CREATE" || c[0].Resource != "pods" ||
		c[0].Name != "pod" && !strings.HasPrefix(c[0].Name, "job-") { // the calls are concurrent
		t.Errorf("the cases: %+v", c)
	}
	page, err := r.operate(t, "shadow", "report", "-o=markdown", "--hook="+strict)
	if err != nil || !strings.Contains(page, "| not in this cluster |") || strings.Contains(page, painter) {
		t.Errorf("a page to hand on: %v\n%s", err, page)
	}
	_, err = r.operateAs(t, "stranger", "shadow", "report")
	if err == nil || !strings.Contains(err.Error(), "stranger") {
		t.Errorf("an identity without a role: %v", err)
	}
}

// TestNoWriteWaitsForAHookInShadow has hooks in shadow hang until all writes
// are answered.
func TestNoWriteWaitsForAHookInShadow(t *testing.T) {
	citest.Gate(t, "covers hooks in shadow: a second")
	answered := make(chan struct{})
	hang := func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
		select {
		case <-answered:
			return hostsdk.Deny("too late"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r := shadowRoad(t, hostsdk.Validate(strict, hang), hostsdk.Mutate(painter, hang))
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
	citest.Gate(t, "covers hooks in shadow: a second")
	r := shadowRoad(t)
	eventually(t, "the dispatcher is ready", func() error { return r.dispatcher.Ready(t.Context()) })
	r.createLabelled(t, "pod")
	wantMetric(t, r.dispatcher, fmt.Sprintf(`portcullis_hook_shadow_total{name="%s",outcome="dropped",type="validating"} 1`, strict))
}
