package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	hostkube "github.com/portcullis-mesh/portcullis/hostsdk/kube"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	markHook  = "mark.example.com"
	judgeHook = "judge.example.com"
)

// newEdgesRoad has a mutating hook that marks Pods, and a validating hook. That
// denies Pods with the image "bad" and warns of Pods without the mark.
func newEdgesRoad(t *testing.T) (*road, *mesh.Caller) {
	t.Helper()
	r := newRoad(t, kube.Mutating("mark", onPods(markHook)), kube.Validating("judge", onPods(judgeHook)))
	r.host(t,
		hostsdk.Mutate(markHook, hostkube.Mutate(func(_ context.Context, pod *labelled, _ *hostsdk.Request) (*hostsdk.Response, error) {
			pod.set("marked", "yes")
			return hostsdk.Allow().WithWarnings("it is marked"), nil
		})),
		hostsdk.Validate(judgeHook, hostkube.Validate(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
			switch {
			case pod.Spec.Containers[0].Image == "bad":
				return hostsdk.Deny("bad image").WithCode(http.StatusConflict).WithReason("Conflict"), nil
			case pod.Labels["marked"] != "yes":
				return hostsdk.Allow().WithWarnings("nobody has marked it"), nil
			}
			return hostsdk.Allow(), nil
		})),
	)
	return r, mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), true)
}

func TestAdmitRunsAllStagesForADirectCaller(t *testing.T) {
	r, caller := newEdgesRoad(t)
	url := r.dispatcher.URL(clusterName, "admit")

	request := podRequest(r.namespace, "good")
	response, err := caller.Review(t.Context(), url, request)
	if err != nil {
		t.Fatal(err)
	}
	if !response.Allowed || response.PatchType == nil || !strings.Contains(string(response.Patch), `"marked"`) {
		t.Errorf("response = %+v with patch %s, want it allowed and marked", response, response.Patch)
	}
	if len(response.Warnings) != 1 || response.Warnings[0] != "it is marked" {
		t.Errorf("warnings = %q, want that of the mutating hook; the validating one sees the mark", response.Warnings)
	}

	response, err = caller.Review(t.Context(), url, podRequest(r.namespace, "bad"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("hook %q denied the request: bad image", judgeHook)
	if response.Allowed || response.Patch != nil || response.Result.Code != http.StatusConflict || response.Result.Message != want {
		t.Errorf("response = %+v, want code 409 and: %s", response, want)
	}
}

// enforced has the fields of an answer of /enforce that a caller needs who
// knows the proposal alone.
type enforced struct {
	Kind   string         `json:"kind"`
	Status *metav1.Status `json:"status"`
}

func TestEnforceAnswersWithItsStatus(t *testing.T) {
	r, caller := newEdgesRoad(t)
	spec := func(pod *corev1.Pod) []byte {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		return marshal(t, map[string]any{
			"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
			"spec": map[string]any{
				"resource": "pods", "subresource": "", "operation": "Create", "object": pod, "oldObject": nil,
				"userInfo": map[string]any{"name": "user1", "uid": "cn=user,dn=ou", "groups": []string{"g=1"}},
			},
		})
	}
	request := func(q *admissionv1.AdmissionRequest) []byte {
		return marshal(t, &admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}, Request: q,
		})
	}
	marked, bad := kube.Pod(r.namespace, "marked"), kube.Pod(r.namespace, "bad")
	marked.Labels = map[string]string{"marked": "yes"}
	bad.Spec.Containers[0].Image = "bad"

	for name, tc := range map[string]struct {
		body   []byte
		status int
		code   int32
	}{
		"admitted":                        {spec(marked), http.StatusNoContent, 0},
		"admitted, with a warning":        {spec(kube.Pod(r.namespace, "plain")), http.StatusOK, http.StatusOK},
		"rejected":                        {spec(bad), http.StatusBadRequest, http.StatusConflict},
		"a request, rejected":             {request(podRequest(r.namespace, "bad")), http.StatusBadRequest, http.StatusConflict},
		"a request, with a warning":       {request(podRequest(r.namespace, "good")), http.StatusOK, http.StatusOK},
		"larger than what is judged":      {bytes.Repeat([]byte("x"), 9<<20), http.StatusBadRequest, http.StatusRequestEntityTooLarge},
		"a namespace that does not exist": {spec(kube.Pod("no-such-namespace", "p")), http.StatusOK, http.StatusOK}, // no selector asks
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := caller.Post(t.Context(), r.dispatcher.URL(clusterName, "enforce"), tc.body)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Status != tc.status {
				t.Fatalf("status = %d: %s, want %d", answer.Status, answer.Body, tc.status)
			}
			if tc.status == http.StatusNoContent {
				if len(answer.Body) > 0 {
					t.Errorf("204 with a body: %s", answer.Body)
				}
				return
			}
			var said enforced
			if err := json.Unmarshal(answer.Body, &said); err != nil || said.Kind != "AdmissionReview" || said.Status.Code != tc.code {
				t.Errorf("answer = %s (error %v), want a status with code %d", answer.Body, err, tc.code)
			}
		})
	}
}

