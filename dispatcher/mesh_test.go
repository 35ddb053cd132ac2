package dispatcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mesh is a dispatcher with real sessions over real gRPC, on a network in memory.
type mesh struct {
	t          *testing.T
	dispatcher *dispatcher.Dispatcher
	metrics    *prometheus.Registry
	spans      *tracetest.SpanRecorder
	provider   *trace.TracerProvider
	network    *bufconn.Listener
}

// hook is a hook of a test: its name, and how it differs from a fail-closed one without side effects for all Pods.
type hook struct {
	name    string
	ignore  bool
	needed  bool // reinvocationPolicy IfNeeded
	selects bool // a namespaceSelector that asks for labels
	shadow  bool
	time    time.Duration
}

// static is a configuration, and namespaces, that do not change.
type static struct {
	match.Unknown

	snapshot *match.Snapshot
}

func (s static) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return s.snapshot, "", nil
}

// Release implements [dispatcher.Snapshots].
func (static) Release(*match.Snapshot) {}

func (s static) Cluster(string) match.Cluster { return s }

// newMesh starts a dispatcher whose hooks are granted to every host.
func newMesh(t *testing.T, validating, mutating []hook) *mesh {
	t.Helper()
	snapshot := compile(t, patient(validating), patient(mutating))
	return newMeshOf(t, snapshot, static{snapshot: snapshot})
}

// patient gives hooks that name no timeout the longest: a busy machine may delay a call in real time.
func patient(hooks []hook) []hook {
	hooks = slices.Clone(hooks)
	for i := range hooks {
		if hooks[i].time == 0 {
			hooks[i].time = 30 * time.Second
		}
	}
	return hooks
}

// knowledge has the sources of a dispatcher.
type knowledge interface {
	dispatcher.Snapshots
	dispatcher.Clusters
}

// newMeshOf starts a dispatcher with the sources k; hosts may serve the hooks that the snapshot grants to "host".
func newMeshOf(t *testing.T, snapshot *match.Snapshot, k knowledge, configure ...func(*dispatcher.Options)) *mesh {
	t.Helper()
	m := &mesh{
		t: t, metrics: prometheus.NewRegistry(), network: bufconn.Listen(1 << 20), spans: tracetest.NewSpanRecorder(),
	}
	m.provider = trace.NewTracerProvider(trace.WithSpanProcessor(m.spans))
	router, err := session.New(session.Options{Metrics: m.metrics})
	if err != nil {
		t.Fatal(err)
	}
	router.Update(snapshot)
	hosts := session.NewServer(router, func(context.Context) identity.Channel { return identity.Named("host") })
	server := grpc.NewServer(session.ServerOptions()...)
	hostv1.RegisterHostServiceServer(server, hosts)
	options := dispatcher.Options{
		Snapshots: k, Clusters: k, Streams: router,
		Options: observe.Options{Metrics: m.metrics, TracerProvider: m.provider},
	}
	for _, f := range configure {
		f(&options)
	}
	if m.dispatcher, err = dispatcher.New(options); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = router.Run(ctx) })
	running.Go(func() { _ = server.Serve(m.network) })
	t.Cleanup(func() {
		server.Stop()
		stop()
		running.Wait()
		hosts.Wait()
	})
	return m
}

// compile makes a snapshot of the hooks.
func compile(t *testing.T, validating, mutating []hook) *match.Snapshot {
	t.Helper()
	snapshot, findings := match.Compile(input(validating, mutating))
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			t.Fatal(f)
		}
	}
	return snapshot
}

// input is a configuration with a configuration for each kind of hooks, which are served over streams.
func input(validating, mutating []hook) match.Input {
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	for _, h := range validating {
		x := h.mutating()
		v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: x.Name, Rules: x.Rules, FailurePolicy: x.FailurePolicy, SideEffects: x.SideEffects, NamespaceSelector: x.NamespaceSelector,
		})
	}
	mu := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	in := match.Input{Revision: "r1", Objects: []match.Object{{Validating: v}, {Mutating: mu}}}
	for _, h := range mutating {
		mu.Webhooks = append(mu.Webhooks, h.mutating())
	}
	for _, h := range slices.Concat(validating, mutating) {
		name := "v"
		if slices.Contains(mutating, h) {
			name = "m"
		}
		in.Routes = append(in.Routes, match.RouteBinding{
			Configuration: name, Hook: h.name, Route: match.Route{Stream: true, Hosts: []string{"host"}, Timeout: h.time, Shadow: h.shadow},
		})
	}
	return in
}

