package session

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// historiesVariable says how many histories TestHistories plays, each with a seed of its own.
const historiesVariable = "PORTCULLIS_HISTORIES"

// TestHistories lets reviews, faulty hosts and changes of the configuration run against each other, in a bubble with its
// own time, and checks these invariants:
//
//   - every review has its answer before its deadline, and every call ends exactly once;
//   - the answer of a hook is a pure function of review and hook (see decides), so that every fail-closed hook of its revision
//     has allowed an allowed review, and the named hook has denied a denied review;
//   - a handler with side effects is started at most once for a call;
//   - clusters hold as many slots as calls have. Where several clusters may call, none holds more than
//     three quarters of the slots of a session whose credit stays the same;
//   - when the faults are over every call has its verdict, also those that have to wait for a slot;
//   - in the end no slot is taken, nothing waits, and no goroutine is left.
func TestHistories(t *testing.T) {
	histories := uint64(citest.Rounds(8, 8, 40))
	if text := os.Getenv(historiesVariable); text != "" {
		var err error
		if histories, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", historiesVariable, err)
		}
	}
	for seed := range histories {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { playHistory(t, seed) })
	}
}

// The sizes of a history.
const (
	reviewers          = 16
	reviewsPerReviewer = 30
	hostsInHistory     = 5
	revisions          = 40
)

// history is one run. Everything in it may be used by all its goroutines.
type history struct {
	*mesh

	seed     uint64
	snapshot atomic.Pointer[match.Snapshot]
	books    books
	quiet    atomic.Bool   // faults are over: hosts answer everything, soon
	calm     chan struct{} // closed then
	finished chan struct{} // closed when hosts shall leave
	calls    atomic.Int64  // calls without a result
}

// books are the calls and verdicts as hosts and callers see them.
type books struct {
	sync.Mutex

	hooks   map[string][]*match.Hook // by revision
	started map[string]int           // handlers, by call
}

func playHistory(t *testing.T, seed uint64) {
	t.Helper()
	inBubble(t, nil, func(t *testing.T, m *mesh) {
		t.Helper()
		h := &history{mesh: m, seed: seed, calm: make(chan struct{}), finished: make(chan struct{})}
		h.books.hooks, h.books.started = map[string][]*match.Hook{}, map[string]int{}
		h.configure(0, h.rand(0))
		judge, err := dispatcher.New(dispatcher.Options{Snapshots: h, Clusters: h, Streams: counting{h}, Capacity: h.router})
		if err != nil {
			t.Fatal(err)
		}
		var hosts, others sync.WaitGroup
		for i := range hostsInHistory {
			hosts.Go(func() { h.host(i) })
		}
		others.Go(h.reconfigure)
		for i := range reviewers {
			others.Go(func() { h.reviews(judge, i) })
		}
		others.Wait()
		h.quiet.Store(true)
		close(h.calm)
		elapse(time.Minute) // long enough to find the traces of faults
		h.configure(revisions+1, h.rand(2))
		for i := range reviewers {
			others.Go(func() { h.reviews(judge, reviewers+i) })
		}
		others.Wait()
		h.settled(t)
		close(h.finished)
		hosts.Wait()
	})
}

// rand is the source of one actor's choices.
func (h *history) rand(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(h.seed, actor)) }

// settled checks that nothing is left over.
func (h *history) settled(t *testing.T) {
	t.Helper()
	elapse(time.Second) // cancelled calls keep their slots until their hosts have answered
	synctest.Wait()     // a Ping that is due at this very moment has been written
	if n := h.calls.Load(); n != 0 {
		t.Errorf("all reviews are answered, and %d calls have no result", n)
	}
	sessions := h.router.all()
	if len(sessions) != hostsInHistory {
		t.Errorf("%d sessions, want %d", len(sessions), hostsInHistory)
	}
	for _, s := range sessions {
		if f := s.Figures(); s.UsedSlots() != 0 || f.Used != 0 || f.Queued {
			t.Errorf("session of %s: %d slots taken, %d of open calls, something to write: %t", s.Instance(), s.UsedSlots(), f.Used, f.Queued)
		}
	}
}

// audit checks the slots of a session that clusters hold.
func (h *history) audit(s *hostSession) {
	f, held := s.Figures(), 0
	for cluster, n := range f.Held {
		held += n
		if n != f.Open[cluster] {
			h.t.Errorf("cluster %q holds %d slots, and its calls have %d", cluster, n, f.Open[cluster])
		}
		if most := max(1, 3*f.Credit/4); h.quiet.Load() && f.Shared && n > most {
			h.t.Errorf("cluster %q holds %d of %d slots", cluster, n, f.Credit)
		}
	}
	if held != f.Used {
		h.t.Errorf("all clusters hold %d slots, and %d are taken", held, f.Used)
	}
}

