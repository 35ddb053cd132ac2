package outbound

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
	"github.com/portcullis-mesh/portcullis/internal/oracle/replies"
)

// reply is the reply of a comparison's webhook, to both callers.
type reply replies.Reply

// allowance is where a redirect leads.
var allowance = reply{Status: http.StatusOK, Body: in("v1", `,"allowed":true`)}

func (r reply) String() string {
	return fmt.Sprintf("HTTP %d %v drop=%v %s", r.Status, r.Header, r.Drop, r.Body)
}

// comparison is one hook, called by kube-apiserver's own code and by a dispatcher with this package.
type comparison struct {
	t          testing.TB
	stage      admissionv1.Stage
	oracle     *oracle.Oracle
	dispatcher *dispatcher.Dispatcher

	mu    sync.Mutex
	reply reply
	calls int
}

// outcome is how a review ended, for its client.
type outcome struct {
	Allowed  bool
	Code     int32
	Reason   string
	Message  string // of a denial, from its hook
	Object   any    // of an allowed review
	Warnings []string
	Calls    int
}

// fixed is a configuration, and a namespace, that do not change.
type fixed struct {
	match.Unknown

	snapshot *match.Snapshot
}

func (f fixed) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return f.snapshot, "", nil
}

// Release implements [dispatcher.Snapshots].
func (fixed) Release(*match.Snapshot) {}

func (f fixed) Cluster(string) match.Cluster { return f }

func (fixed) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}

func newComparison(t testing.TB, stage admissionv1.Stage, policy admissionregistrationv1.FailurePolicyType, version string) *comparison {
	t.Helper()
	x := &comparison{t: t, stage: stage}
	w := serve(t, x.answer)
	url, none, seconds, equivalent := w.URL+"/hook", admissionregistrationv1.SideEffectClassNone, int32(10), admissionregistrationv1.Equivalent
	never := admissionregistrationv1.NeverReinvocationPolicy
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}
	client := admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: w.ca}
	meta := metav1.ObjectMeta{Name: "c"}
	options := oracle.Options{Namespaces: map[string]map[string]string{"default": {}}}
	in := match.Input{Revision: "r"}
	if stage == admissionv1.Stage_STAGE_VALIDATE {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hook.example.com", ClientConfig: client, Rules: rules, FailurePolicy: &policy, SideEffects: &none, MatchPolicy: &equivalent,
			TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{version},
		}}}
		options.Validating, in.Objects = []*admissionregistrationv1.ValidatingWebhookConfiguration{c}, []match.Object{{Validating: c}}
	} else {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "hook.example.com", ClientConfig: client, Rules: rules, FailurePolicy: &policy, SideEffects: &none, MatchPolicy: &equivalent,
			TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{version}, ReinvocationPolicy: &never,
		}}}
		options.Mutating, in.Objects = []*admissionregistrationv1.MutatingWebhookConfiguration{c}, []match.Object{{Mutating: c}}
	}
	snapshot, _ := match.Compile(in)
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: fixed{snapshot: snapshot}, Clusters: fixed{snapshot: snapshot}, Streams: newClient(t, Options{}), Webhooks: newClient(t, Options{RetryInterval: 1}),
	})
	if err != nil {
		t.Fatal(err)
	}
	x.oracle, x.dispatcher = oracle.New(t, options), d
	return x
}

// answer is the webhook.
func (x *comparison) answer(w http.ResponseWriter, r *http.Request) {
	got := readReview(x.t, r)
	x.mu.Lock()
	x.calls++
	reply := x.reply
	x.mu.Unlock()
	if got == nil || reply.Drop {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == "/moved" {
		reply = allowance
	}
	for name, values := range reply.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(reply.Status)
	_, _ = io.WriteString(w, withUID(reply.Body, string(got.Request.UID)))
}

// begin makes the webhook answer with a reply from now on.
func (x *comparison) begin(r reply) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reply, x.calls = r, 0
}

// called is how often the webhook was called since.
func (x *comparison) called() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.calls
}

// kubernetes is the outcome of a reply in kube-apiserver's code, and whether it is a failure of the webhook there.
func (x *comparison) kubernetes(r reply) (out outcome, failed bool) {
	x.t.Helper()
	x.begin(r)
	got, err := x.oracle.Run(x.t.Context(), x.stage, createWidget())
	if err != nil {
		x.t.Fatal(err)
	}
	out = outcome{Allowed: got.Allowed, Code: got.Code, Reason: string(got.Reason), Warnings: got.Warnings, Calls: x.called()}
	if got.Allowed {
		out.Object = decoded(x.t, got.FinalObject)
	}
	out.Message, failed = messageOf(got.Message)
	for key := range got.Audit {
		failed = failed || strings.HasPrefix(key, "failed-open.")
	}
	return out, failed
}

