package dispatcher_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// road holds the parameters of a benchmark of the road of a review.
type road struct {
	stage   admissionv1.Stage
	hooks   int
	patches int // hooks that patch, spread evenly; several of them want to be asked again
	bytes   int // of the Pod
	policy  admissionregistrationv1.MatchPolicyType
	typed   bool // objects are patched as their Go types
}

// roads are the combinations in which something changes.
func roads() []road {
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	var all []road
	for _, size := range []int{2_000, 20_000} {
		for _, hooks := range []int{1, 8, 32} {
			all = append(all,
				road{stage: validate, hooks: hooks, bytes: size, policy: exact},
				road{stage: validate, hooks: hooks, bytes: size, policy: equivalent},
				road{stage: mutate, hooks: hooks, bytes: size, policy: exact},
				road{stage: mutate, hooks: hooks, bytes: size, policy: equivalent},
				road{stage: mutate, hooks: hooks, bytes: size, policy: exact, patches: 1},
				road{stage: mutate, hooks: hooks, bytes: size, policy: exact, patches: 1, typed: true})
			if hooks >= 4 {
				all = append(all,
					road{stage: mutate, hooks: hooks, bytes: size, policy: exact, patches: 4},
					road{stage: mutate, hooks: hooks, bytes: size, policy: exact, patches: 4, typed: true})
			}
		}
	}
	return all
}

// String is the name of a benchmark.
func (r road) String() string {
	if r.stage == validate {
		return fmt.Sprintf("validate/%dkB/hooks=%d/%s", r.bytes/1000, r.hooks, r.policy)
	}
	name := fmt.Sprintf("mutate/%dkB/hooks=%d/%s/patches=%d", r.bytes/1000, r.hooks, r.policy, r.patches)
	if r.typed {
		name += "/typed"
	}
	return name
}

// BenchmarkReview is the whole road of a review but for the wire: hooks are functions in this process.
func BenchmarkReview(b *testing.B) {
	for _, r := range roads() {
		b.Run(r.String(), func(b *testing.B) {
			backend := inprocess.New(r.handlers())
			defer backend.Wait()
			d, request := r.dispatcher(b, backend), r.request(b)
			b.ReportAllocs()
			for b.Loop() {
				answer, err := d.Review(b.Context(), request)
				if err != nil || !answer.Response.GetAllowed() || (len(answer.Response.GetPatch()) > 0) != (r.patches > 0) {
					b.Fatal(answer.Response, err)
				}
			}
		})
	}
}

// BenchmarkRoad measures a review whose hooks allow it at once, in process.
func BenchmarkRoad(b *testing.B) {
	for _, r := range roads() {
		if r.patches > 0 {
			continue
		}
		b.Run(r.String(), func(b *testing.B) {
			d, request := r.dispatcher(b, atOnce{&admissionv1.AdmissionResponse{Allowed: true}}), r.request(b)
			ctx, done := context.WithTimeout(b.Context(), time.Hour)
			defer done()
			b.ReportAllocs()
			for b.Loop() {
				if answer, err := d.Review(ctx, request); err != nil || !answer.Response.GetAllowed() {
					b.Fatal(answer.Response, err)
				}
			}
		})
	}
}

// BenchmarkObservation measures the road of a review with different records of it: nothing, its latency record, and the spans of a part of the traces
// beside that. Spans are exported to nowhere.
func BenchmarkObservation(b *testing.B) {
	batched := sdktrace.WithBatcher(tracetest.NewNoopExporter())
	for _, hooks := range []int{1, 8} {
		r := road{stage: validate, hooks: hooks, bytes: 2000, policy: admissionregistrationv1.Exact}
		for _, kept := range []struct {
			name    string
			records bool
			sampled float64 // negative: no tracing
		}{
			{"nothing", false, -1}, {"records", true, -1}, {"records, no traces", true, 0}, {"records, 1 % of traces", true, .01}, {"records, all traces", true, 1},
		} {
			b.Run(fmt.Sprintf("hooks=%d/%s", hooks, kept.name), func(b *testing.B) {
				provider := sdktrace.NewTracerProvider(batched, sdktrace.WithSampler(sdktrace.TraceIDRatioBased(kept.sampled)))
				defer func() { _ = provider.Shutdown(context.WithoutCancel(b.Context())) }()
				d := r.dispatcher(b, atOnce{&admissionv1.AdmissionResponse{Allowed: true}}, func(o *dispatcher.Options) {
					if kept.records {
						o.Latencies, o.Slow = latency.NewRecorder(0), observe.DefaultSlow
					}
					if kept.sampled >= 0 {
						o.TracerProvider, o.KeptTraces = provider, provider
					}
				})
				request := r.request(b)
				ctx, done := context.WithTimeout(b.Context(), time.Hour)
				defer done()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := d.Review(ctx, request); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// atOnce is a backend of hooks that say all the same before they are asked.
type atOnce struct {
	verdict *admissionv1.AdmissionResponse
}

func (a atOnce) Start(_ context.Context, batch *review.CallSet, done func(int, review.Result)) func(int) {
	for i := range batch.Calls {
		done(i, review.Result{Verdict: a.verdict})
	}
	return func(int) {}
}

func (r road) dispatcher(b *testing.B, hooks review.Backend, configure ...func(*dispatcher.Options)) *dispatcher.Dispatcher {
	b.Helper()
	snapshot, _ := match.Compile(match.Input{
		Revision: "sha256:7b1a5c1d", Objects: []match.Object{r.configuration()},
		Routes: []match.RouteBinding{{Configuration: "team", Route: match.Route{Stream: true, Hosts: []string{"host"}}}},
	})
	known := usual{snapshot: snapshot, equivalents: equivalents.Known()}
	options := dispatcher.Options{Snapshots: known, Clusters: known, Streams: hooks, Codec: r.codec(),
		Options: observe.Options{
			Metrics: prometheus.NewRegistry(),
		}}
	for _, f := range configure {
		f(&options)
	}
	d, err := dispatcher.New(options)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func (r road) codec() func(conversion.Allowance) chain.Codec {
	if !r.typed {
		return nil
	}
	types := builtin.New(builtin.Options{})
	return func(a conversion.Allowance) chain.Codec { return types.NewPatchSession(a) }
}

// configuration has the hooks. They match Pods in all namespaces but one.
func (r road) configuration() match.Object {
	m := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: m.ObjectMeta}
	for i := range r.hooks {
		x := hook{name: nameOf(i), needed: r.patches > 1 && r.patching(i)}.mutating()
		x.MatchPolicy = &r.policy
		x.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system"},
		}}}
		m.Webhooks = append(m.Webhooks, x)
		v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: x.Name, Rules: x.Rules, FailurePolicy: x.FailurePolicy, SideEffects: x.SideEffects,
			MatchPolicy: x.MatchPolicy, NamespaceSelector: x.NamespaceSelector,
		})
	}
	if r.stage == validate {
		return match.Object{Validating: v}
	}
	return match.Object{Mutating: m}
}