func (h hook) mutating() admissionregistrationv1.MutatingWebhook {
	policy, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	again := admissionregistrationv1.NeverReinvocationPolicy
	if h.ignore {
		policy = admissionregistrationv1.Ignore
	}
	if h.needed {
		again = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	var selector *metav1.LabelSelector
	if h.selects {
		selector = &metav1.LabelSelector{MatchLabels: map[string]string{"select": "yes"}}
	}
	return admissionregistrationv1.MutatingWebhook{
		NamespaceSelector: selector,
		Name:              h.name, FailurePolicy: &policy, SideEffects: &none, ReinvocationPolicy: &again,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "secrets"},
			},
		}},
	}
}

// host starts a host with the given hooks and waits until they are in rotation.
func (m *mesh) host(instance string, hooks ...hostsdk.Hook) {
	m.t.Helper()
	h, err := hostsdk.New(hostsdk.Options{
		Name: "test", Instance: instance, Dispatchers: []string{"127.0.0.1:1"}, TLS: hostsdk.Plaintext(),
		MaxOutstanding: 4096, TracerProvider: m.provider, Logger: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return m.network.DialContext(ctx) },
	}, hooks...)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- h.Run(ctx)
		close(ended)
	}()
	m.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			m.t.Errorf("host %s: %v", instance, err)
		}
	})
	select {
	case <-h.Ready():
	case err := <-ended:
		m.t.Fatalf("host %s: %v", instance, err)
	case <-time.After(time.Minute):
		m.t.Fatalf("host %s is not ready: %+v", instance, h.Status())
	}
}

// review judges a Pod.
func (m *mesh) review(stage admissionv1.Stage, pod string) review.Answer {
	m.t.Helper()
	ctx, done := context.WithTimeout(m.t.Context(), time.Minute)
	defer done()
	a, err := m.dispatcher.Review(ctx, podReview(stage, pod))
	if err != nil {
		m.t.Fatal(err)
	}
	return a
}

func podReview(stage admissionv1.Stage, pod string) *review.Request {
	return &review.Request{Stage: stage, Explain: true, Admission: &admissionv1.AdmissionRequest{
		Uid: "u", Cluster: "c", Operation: "CREATE", Namespace: "default",
		Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   &admissionv1.Object{Raw: []byte(pod)},
	}}
}

// counter is the value of a counter.
func (m *mesh) counter(name string) float64 {
	m.t.Helper()
	families, err := m.metrics.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	m.t.Fatalf("no metric %q", name)
	return 0
}

const (
	validate = admissionv1.Stage_STAGE_VALIDATE
	mutate   = admissionv1.Stage_STAGE_MUTATE
)

func allow(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }

func TestOneEncodingAReviewAndOneFrameAHost(t *testing.T) {
	const perHost = 3
	for _, hosts := range []int{1, 8, 32} {
		t.Run(fmt.Sprintf("%d hosts", hosts), func(t *testing.T) {
			var hooks []hook
			for i := range hosts * perHost {
				hooks = append(hooks, hook{name: fmt.Sprintf("h%d.test.dev", i)})
			}
			m := newMesh(t, hooks, nil)
			for i := range hosts {
				var served []hostsdk.Hook
				for _, x := range hooks[i*perHost : (i+1)*perHost] {
					served = append(served, hostsdk.Validate(x.name, allow))
				}
				m.host(fmt.Sprint(i), served...)
			}
			a := m.review(validate, `{"kind":"Pod"}`)
			if !a.Response.GetAllowed() || len(a.Outcomes) != hosts*perHost {
				t.Fatalf("got %v with %d outcomes", a.Response, len(a.Outcomes))
			}
			if n := m.counter("portcullis_review_encodings_total"); n != 1 {
				t.Errorf("%v encodings, want 1", n)
			}
			if n := m.counter("portcullis_host_review_frames_total"); n != float64(hosts) {
				t.Errorf("%v frames, want %d", n, hosts)
			}
		})
	}
}