// counting checks that calls end once.
type counting struct{ h *history }

func (c counting) Start(ctx context.Context, b *review.CallSet, done func(int, review.Result)) func(int) {
	ended := make([]atomic.Bool, len(b.Calls))
	c.h.calls.Add(int64(len(ended)))
	for _, s := range c.h.router.all() {
		c.h.audit(s)
	}
	return c.h.router.Start(ctx, b, func(i int, r review.Result) {
		if ended[i].Swap(true) {
			c.h.t.Errorf("call of %q ended twice", b.Calls[i].Hook.ID.Name)
		}
		c.h.calls.Add(-1)
		done(i, r)
	})
}

// Fresh implements [dispatcher.Snapshots].
func (h *history) Acquire(context.Context, string, int64) (*match.Snapshot, string, error) {
	return h.snapshot.Load(), "", nil
}

// Release implements [dispatcher.Snapshots].
func (*history) Release(*match.Snapshot) {}

// Cluster implements [dispatcher.Clusters]. No hook asks.
func (h *history) Cluster(string) match.Cluster { return match.Unknown{} }

// configure puts a random configuration into force. The name of a hook is its kind: "ignore" is fail-open, "effects"
// has side effects.
func (h *history) configure(revision int, r *rand.Rand) {
	v := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	m := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	for _, name := range historyHooks {
		if r.IntN(10) == 0 && !h.quiet.Load() {
			continue
		}
		w := historyHook(name)
		if name[0] == 'm' {
			m.Webhooks = append(m.Webhooks, w)
			continue
		}
		v.Webhooks = append(v.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: w.Name, Rules: w.Rules, FailurePolicy: w.FailurePolicy, SideEffects: w.SideEffects,
		})
	}
	snapshot, findings := match.Compile(match.Input{
		Revision: fmt.Sprint(revision),
		Objects:  []match.Object{{Validating: v}, {Mutating: m}},
		Routes:   h.routes(r),
	})
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			h.t.Error(f)
		}
	}
	h.books.Lock()
	h.books.hooks[snapshot.Revision()] = snapshot.Hooks()
	h.books.Unlock()
	h.router.UpdateClusters([]string{"east", "west"}[:1+r.IntN(2)])
	h.router.Update(snapshot)
	h.snapshot.Store(snapshot)
}

// routes are how the hooks are called: some in shadow, some hedged, the mutating ones ahead of their turn.
func (h *history) routes(r *rand.Rand) []match.RouteBinding {
	timeout := time.Duration(1+r.IntN(20)) * 100 * time.Millisecond
	if h.quiet.Load() {
		timeout = 10 * time.Second
	}
	all, ahead, hedged := r.IntN(2) == 0, r.IntN(3) > 0, r.IntN(3) > 0
	out := make([]match.RouteBinding, 0, len(historyHooks))
	for _, name := range historyHooks {
		route := match.Route{
			Stream: true, Hosts: []string{"host"}, Timeout: timeout,
			Shadow: r.IntN(8) == 0, AllDenials: all && name[0] == 'v', Speculate: ahead && name[0] == 'm',
		}
		if hedged {
			route.Hedge = match.Hedge{Enabled: true, After: time.Duration(r.IntN(200)) * time.Millisecond, Percent: 50}
		}
		out = append(out, match.RouteBinding{Configuration: name[:1], Hook: name, Route: route})
	}
	return out
}

var historyHooks = []string{
	"v1.fail.none", "v2.fail.effects", "v3.ignore.none", "v4.ignore.effects", "m1.fail.none", "m2.fail.effects", "m3.ignore.none",
}

func historyHook(name string) admissionregistrationv1.MutatingWebhook {
	policy, effects := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	again := admissionregistrationv1.IfNeededReinvocationPolicy
	if strings.Contains(name, "ignore") {
		policy = admissionregistrationv1.Ignore
	}
	if strings.Contains(name, "effects") {
		effects = admissionregistrationv1.SideEffectClassSome
	}
	return admissionregistrationv1.MutatingWebhook{
		Name: name, FailurePolicy: &policy, SideEffects: &effects, ReinvocationPolicy: &again,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
			},
		}},
	}
}

func (h *history) reconfigure() {
	r := h.rand(1)
	for i := range revisions {
		elapse(time.Duration(1+r.IntN(500)) * time.Millisecond)
		h.configure(1+i, r)
	}
}

