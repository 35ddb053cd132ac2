package dispatcher_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// measured is a mesh each of whose phases takes a time of its own.
type measured struct{ static }

func (s measured) Acquire(ctx context.Context, cluster string, bytes int64) (*match.Snapshot, string, error) {
	time.Sleep(3 * time.Millisecond) //nolint:forbidigo // of the bubble
	return s.static.Acquire(ctx, cluster, bytes)
}

func (s measured) Cluster(string) match.Cluster { return s }

func (s measured) NamespaceLabels(context.Context, string) (map[string]string, error) {
	time.Sleep(5 * time.Millisecond) //nolint:forbidigo // of the bubble
	return map[string]string{"select": "yes"}, nil
}

// slowCodec takes its time to patch, and to compare.
type slowCodec struct{ chain.Codec }

func (c slowCodec) Apply(object, patch []byte) (result []byte, changed bool, err error) {
	time.Sleep(7 * time.Millisecond) //nolint:forbidigo // of the bubble
	return c.Codec.Apply(object, patch)
}

func (c slowCodec) Diff(from, to []byte) ([]byte, error) {
	time.Sleep(11 * time.Millisecond) //nolint:forbidigo // of the bubble
	return c.Codec.Diff(from, to)
}

// line is a span as the test shows it: its events with the time since the start of the review.
func line(s trace.ReadOnlySpan, begun time.Time) string {
	out := s.Name() + " " + s.StartTime().Sub(begun).String()
	for _, e := range s.Events() {
		out += ", " + e.Name + " " + e.Time.Sub(begun).String()
	}
	return out + ", end " + s.EndTime().Sub(begun).String()
}

func TestNoTimeOfAReviewIsWithoutAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snapshot := compile(t, nil, []hook{{name: "a.test.dev", selects: true}, {name: "b.test.dev"}})
		spans, s := tracetest.NewSpanRecorder(), measured{static{snapshot: snapshot}}
		d, err := dispatcher.New(dispatcher.Options{
			Snapshots: s, Clusters: s, Options: observe.Options{TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans))},
			Codec: func(of conversion.Allowance) chain.Codec { return slowCodec{conversion.Raw{Allowance: of}} },
			Streams: start(func(_ context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
				time.AfterFunc(23*time.Millisecond, func() { done(0, labelled(b.Calls[0].Hook.ID.Name)) })
				return func(int) {}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := d.Review(t.Context(), podReview(mutate, `{"kind":"Pod","apiVersion":"v1","metadata":{"labels":{"x":"y"}}}`)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range spans.Ended() {
			got = append(got, line(s, begun))
		}
		slices.Sort(got)
		want := []string{
			"call a.test.dev 8ms, sent 13ms, received 31ms, end 31ms",
			"call b.test.dev 38ms, sent 43ms, received 61ms, end 61ms",
			"review mutate 0s, held 3ms, looked up 8ms, matched 8ms, encoded 8ms, applied 38ms, defaulted 38ms, matched 38ms, encoded 38ms, " +
				"applied 68ms, defaulted 68ms, compared 79ms, end 79ms",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("spans (-want +got):\n%s", diff)
		}
	})
}

