package dispatcher_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

// idle is a capacity that says yes.
type idle struct{}

func (idle) Spare(*match.Hook, review.Mode, string) bool { return true }

// recorder is a backend that remembers the batches that it was given.
type recorder struct {
	review.Backend

	mu      sync.Mutex
	batches [][]review.Call
}

func (r *recorder) Start(ctx context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	r.mu.Lock()
	r.batches = append(r.batches, b.Calls)
	r.mu.Unlock()
	return r.Backend.Start(ctx, b, done)
}

// take returns the calls since the last take: the hooks of each batch, with "+" for calls ahead of their turn.
func (r *recorder) take() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all [][]string
	for _, calls := range r.batches {
		var names []string
		for _, c := range calls {
			name := c.Hook.ID.Name
			if c.Mode == review.Speculative {
				name += "+"
			}
			names = append(names, name)
		}
		all = append(all, names)
	}
	r.batches = nil
	return all
}

// chainOf is a dispatcher with mutating hooks that may be asked ahead of their turn.
func chainOf(t *testing.T, handle inprocess.Handler, names ...string) (*dispatcher.Dispatcher, *recorder, *prometheus.Registry) {
	t.Helper()
	in := match.Input{Revision: "r1"}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{}
	m.Name = "m"
	for _, name := range names {
		m.Webhooks = append(m.Webhooks, hook{name: name}.mutating())
	}
	in.Objects = []match.Object{{Mutating: m}}
	in.Routes = []match.RouteBinding{{Configuration: "m", Route: match.Route{Stream: true, Hosts: []string{"host"}, Speculate: true}}}
	snapshot, _ := match.Compile(in)
	backend := inprocess.NewFunc(func(h *match.Hook) inprocess.Handler {
		return func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return handle(context.WithValue(ctx, nameKey{}, h.ID.Name), r)
		}
	})
	t.Cleanup(backend.Wait)
	calls, metrics := &recorder{Backend: backend}, prometheus.NewRegistry()
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Streams: calls, Capacity: idle{},
		Options: observe.Options{
			Metrics: metrics,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, calls, metrics
}

// nameKey is where the context of a handler has the name of its hook.
type nameKey struct{}

// trusted is after how many reviews that nobody changes eight hooks are asked ahead of each other.
const trusted = 200

// judge makes a review and says how long it took.
func judge(t *testing.T, d *dispatcher.Dispatcher, object string) (*admissionv1.AdmissionResponse, time.Duration) {
	t.Helper()
	begun := time.Now()
	a, err := d.Review(t.Context(), podReview(mutate, object))
	if err != nil {
		t.Fatal(err)
	}
	return a.Response, time.Since(begun)
}

// TestHooksThatRarelyChangeAnythingTakeTheTimeOfOne has four hooks of 5 ms: in series at first, and at the same time once
// they have shown that they change nothing.
func TestHooksThatRarelyChangeAnythingTakeTheTimeOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, calls, metrics := chainOf(t, func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			<-time.After(5 * time.Millisecond)
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}, "a.test.dev", "b.test.dev", "c.test.dev", "d.test.dev")
		if _, took := judge(t, d, `{}`); took != 20*time.Millisecond {
			t.Errorf("hooks of which nothing is known take %s", took)
		}
		for range trusted {
			judge(t, d, `{}`)
		}
		calls.take()
		if r, took := judge(t, d, `{}`); took != 5*time.Millisecond || !r.GetAllowed() {
			t.Errorf("they take %s, answer %v", took, r)
		}
		if got, want := calls.take(), [][]string{{"a.test.dev"}, {"b.test.dev+", "c.test.dev+", "d.test.dev+"}}; !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("calls %v, want %v", got, want)
		}
		if n := sum(t, metrics, "portcullis_hook_failures_total"); n != 0 {
			t.Errorf("%v failures", n)
		}
		if n := outcomes(t, metrics)["counted"]; n < 3 {
			t.Errorf("%v counted", n)
		}
	})
}

