package replay_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency/replay"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/inprocess"
)

const (
	mutate   = admissionv1.Stage_STAGE_MUTATE
	validate = admissionv1.Stage_STAGE_VALIDATE
	ms       = time.Millisecond
	calm     = 200 // reviews in which hooks do nothing
)

// hook is a hook of a world.
type hook struct {
	name      string
	validates bool
	ignore    bool // failurePolicy
	again     bool // reinvocationPolicy IfNeeded
	speculate bool
	denials   bool // all of them are wanted
	// initializes makes it an initializer, and parallel lets it act at the same time as others.
	initializes, parallel bool
	timeout               time.Duration
}

// act is a handler's work for one review.
type act struct {
	took   time.Duration
	patch  bool // in its first call
	denies bool
	fails  bool
}

// world is a real dispatcher with hooks that always do the same with the same review.
type world struct {
	hooks []hook
	acts  func(hook, uid string) act
	opens bool // no failure refuses a review

	mu    sync.Mutex
	calls map[string]int
}

// handler is the handler of a hook.
func (w *world) handler(name string) inprocess.Handler {
	return func(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if r.GetUid() == "calm" {
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		}
		a := w.acts(name, r.GetUid())
		w.mu.Lock()
		w.calls[name+r.GetUid()]++
		n := w.calls[name+r.GetUid()]
		w.mu.Unlock()
		<-time.After(a.took)
		out := &admissionv1.AdmissionResponse{Allowed: !a.denies}
		switch {
		case a.fails:
			return nil, errors.New("no database")
		case a.patch && n == 1:
			out.PatchType, out.Patch = "JSONPatch", fmt.Appendf(nil, `[{"op":"add","path":"/metadata/labels/%s","value":"x"}]`, name)
		}
		return out, nil
	}
}

func (w *world) snapshot(t *testing.T) *match.Snapshot {
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	i := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "i"}}
	in := match.Input{Revision: "r1", Objects: []match.Object{{Mutating: i, Initializes: true}, {Mutating: m}, {Validating: v}}}
	none := admissionregistrationv1.SideEffectClassNone
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	for _, h := range w.hooks {
		policy, again := admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy
		if h.ignore {
			policy = admissionregistrationv1.Ignore
		}
		if h.again {
			again = admissionregistrationv1.IfNeededReinvocationPolicy
		}
		mutating := admissionregistrationv1.MutatingWebhook{
			Name: h.name, Rules: rules, FailurePolicy: &policy, SideEffects: &none, ReinvocationPolicy: &again,
		}
		configuration := "c"
		switch {
		case h.validates:
			v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: h.name, Rules: rules, FailurePolicy: &policy, SideEffects: &none})
		case h.initializes:
			i.Webhooks, configuration = append(i.Webhooks, mutating), "i"
		default:
			m.Webhooks = append(m.Webhooks, mutating)
		}
		in.Routes = append(in.Routes, match.RouteBinding{Configuration: configuration, Hook: h.name, Route: match.Route{
			Stream: true, Hosts: []string{"host"}, Speculate: h.speculate, Timeout: h.timeout, Immediate: true, AllDenials: h.denials, Parallel: h.parallel,
		}})
	}
	if w.opens {
		in.Bypasses = map[string]*match.Bypass{"prod": {FailOpen: rules}}
	}
	s, findings := match.Compile(in)
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			t.Fatal(f)
		}
	}
	return s
}

// static is a configuration that does not change.
type static struct {
	match.Unknown

	snapshot *match.Snapshot
}

func (s static) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return s.snapshot, "", nil
}

func (static) Release(*match.Snapshot) {}

func (s static) Cluster(string) match.Cluster { return s }

func (static) Spare(*match.Hook, review.Mode, string) bool { return true }

// unstaged asks hosts without staging the object: that takes time of its own, and needs an etcd.
type unstaged struct{}

func (unstaged) Stage(*review.Request) (dispatcher.Hold, error) { return unstaged{}, nil }

func (unstaged) Release(context.Context) {}