// ours is the outcome of a reply in a dispatcher.
func (x *comparison) ours(r reply) (out outcome, failed bool) {
	x.t.Helper()
	x.begin(r)
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	request := createWidget()
	a, err := x.dispatcher.Review(ctx, &review.Request{Stage: x.stage, Admission: request, Explain: true})
	if err != nil {
		x.t.Fatal(err)
	}
	resp := a.Response
	out = outcome{Allowed: resp.GetAllowed(), Code: resp.GetStatus().GetCode(), Reason: resp.GetStatus().GetReason(), Calls: x.called()}
	out.Message, failed = messageOf(resp.GetStatus().GetMessage())
	failed = failed || a.Outcomes[0].GetOutcome() == "failed-open"
	for _, w := range resp.GetWarnings() {
		if !strings.HasSuffix(w, "its failure policy is Ignore") { // That is ours: a hook that failed open is named.
			out.Warnings = append(out.Warnings, w)
		}
	}
	if resp.GetAllowed() {
		patched, err := conversion.ApplyPatch(request.GetObject().GetRaw(), resp.GetPatch())
		if err != nil {
			x.t.Fatal(err)
		}
		out.Object = decoded(x.t, patched.Raw)
	}
	return out, failed
}

// messageOf is a hook's message in a denial; a failure to call it says nothing that has to be the same.
func messageOf(message string) (said string, failed bool) {
	if strings.HasPrefix(strings.TrimPrefix(message, "Internal error occurred: "), "failed calling webhook") {
		return "", true
	}
	if _, said, denied := strings.Cut(message, "denied the request"); denied {
		return said, false
	}
	return "", false
}

func decoded(t testing.TB, raw []byte) any {
	t.Helper()
	var out any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// check compares both outcomes of a reply. It returns how it ended.
func (x *comparison) check(r reply) string {
	x.t.Helper()
	wanted, wantFailed := x.kubernetes(r)
	got, failed := x.ours(r)
	if wantFailed && !failed && !got.Allowed && saysNo(r.Body) {
		return "D1"
	}
	if r.Drop && got.Calls == wanted.Calls+1 {
		got.Calls-- // docs/deviations.md, W8: the connection was a kept one.
	}
	if diff := cmp.Diff(wanted, got); diff != "" || wantFailed != failed {
		x.t.Errorf("%v\nfailed %v, Kubernetes says %v (-Kubernetes +ours):\n%s", r, failed, wantFailed, diff)
	}
	switch {
	case failed:
		return "failed"
	case got.Allowed:
		return "allowed"
	}
	return "denied"
}

// saysNo says whether a reply that kube-apiserver calls a failure may count as a denial: it says so of its own, or it
// would be one but for its patch, which the chain reads later than that it does not allow.
func saysNo(body string) bool {
	return strings.Contains(body, `"allowed":false`) ||
		strings.Contains(body, `"patch`) && !strings.Contains(body, `"allowed":true`)
}

// TestRepliesMeanWhatKubernetesMakesOfThem sends the same replies to kube-apiserver's own callHook and to a dispatcher.
func TestRepliesMeanWhatKubernetesMakesOfThem(t *testing.T) {
	each := citest.Rounds(60, 400, 4000)
	seed := uint64(0)
	for _, stage := range []admissionv1.Stage{admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_MUTATE} {
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			for _, version := range []string{"v1", "v1beta1"} {
				t.Run(fmt.Sprintf("%s %s %s", stage, policy, version), func(t *testing.T) {
					x := newComparison(t, stage, policy, version)
					seed++
					random := replies.Random{Rand: rand.New(rand.NewPCG(1, seed))}
					ended := map[string]int{}
					for range each {
						ended[x.check(reply(random.Next(version)))]++
						if t.Failed() {
							return
						}
					}
					if ended["allowed"] < each/20 || ended["denied"] < each/20 || ended["failed"] < each/20 {
						t.Errorf("the test says little: %v", ended)
					}
					t.Log(ended)
				})
			}
		}
	}
}

// TestKubernetesFollowsRedirects shows the deviation.
func TestKubernetesFollowsRedirects(t *testing.T) {
	x := newComparison(t, admissionv1.Stage_STAGE_VALIDATE, admissionregistrationv1.Fail, "v1")
	moved := reply{Status: http.StatusTemporaryRedirect, Header: http.Header{"Location": {"/moved"}}}
	if got, _ := x.kubernetes(moved); !got.Allowed || got.Calls != 2 {
		t.Errorf("Kubernetes: %+v", got)
	}
	if got, failed := x.ours(moved); got.Allowed || got.Calls != 1 || !failed {
		t.Errorf("ours: %+v, failed %v", got, failed)
	}
}