func TestMutatingHooksSeeTheObjectAsTheOnesBeforeLeftIt(t *testing.T) {
	m := newMesh(t, nil, []hook{{name: "a.test.dev", needed: true}, {name: "b.test.dev"}})
	var saw sync.Map
	m.host("one",
		hostsdk.Mutate("a.test.dev", func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
			saw.Store(fmt.Sprintf("a%d", r.Round), string(r.RawObject()))
			if r.Round > 0 {
				return hostsdk.Allow(), nil
			}
			return hostsdk.Patch([]byte(`[{"op":"add","path":"/a","value":12345678901234567890}]`)), nil
		}),
		hostsdk.Mutate("b.test.dev", func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
			saw.Store("b", string(r.RawObject()))
			return hostsdk.Patch([]byte(`[{"op":"add","path":"/b","value":{"x":1.50}}]`)), nil
		}),
	)
	a := m.review(mutate, `{"kind":"Pod","unknown":1e3}`)
	if !a.Response.GetAllowed() {
		t.Fatal(a.Response)
	}
	want := `[{"op":"add","path":"/a","value":12345678901234567890},{"op":"add","path":"/b","value":{"x":1.50}}]`
	if got := string(a.Response.GetPatch()); got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
	for who, want := range map[string]string{
		"a0": `{"kind":"Pod","unknown":1e3}`,
		"b":  `{"kind":"Pod","unknown":1e3,"a":12345678901234567890}`,
		"a1": `{"kind":"Pod","unknown":1e3,"a":12345678901234567890,"b":{"x":1.50}}`,
	} {
		got, _ := saw.Load(who)
		if text, _ := got.(string); !sameMembers(t, text, want) {
			t.Errorf("%s saw %s, want %s", who, got, want)
		}
	}
}

// sameMembers compares objects whose members may come in another order; values have to be the same bytes.
func sameMembers(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return cmp.Equal(x, y)
}

func TestWhateverAHookDoesTheReviewHasAnAnswer(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler hostsdk.Handler
		code    int32 // with Fail
		message string
		timeout time.Duration // of the hook; 0 is the default, which a busy machine keeps too
	}{
		{"a denial reaches the client with the name of the hook", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Deny("not on Fridays").WithCode(422), nil
		}, 422, `hook "x.test.dev" denied the request: not on Fridays`, 0},
		{"a panic is a failure of its call", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			panic("boom")
		}, 500, "panicked", 0},
		{"an error is a failure, and its text stays in the host", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return nil, errors.New("password is hunter2")
		}, 500, "handler failed", 0},
		{"an authored error is a failure, and its text is for the operator", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return nil, hostsdk.NewError("no database", nil)
		}, 500, "handler failed", 0},
		{"a verdict with a patch is none for a validating hook", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Patch([]byte(`[{"op":"add","path":"/x","value":1}]`)), nil
		}, 500, "failed", 0},
		{"no verdict in time is a failure, and the handler is told", func(ctx context.Context, _ *hostsdk.Request) (*hostsdk.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 500, "verdict", time.Second}, // ours or the host's timer, whichever is first
	} {
		for _, ignore := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ignore=%t", test.name, ignore), func(t *testing.T) {
				m := newMesh(t, []hook{
					{name: "x.test.dev", ignore: ignore, time: test.timeout}, {name: "y.test.dev"},
				}, nil)
				m.host("one",
					hostsdk.Validate("x.test.dev", test.handler),
					hostsdk.Validate("y.test.dev", allow),
				)
				a := m.review(validate, `{}`)
				s := a.Response.GetStatus()
				switch {
				case ignore && test.code == 500:
					if !a.Response.GetAllowed() || len(a.Response.GetWarnings()) != 1 {
						t.Errorf("got %v, want allowed with a warning", a.Response)
					}
				case a.Response.GetAllowed() || s.GetCode() != test.code || !strings.Contains(s.GetMessage(), test.message):
					t.Errorf("got %v, want %d %q", a.Response, test.code, test.message)
				case test.code == 500 && !strings.Contains(s.GetMessage(), ` [host instance "one`):
					t.Errorf("the message does not name the instance: %s", s.GetMessage())
				}
				for _, internal := range []string{"hunter2", "no database"} {
					if strings.Contains(a.Response.String(), internal) {
						t.Errorf("the text of an internal error leaked: %v", a.Response)
					}
				}
			})
		}
	}
}