// labelled is the verdict of a host that sets a label.
func labelled(label string) review.Result {
	return review.Result{
		Verdict: &admissionv1.AdmissionResponse{
			Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[{"op":"add","path":"/metadata/labels/` + label + `","value":"x"}]`),
		},
		Timing: review.Timing{Queued: 5 * time.Millisecond, Wire: 10 * time.Millisecond, Host: 8 * time.Millisecond, Instance: "vm-1"},
	}
}

// attributes are the attributes of a span with a prefix, as text.
func attributes(s trace.ReadOnlySpan, prefixes ...string) map[attribute.Key]string {
	out := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(string(a.Key), p) }) {
			out[a.Key] = a.Value.Emit()
		}
	}
	return out
}

func TestASpanSaysWhatIsReviewed(t *testing.T) {
	long := strings.Repeat("n", 1000)
	for name, test := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		want   map[attribute.Key]string
	}{
		"an object in a namespace": {
			func(*admissionv1.AdmissionRequest) {},
			map[attribute.Key]string{"k8s.cluster.name": "c", "k8s.namespace.name": "ns", "k8s.object.kind": "Pod", "k8s.object.name": "web", "portcullis.resource": "pods"},
		},
		"a subresource of an object without a namespace": {
			func(r *admissionv1.AdmissionRequest) {
				r.Namespace, r.Resource.Group, r.Resource.Resource, r.SubResource = "", "apps", "deployments", "scale"
			},
			map[attribute.Key]string{"k8s.cluster.name": "c", "k8s.object.kind": "Pod", "k8s.object.name": "web", "portcullis.resource": "deployments.apps/scale"},
		},
		"a Secret, without its name": {
			func(r *admissionv1.AdmissionRequest) { r.Kind.Kind, r.Resource.Resource = "Secret", "secrets" },
			map[attribute.Key]string{"k8s.cluster.name": "c", "k8s.namespace.name": "ns", "k8s.object.kind": "Secret", "portcullis.resource": "secrets"},
		},
		"names that are too long, cut": {
			func(r *admissionv1.AdmissionRequest) { r.Name, r.Namespace = long, long },
			map[attribute.Key]string{"k8s.cluster.name": "c", "k8s.namespace.name": long[:256], "k8s.object.kind": "Pod", "k8s.object.name": long[:256], "portcullis.resource": "pods"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, compile(t, nil, nil), review.Result{})
			r := podReview(validate, `{}`)
			r.Admission.Name, r.Admission.Namespace = "web", "ns"
			test.change(r.Admission)
			if _, err := w.dispatcher.Review(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, attributes(w.spans.Ended()[0], "k8s.", "portcullis.resource")); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestASpanSaysWhereTheTimeOfACallWent(t *testing.T) {
	for instance, want := range map[string]map[attribute.Key]string{
		"vm-1": {
			"portcullis.queue.duration": "1", "portcullis.wire.duration": "2", "portcullis.host.duration": "3", "portcullis.host.instance": "vm-1",
		},
		"imagepolicy.policy.svc:443": {
			"portcullis.queue.duration": "1", "portcullis.webhook.duration": "2", "server.address": "imagepolicy.policy.svc", "server.port": "443",
		},
	} {
		in, spans := input([]hook{{name: "x.test.dev"}}, nil), tracetest.NewSpanRecorder()
		if instance != "vm-1" {
			address := "https://" + instance
			in.Routes = nil // a webhook over HTTPS
			in.Objects[0].Validating.Webhooks[0].ClientConfig.URL = &address
		}
		snapshot, _ := match.Compile(in)
		s := static{snapshot: snapshot}
		answers := start(func(_ context.Context, _ *review.CallSet, done func(int, review.Result)) func(int) {
			timing := review.Timing{Queued: time.Second, Wire: 2 * time.Second, Instance: instance}
			if in.Routes != nil {
				timing.Host = 3 * time.Second
			}
			done(0, review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}, Timing: timing})
			return func(int) {}
		})
		d, err := dispatcher.New(dispatcher.Options{
			Snapshots: s, Clusters: s, Streams: answers, Webhooks: answers,
			Options: observe.Options{
				TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans)),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Review(t.Context(), podReview(validate, `{}`)); err != nil {
			t.Fatal(err)
		}
		if call := attributes(spans.Ended()[0], "k8s."); call["k8s.cluster.name"] != "c" {
			t.Errorf("the call is of %v", call)
		}
		got := attributes(spans.Ended()[0], "portcullis.queue", "portcullis.wire", "portcullis.host", "portcullis.webhook", "server.")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
	}
}

// TestATraceThatIsNotSampledCostsNothing: neither phases nor attributes are made for a span that is dropped.
func TestATraceThatIsNotSampledCostsNothing(t *testing.T) {
	allocations := func(provider oteltrace.TracerProvider) float64 {
		s := static{snapshot: compile(t, []hook{{name: "x.test.dev"}, {name: "y.test.dev"}}, nil)}
		d, err := dispatcher.New(dispatcher.Options{
			Snapshots: s, Clusters: s, Streams: atOnce{&admissionv1.AdmissionResponse{Allowed: true}},
			Options: observe.Options{
				TracerProvider: provider,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := podReview(validate, `{}`)
		return testing.AllocsPerRun(1000, func() {
			if _, err := d.Review(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		})
	}
	// The SDK makes a span for the review to hand its context on, and looks at the attributes of a sampler.
	none, dropped := allocations(nil), allocations(trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())))
	const ofSDK = 3
	if dropped > none+ofSDK {
		t.Errorf("%v allocations without tracing, %v with a trace that is not sampled", none, dropped)
	}
}

// TestTheSamplerIsAskedOnceInAProcess: an unsampled span of this process decides for the review below it, and a span of another process does not. The
// trace goes on to the hosts in any case.
func TestTheSamplerIsAskedOnceInAProcess(t *testing.T) {
	above := oteltrace.SpanContextConfig{TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{2}}
	for name, tc := range map[string]struct {
		sampled, remote bool
		spans           int
	}{
		"a span of this process that is not sampled":    {false, false, 0},
		"a span of this process that is sampled":        {true, false, 2},
		"a span of another process that is not sampled": {false, true, 2},
		"a span of another process that is sampled":     {true, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, spans := static{snapshot: compile(t, []hook{{name: "x.test.dev"}}, nil)}, tracetest.NewSpanRecorder()
			var sent oteltrace.SpanContext
			d, err := dispatcher.New(dispatcher.Options{
				Snapshots: s, Clusters: s,
				Options: observe.Options{
					TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans), trace.WithSampler(trace.AlwaysSample())),
				},
				Streams: start(func(ctx context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
					sent = oteltrace.SpanContextFromContext(ctx)
					return atOnce{&admissionv1.AdmissionResponse{Allowed: true}}.Start(ctx, b, done)
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			parent := oteltrace.NewSpanContext(above).WithRemote(tc.remote)
			if tc.sampled {
				parent = parent.WithTraceFlags(oteltrace.FlagsSampled)
			}
			if _, err := d.Review(oteltrace.ContextWithSpanContext(t.Context(), parent), podReview(validate, `{}`)); err != nil {
				t.Fatal(err)
			}
			if got := len(spans.Ended()); got != tc.spans {
				t.Errorf("%d spans, want %d", got, tc.spans)
			}
			if sent.TraceID() != above.TraceID || sent.IsSampled() != (tc.spans > 0) || (sent.SpanID() == above.SpanID) != (tc.spans == 0) {
				t.Errorf("the hosts get %v", sent)
			}
		})
	}
}