// TestEveryBodyIsEnforced posts everything that lies in the corpus to
// /enforce: whatever it is, there is a verdict.
func TestEveryBodyIsEnforced(t *testing.T) {
	citest.Gate(t, "covers direct callers: a second")
	r, caller := newEdgesRoad(t)
	url := r.dispatcher.URL(clusterName, "enforce")
	var posts sync.WaitGroup
	busy := make(chan struct{}, 8)
	for _, file := range corpusFiles(t) {
		for damage, body := range damages(readFile(t, file)) {
			busy <- struct{}{}
			posts.Go(func() {
				defer func() { <-busy }()
				if err := enforces(t.Context(), caller, url, body); err != nil {
					t.Errorf("%s, %s: %v", filepath.Base(file), damage, err)
				}
			})
		}
	}
	posts.Wait()
}

// enforces is an error unless the answer follows the protocol.
func enforces(ctx context.Context, caller *mesh.Caller, url string, body []byte) error {
	answer, err := caller.Post(ctx, url, body)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	if answer.Status == http.StatusNoContent && len(answer.Body) == 0 {
		return nil
	}
	var said enforced
	if err := json.Unmarshal(answer.Body, &said); err != nil || said.Status == nil {
		return fmt.Errorf("status %d without a status: %s", answer.Status, answer.Body)
	}
	want := map[int]string{http.StatusOK: metav1.StatusSuccess, http.StatusBadRequest: metav1.StatusFailure}[answer.Status]
	if want == "" || said.Status.Status != want {
		return fmt.Errorf("status %d with %s", answer.Status, answer.Body)
	}
	return nil
}

// TestTheAnswerComesBeforeTheCallerGivesUp has hooks that never answer.
func TestTheAnswerComesBeforeTheCallerGivesUp(t *testing.T) {
	citest.Soak(t, "has callers give up in time, which a busy machine may be late for: 4 s")
	const (
		mutating, validating = "hang.mutating.example.com", "hang.validating.example.com"
		timeout              = 4 * time.Second
	)
	ignore := admissionregistrationv1.Ignore
	m := kube.Mutating("hang-mutating", onPods(mutating), onPods("second."+mutating))
	for i := range m.Webhooks {
		again := admissionregistrationv1.IfNeededReinvocationPolicy
		m.Webhooks[i].FailurePolicy, m.Webhooks[i].ReinvocationPolicy = &ignore, &again
	}
	v := kube.Validating("hang-validating", onPods(validating))
	v.Webhooks[0].FailurePolicy = &ignore
	r := newRoad(t, m, v)
	hang := func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.host(t,
		hostsdk.Mutate(mutating, hang),
		hostsdk.Mutate("second."+mutating, hang),
		hostsdk.Validate(validating, hang),
	)
	caller := mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), true)
	body := marshal(t, &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
		Request:  podRequest(r.namespace, "any"),
	})
	var asked sync.WaitGroup
	for _, stage := range []string{"mutate", "reinvoke", "validate", "admit", "enforce"} {
		asked.Go(func() {
			ctx, giveUp := context.WithTimeout(t.Context(), timeout)
			defer giveUp()
			answer, err := caller.Post(ctx, r.dispatcher.URL(clusterName, stage)+"?timeout="+timeout.String(), body)
			if err != nil || answer.Status != http.StatusOK || !strings.Contains(string(answer.Body), "was skipped") {
				t.Errorf("%s: %d %s, %v, want it allowed in time, and told of the hooks that hang", stage, answer.Status, answer.Body, err)
			}
		})
	}
	asked.Wait()
}