func TestAnEntryCallsTheHooksOfItsFailurePolicy(t *testing.T) {
	hooks := []hook{{name: "closed.test.dev"}, {name: "open.test.dev", ignore: true}}
	m := newMesh(t, hooks, nil)
	m.host("one",
		hostsdk.Validate("closed.test.dev", allow),
		hostsdk.Validate("open.test.dev", allow),
	)
	planned := match.NewEntry(match.EntryFailClosed, 10*time.Second, compile(t, hooks, nil).Hooks(), nil)
	for entry, want := range map[string]string{
		match.EntryFailClosed: "closed.test.dev open.test.dev ", match.EntryFailOpen: "closed.test.dev open.test.dev ",
		"": "closed.test.dev open.test.dev ", "of-my-own": "closed.test.dev open.test.dev ",
		planned.String(): "closed.test.dev ", match.EntryFailClosed + "/10.": "closed.test.dev open.test.dev ",
	} {
		r := podReview(validate, `{}`)
		r.Entry = match.ParseEntry(entry)
		a, err := m.dispatcher.Review(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		var called string
		for _, o := range a.Outcomes {
			if o.GetOutcome() == "allowed" {
				called += o.GetHook() + " "
			}
		}
		if called != want {
			t.Errorf("entry %q called %q, want %q", entry, called, want)
		}
	}
}

func TestOneTraceFromTheReviewIntoTheHost(t *testing.T) {
	m := newMesh(t, []hook{{name: "x.test.dev"}, {name: "y.test.dev"}}, nil)
	m.host("one",
		hostsdk.Validate("x.test.dev", allow),
		hostsdk.Validate("y.test.dev", allow),
	)
	m.review(validate, `{}`)
	byName := map[string][]trace.ReadOnlySpan{}
	for _, s := range m.spans.Ended() {
		byName[s.Name()] = append(byName[s.Name()], s)
	}
	root := byName["review validate"][0].SpanContext()
	calls := map[string]bool{}
	for _, s := range append(byName["call x.test.dev"], byName["call y.test.dev"]...) {
		if s.Parent().SpanID() != root.SpanID() {
			t.Errorf("the parent of a call is %v, want the review", s.Parent().SpanID())
		}
		calls[s.SpanContext().SpanID().String()] = true
	}
	handled := slices.Concat(byName["handle x.test.dev"], byName["handle y.test.dev"])
	if len(calls) != 2 || len(handled) != 2 {
		t.Fatalf("%d calls, %d handlers, want 2 and 2", len(calls), len(handled))
	}
	for _, s := range handled {
		if s.SpanContext().TraceID() != root.TraceID() || !calls[s.Parent().SpanID().String()] {
			t.Errorf("a handler's span has parent %v, want that of its call", s.Parent())
		}
		delete(calls, s.Parent().SpanID().String())
	}
}

func TestThousandsOfReviewsAtOnceAllHaveTheirAnswer(t *testing.T) {
	const long = 30 * time.Second // for all of them together, on a busy machine
	m := newMesh(t, []hook{{name: "x.test.dev", time: long}, {name: "y.test.dev", time: long}}, nil)
	ctx, done := context.WithTimeout(t.Context(), 2*long)
	defer done()
	var handled atomic.Int64
	count := func(ctx context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
		handled.Add(1)
		return allow(ctx, r)
	}
	for _, name := range []string{"one", "two"} {
		m.host(name,
			hostsdk.Validate("x.test.dev", count),
			hostsdk.Validate("y.test.dev", count),
		)
	}
	const reviews = 2000
	var answers sync.WaitGroup
	var allowed atomic.Int64
	for range reviews {
		answers.Go(func() {
			a, err := m.dispatcher.Review(ctx, podReview(validate, `{"kind":"Pod"}`))
			if err == nil && a.Response.GetAllowed() {
				allowed.Add(1)
			}
		})
	}
	answers.Wait()
	// A host that a busy machine keeps silent for too long is given up, and its calls go to the other host: they may be handled twice.
	retried := int64(m.counter("portcullis_host_retries_total"))
	if n := handled.Load(); allowed.Load() != reviews || n < 2*reviews || n > 2*reviews+retried {
		t.Errorf("%d allowed, %d handled, %d calls went to another host; want %d and %d", allowed.Load(), n, retried, reviews, 2*reviews)
	}
}