// nameOf is the name of hook i, in the order in which they are called.
func nameOf(i int) string { return fmt.Sprintf("hook-%02d.team.dev", i) }

// patching says whether hook i patches.
func (r road) patching(i int) bool { return r.patches > 0 && i%(r.hooks/r.patches) == 0 }

// handlers let everything pass. Those that patch set a label that is not there.
func (r road) handlers() map[string]inprocess.Handler {
	verdict := &admissionv1.AdmissionResponse{Allowed: true}
	all := map[string]inprocess.Handler{}
	for i := range r.hooks {
		all[nameOf(i)] = func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return verdict, nil
		}
		if r.patching(i) {
			all[nameOf(i)] = labelling(fmt.Sprintf("label-%02d", i))
		}
	}
	return all
}

// labelling sets a label that is not there.
func labelling(label string) inprocess.Handler {
	known, patch := []byte(label), fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/%s","value":"x"}]`, label)
	return func(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if bytes.Contains(r.GetObject().GetRaw(), known) {
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: "JSONPatch"}, nil
	}
}

// request is the CREATE of a Pod by a controller.
func (r road) request(b *testing.B) *review.Request {
	b.Helper()
	return &review.Request{Stage: r.stage, Admission: &admissionv1.AdmissionRequest{
		Uid: "705ab4f5-6393-11e8-b7cc-42010a800002", Cluster: "c", Operation: "CREATE", Namespace: "shop",
		Kind:            &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:        &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		RequestKind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		RequestResource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		UserInfo: &admissionv1.UserInfo{
			Username: "system:serviceaccount:kube-system:replicaset-controller", Uid: "13076e42-1513-11ea-b3fc-02897404852e",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		},
		Object:  &admissionv1.Object{Raw: r.pod(b)},
		Options: &admissionv1.Object{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
	}}
}

// pod is a Pod as an API server writes it, with as many containers as fit.
func (r road) pod(b *testing.B) []byte {
	b.Helper()
	const container = `{"name":"c%d","image":"registry.example.com/team/app:1.2.3","args":["--listen=:8080","--log-level=info"],` +
		`"ports":[{"containerPort":8080}],"env":[{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],` +
		`"resources":{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"100m","memory":"64Mi"}},` +
		`"securityContext":{"runAsUser":1000,"readOnlyRootFilesystem":true}}`
	var containers []string
	for pod := []byte(nil); ; {
		containers = append(containers, fmt.Sprintf(container, len(containers)))
		whole := fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"web-","namespace":"shop"},`+
			`"spec":{"containers":[%s],"serviceAccountName":"web","tolerations":[{"key":"a","operator":"Exists"}]}}`,
			strings.Join(containers, ","))
		served, _, err := builtin.New(builtin.Options{}).NewPatchSession(nil).Apply(whole, []byte(`[{"op":"add","path":"/metadata/labels","value":{"app":"web"}}]`))
		if err != nil {
			b.Fatal(err)
		}
		if len(served) > r.bytes && pod != nil {
			return pod
		}
		pod = served
	}
}

// usual is a cluster with a namespace and the built-in resources.
type usual struct {
	match.Unknown

	snapshot    *match.Snapshot
	equivalents *equivalents.Builtin
}

func (u usual) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return u.snapshot, "", nil
}

// Release implements [dispatcher.Snapshots].
func (usual) Release(*match.Snapshot) {}

func (u usual) Cluster(string) match.Cluster { return u }

func (u usual) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return map[string]string{"kubernetes.io/metadata.name": "shop", "team": "shop"}, nil
}

func (u usual) Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	return u.equivalents.For(resource, subresource), nil
}