// TestTheExamplesForDirectCallersWork runs the commands of docs/operations.md,
// in its order.
func TestTheExamplesForDirectCallersWork(t *testing.T) {
	citest.Gate(t, "runs curl: 2 s")
	if _, err := exec.LookPath("curl"); err != nil {
		citest.Lacks(t, "there is no curl to run the examples with")
	}
	page := string(readFile(t, filepath.Join("..", "..", "docs", "operations.md")))
	_, section, found := strings.Cut(page, "## Direct callers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	examples := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if !found || len(examples) != 2 {
		t.Fatalf("%d examples, want that of /admit and that of /enforce", len(examples))
	}
	d := startDev(t)
	for i, parts := range [][]string{
		{`"allowed":true`, `"patchType":"JSONPatch"`, `"uid":"1"`},
		{`"status":"Failure"`, `image \"nginx\" is not pinned`, `"code":403`, "\n400\n"},
	} {
		command := exec.CommandContext(t.Context(), "bash", "-c", examples[i][1])
		command.Env = append(command.Environ(), "BRIDGE="+d.ready.Bridge, "CA="+d.ready.CA, "CERT="+d.ready.ClientCert, "KEY="+d.ready.ClientKey)
		said, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("example %d: %v\n%s", i, err, said)
		}
		for _, part := range parts {
			if !strings.Contains(string(said), part) {
				t.Errorf("example %d says %s, want %s", i, said, part)
			}
		}
	}
}

// TestReviewAsksForAllStagesOverGRPC has the command line as the direct caller
// that needs no AdmissionReview.
func TestReviewAsksForAllStagesOverGRPC(t *testing.T) {
	d := startDev(t)
	command := exec.CommandContext(t.Context(), portcullis, "review", "-f", filepath.Join(d.dir, "pod.json"),
		"--ready-file", filepath.Join(filepath.Dir(d.dir), "ready.json"), "--stage", "admit", "-o", "json")
	said, err := command.Output()
	if err == nil {
		t.Errorf("exit code 0, want that of a denial: %s", said)
	}
	var report struct {
		Stages []struct {
			Stage string `json:"stage"`
			Hooks []struct {
				Hook    string `json:"hook"`
				Outcome string `json:"outcome"`
			} `json:"hooks"`
		} `json:"stages"`
	}
	if err := json.Unmarshal(said, &report); err != nil || len(report.Stages) != 1 || report.Stages[0].Stage != "admit" {
		t.Fatalf("report = %s (error %v), want one stage", said, err)
	}
	outcomes := map[string]string{}
	for _, h := range report.Stages[0].Hooks {
		if outcomes[h.Hook] == "" { // of the first round
			outcomes[h.Hook] = h.Outcome
		}
	}
	for hook, want := range map[string]string{"owner.portcullis.dev": "patched", "cost-center.portcullis.dev": "patched", pinnedImages: "denied"} {
		if outcomes[hook] != want {
			t.Errorf("%s: %q, want %q", hook, outcomes[hook], want)
		}
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