// decides is the verdict of a hook on a review, wherever and how often it is asked.
func decides(uid, hook string) *admissionv1.AdmissionResponse {
	sum := fnv.New32()
	_, _ = sum.Write([]byte(uid + hook))
	v := &admissionv1.AdmissionResponse{Allowed: sum.Sum32()%8 != 0}
	if v.GetAllowed() && hook[0] == 'm' && sum.Sum32()%3 == 0 {
		v.PatchType, v.Patch = "JSONPatch", fmt.Appendf(nil, `[{"op":"add","path":"/%s","value":1}]`, hook)
	}
	return v
}

// reviews is somebody who sends reviews, one after the other.
func (h *history) reviews(d *dispatcher.Dispatcher, number int) {
	r := h.rand(100 + uint64(number))
	for i := range reviewsPerReviewer {
		if !h.quiet.Load() {
			elapse(time.Duration(1+r.IntN(50)*r.IntN(10)) * time.Millisecond)
		}
		stage := admissionv1.Stage_STAGE_VALIDATE
		if r.IntN(3) == 0 {
			stage = admissionv1.Stage_STAGE_MUTATE
		}
		timeout := time.Duration(50+r.IntN(4000)) * time.Millisecond
		if h.quiet.Load() {
			timeout = 10 * time.Second
		}
		ctx, cancel := context.WithTimeout(h.t.Context(), timeout)
		if r.IntN(8) == 0 && !h.quiet.Load() {
			time.AfterFunc(time.Duration(r.Int64N(int64(timeout)/4)), cancel)
		}
		request := &review.Request{Stage: stage, Explain: true, Admission: &admissionv1.AdmissionRequest{
			Uid: fmt.Sprintf("%d-%d", number, i), Cluster: []string{"east", "west"}[r.IntN(2)], Operation: "CREATE",
			Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:   &admissionv1.Object{Raw: []byte(`{"kind":"Pod"}`)},
		}}
		if r.IntN(8) == 0 {
			padding := strings.Repeat(" ", stream.MaxWholeBytes)
			request.Admission.Object.Raw = []byte(`{"kind":"Pod"` + padding + `}`)
		}
		answer, err := d.Review(ctx, request)
		if err != nil && ctx.Err() != context.Canceled {
			h.t.Errorf("review %s: %v", request.Admission.GetUid(), err)
		}
		if deadline, _ := ctx.Deadline(); time.Now().After(deadline) {
			h.t.Errorf("review %s was answered %s late", request.Admission.GetUid(), time.Since(deadline))
		}
		cancel()
		if err == nil {
			h.check(request, answer)
		}
	}
}

// check compares an answer with the verdicts of the hooks.
func (h *history) check(r *review.Request, a review.Answer) {
	uid, allowed, refused := r.Admission.GetUid(), map[string]bool{}, false
	for _, o := range a.Outcomes {
		if h.quiet.Load() && strings.HasPrefix(o.GetOutcome(), "failed") {
			h.t.Errorf("review %s: %s failed without reason: %s", uid, o.GetHook(), o.GetReason())
		}
		verdict, open := decides(uid, o.GetHook()).GetAllowed(), strings.Contains(o.GetHook(), "ignore")
		switch o.GetOutcome() {
		case "allowed", "patched":
			allowed[o.GetHook()] = true
			if !verdict {
				h.t.Errorf("review %s: %s is said to have allowed", uid, o.GetHook())
			}
		case "denied":
			refused = true
			if verdict {
				h.t.Errorf("review %s: %s is said to have denied", uid, o.GetHook())
			}
		case "failed":
			refused = true
			if open {
				h.t.Errorf("review %s: %s failed closed", uid, o.GetHook())
			}
		case "failed-open":
			if !open {
				h.t.Errorf("review %s: %s failed open", uid, o.GetHook())
			}
		}
	}
	if a.Response.GetAllowed() == refused {
		h.t.Errorf("review %s: allowed is %t with outcomes %v", uid, a.Response.GetAllowed(), a.Outcomes)
	}
	h.books.Lock()
	defer h.books.Unlock()
	for _, hook := range h.books.hooks[a.Revision] {
		name := hook.ID.Name
		decides := hook.ID.Stage == r.Stage && !strings.Contains(name, "ignore") && !hook.Route.Shadow
		if a.Response.GetAllowed() && decides && !allowed[name] {
			h.t.Errorf("review %s is allowed, without a verdict of %s", uid, name)
		}
	}
}

// begin writes down that a handler was started.
func (h *history) begin(call string) {
	h.books.Lock()
	defer h.books.Unlock()
	h.books.started[call]++
	if n := h.books.started[call]; n > 1 && strings.Contains(call, "effects") {
		h.t.Errorf("the handler of %s was started %d times", call, n)
	}
}