// outcomes counts the calls ahead of their turns, by their outcome.
func outcomes(t *testing.T, metrics *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "portcullis_hook_speculation_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			at := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "outcome" })
			all[m.GetLabel()[at].GetValue()] += m.GetCounter().GetValue()
		}
	}
	return all
}

// TestAChangeDiscardsWhatWasAskedBehindIt has the first hook change one object after many. The hooks behind it are called again with the changed
// object, and their earlier handlers are cancelled.
func TestAChangeDiscardsWhatWasAskedBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var stopped []string
		d, calls, metrics := chainOf(t, func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			name, _ := ctx.Value(nameKey{}).(string)
			raw := string(r.GetObject().GetRaw())
			switch {
			case name == "a.test.dev" && raw == `{"odd":1}`:
				<-time.After(time.Millisecond) // the others are asked by then
				return &admissionv1.AdmissionResponse{Allowed: true, PatchType: "JSONPatch", Patch: []byte(`[{"op":"remove","path":"/odd"}]`)}, nil
			case raw == `{"odd":1}`:
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				stopped = append(stopped, name)
				return nil, ctx.Err()
			}
			return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{name}}, nil
		}, "a.test.dev", "b.test.dev", "c.test.dev")
		for range trusted {
			judge(t, d, `{}`)
		}
		calls.take()
		r, took := judge(t, d, `{"odd":1}`)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(stopped)
		if took != time.Millisecond || !r.GetAllowed() || !slices.Equal(r.GetWarnings(), []string{"b.test.dev", "c.test.dev"}) {
			t.Errorf("after %s: %v", took, r)
		}
		if want := []string{"b.test.dev", "c.test.dev"}; !slices.Equal(stopped, want) || outcomes(t, metrics)["discarded"] != 2 {
			t.Errorf("stopped %v, speculation %v", stopped, outcomes(t, metrics))
		}
		if got, want := calls.take(), [][]string{{"a.test.dev"}, {"b.test.dev+", "c.test.dev+"}, {"b.test.dev"}}; !slices.EqualFunc(got[:3], want, slices.Equal) {
			t.Errorf("calls %v, want %v", got, want)
		}
		if n := sum(t, metrics, "portcullis_hook_failures_total"); n != 0 {
			t.Errorf("what was discarded is counted as %v failures", n)
		}
	})
}

// TestAFailureAheadOfTheTurnIsAskedAgain has a host that fails calls ahead of their turn.
func TestAFailureAheadOfTheTurnIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := false
		var asked map[string]int
		var mu sync.Mutex
		d, _, metrics := chainOf(t, func(ctx context.Context, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			name, _ := ctx.Value(nameKey{}).(string)
			mu.Lock()
			asked[name]++
			fails := failing && name != "a.test.dev" && asked[name] == 1
			mu.Unlock()
			if fails {
				return nil, context.Canceled
			}
			<-time.After(time.Millisecond)
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}, "a.test.dev", "b.test.dev")
		for i := range trusted {
			asked, failing = map[string]int{}, i == trusted-1
			if r, _ := judge(t, d, `{}`); !r.GetAllowed() {
				t.Fatalf("answer %v", r)
			}
		}
		if asked["b.test.dev"] != 2 || outcomes(t, metrics)["failed"] != 1 || sum(t, metrics, "portcullis_hook_failures_total") != 0 {
			t.Errorf("asked %v, speculation %v", asked, outcomes(t, metrics))
		}
	})
}

// TestAReviewThatIsGivenUpEndsWhatWasAskedAhead has nobody answer.
func TestAReviewThatIsGivenUpEndsWhatWasAskedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := false
		d, calls, metrics := chainOf(t, func(ctx context.Context, _ *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			if hang {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}, "a.test.dev", "b.test.dev", "c.test.dev")
		for range trusted {
			judge(t, d, `{}`)
		}
		calls.take()
		hang = true
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if a, err := d.Review(ctx, podReview(mutate, `{}`)); err == nil {
			t.Errorf("got %v", a.Response)
		}
		if n := outcomes(t, metrics)["discarded"]; len(calls.take()) != 2 || n != 2 {
			t.Errorf("%v discarded", n)
		}
	})
}