func (unstaged) Start(
	_ context.Context, calls []review.Call, _ []byte, _ []string, ask dispatcher.Ask, done func(int, review.Result),
) (cancel func(int)) {
	var cancels []func()
	for i := range calls {
		cancels = append(cancels, ask(i, func(r review.Result) { done(i, r) }))
	}
	return func(i int) { cancels[i]() }
}

// judge has reviews judged, one a minute so that all are kept, and returns the input of Predict. It is called in a bubble.
func (w *world) judge(t *testing.T, stage admissionv1.Stage, n int) replay.Input {
	w.calls = map[string]int{}
	snapshot, recorder := w.snapshot(t), latency.NewRecorder(0)
	backend := inprocess.NewFunc(func(h *match.Hook) inprocess.Handler { return w.handler(h.ID.Name) })
	d, err := dispatcher.New(dispatcher.Options{
		Snapshots: static{snapshot: snapshot}, Clusters: static{snapshot: snapshot}, Capacity: static{}, Streams: backend, Stager: unstaged{},
		Options: observe.Options{
			Latencies: recorder,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range calm { // until hooks are called before their turn
		r := podReview(stage, "calm")
		r.Admission.Cluster = "calm"
		if _, err := d.Review(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if _, err := d.Review(ctx, podReview(stage, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-time.After(time.Minute)
	}
	backend.Wait()
	return inputOf(snapshot.Hooks(), recorder)
}

func inputOf(hooks []*match.Hook, recorder *latency.Recorder) replay.Input {
	in := replay.Input{
		Hooks: hooks, Reviews: map[string][]*latency.ReviewRecord{"d": recorder.Reviews(latency.Query{Cluster: "prod"}, math.MaxInt-1)},
		Counts: map[replay.Group]replay.Counts{},
	}
	for _, s := range recorder.Series(latency.Query{Cluster: "prod"}) {
		if s.Hook.Name == "" {
			c := in.Counts[replay.Group{Cluster: s.Cluster, Stage: s.Hook.Stage}]
			c.Took.Merge(s.Took[:])
			c.Failed += uint64(s.Failed)
			in.Counts[replay.Group{Cluster: s.Cluster, Stage: s.Hook.Stage}] = c
		}
	}
	return in
}

func podReview(stage admissionv1.Stage, uid string) *review.Request {
	return &review.Request{Stage: stage, Admission: &admissionv1.AdmissionRequest{
		Uid: uid, Cluster: "prod", Operation: "CREATE", Namespace: "default",
		Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   &admissionv1.Object{Raw: []byte(`{"metadata":{"labels":{}}}`)},
	}}
}

// random returns a source that depends on words alone.
func random(words ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, words...)
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

// randomWorld has hooks of one stage that do anything.
func randomWorld(seed uint64, validates bool) *world {
	r := random(seed, validates)
	w := &world{opens: r.IntN(5) == 0}
	speculates := r.IntN(2) == 0
	initializers := 0
	if r.IntN(2) == 0 && !validates {
		initializers = r.IntN(4)
	}
	for i := range 1 + r.IntN(5) {
		w.hooks = append(w.hooks, hook{
			name: fmt.Sprintf("h%d.example.com", i), validates: validates, ignore: r.IntN(2) == 0, again: r.IntN(2) == 0,
			speculate: speculates, denials: validates && r.IntN(3) == 0, timeout: time.Duration(20+r.IntN(200)) * ms,
			initializes: i < initializers, parallel: i < initializers && r.IntN(3) > 0,
		})
	}
	patches, denies, fails := r.Float64()*.5, r.Float64()*.2, r.Float64()*.2
	if speculates {
		patches, denies = patches/20, denies/20
	}
	w.acts = func(hook, uid string) act {
		r := random(seed, hook, uid)
		return act{
			took:  time.Duration(1+r.ExpFloat64()*40*float64(time.Millisecond)) / 7 * 7,
			patch: !validates && r.Float64() < patches, denies: r.Float64() < denies, fails: r.Float64() < fails,
		}
	}
	return w
}

func (w *world) stage() admissionv1.Stage {
	if w.hooks[0].validates {
		return validate
	}
	return mutate
}
