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
	"time"

	"google.golang.org/protobuf/proto"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// historiesVariable says how many histories TestHistories plays, each with a seed of its own.
const historiesVariable = "PORTCULLIS_HISTORIES"

// TestHistories lets reviews, faulty hosts and changes of the configuration run against each other, in a bubble with its
// own time, and checks what has to hold whatever happens:
//
//   - every review has its answer before its deadline, and every call ends exactly once;
//   - what a hook answers is a pure function of review and hook (see decides), so that an allowed review is one that
//     every fail-closed hook of its revision has allowed, and a denial is one of the hook that is named;
//   - a handler with side effects is started at most once for a call;
//   - when the faults are over every call has its verdict, also those that have to wait for a slot;
//   - in the end no slot is taken, nothing waits, and no goroutine is left.
func TestHistories(t *testing.T) {
	histories := uint64(8)
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

// books is what was seen from outside.
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
		judge, err := dispatcher.New(dispatcher.Options{Snapshots: h, Clusters: h, Streams: counting{h}})
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
		elapse(time.Minute) // what the faults left behind is found out
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
	if n := h.calls.Load(); n != 0 {
		t.Errorf("all reviews are answered, and %d calls have no result", n)
	}
	sessions := h.registry.all()
	if len(sessions) != hostsInHistory {
		t.Errorf("%d sessions, want %d", len(sessions), hostsInHistory)
	}
	for _, s := range sessions {
		if s.load.Load() != 0 || len(s.state.calls) != 0 || s.state.pending() {
			t.Errorf("session of %s: %d slots taken, %d frames with open calls, something to write: %t",
				s.hello.GetInstance(), s.load.Load(), len(s.state.calls), s.state.pending())
		}
	}
}

// counting checks that calls end once.
type counting struct{ h *history }

func (c counting) Start(ctx context.Context, b *dispatcher.Batch, done func(int, review.Result)) func(int) {
	ended := make([]atomic.Bool, len(b.Calls))
	c.h.calls.Add(int64(len(ended)))
	return c.h.registry.Start(ctx, b, func(i int, r review.Result) {
		if ended[i].Swap(true) {
			c.h.t.Errorf("call of %q ended twice", b.Calls[i].Hook.ID.Name)
		}
		c.h.calls.Add(-1)
		done(i, r)
	})
}

// Fresh implements [dispatcher.Snapshots].
func (h *history) Fresh(context.Context) (*match.Snapshot, error) { return h.snapshot.Load(), nil }

// Cluster implements [dispatcher.Clusters]. No hook asks.
func (h *history) Cluster(string) match.Cluster { return match.Unknown{} }

// configure puts a random configuration into force. The names of hooks say what they are: "ignore" is fail-open, "effects"
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
	route := match.Route{Stream: true, Hosts: []string{"host"}, Timeout: time.Duration(1+r.IntN(20)) * 100 * time.Millisecond}
	if h.quiet.Load() {
		route.Timeout = 10 * time.Second
	}
	if r.IntN(3) > 0 {
		route.Hedge = match.Hedge{Enabled: true, After: time.Duration(1+r.IntN(200)) * time.Millisecond, Percent: 50}
	}
	snapshot, findings := match.Compile(match.Input{
		Revision: fmt.Sprint(revision),
		Objects:  []match.Object{{Validating: v}, {Mutating: m}},
		Routes:   []match.RouteBinding{{Configuration: "v", Route: route}, {Configuration: "m", Route: route}},
	})
	for _, f := range findings {
		if f.Severity == match.SeverityError {
			h.t.Error(f)
		}
	}
	h.books.Lock()
	h.books.hooks[snapshot.Revision()] = snapshot.Hooks()
	h.books.Unlock()
	h.registry.Update(snapshot)
	h.snapshot.Store(snapshot)
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

// decides is what a hook says to a review, wherever and how often it is asked.
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
			padding := strings.Repeat(" ", MaxWholeBytes)
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

// check compares an answer with what the hooks decide.
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
		if a.Response.GetAllowed() && hook.ID.Stage == r.Stage && !allowed[name] && !strings.Contains(name, "ignore") {
			h.t.Errorf("review %s is allowed, without a verdict of %s", uid, name)
		}
	}
}

// host is a program that serves hooks, badly, until the history is over.
func (h *history) host(number int) {
	r := h.rand(1000 + uint64(number))
	for i := 0; ; i++ {
		x := &actor{history: h, rand: r, credit: 1 + r.Uint32N(6)}
		x.host = h.dial("host", 1+r.IntN(8))
		x.serve(fmt.Sprintf("%d-%d", number, i/2)) // some come twice as the same instance
		<-x.ended
		select {
		case <-h.finished:
			return
		default:
			elapse(time.Duration(1+r.IntN(1500)) * time.Millisecond)
		}
	}
}

// actor is one session of a host. Its choices are made by one goroutine; handlers only wait and answer.
type actor struct {
	*host

	history  *history
	rand     *rand.Rand
	handlers sync.WaitGroup
	parting  sync.WaitGroup
	credit   uint32
	leaving  bool
	silent   bool
	last     uint64        // call that was started
	coming   *hostv1.Chunk // a large review, as far as it came
}

// serve answers until the session ends. After a number of frames something goes wrong.
func (x *actor) serve(instance string) {
	first := hello(instance)
	for _, name := range historyHooks {
		if x.history.quiet.Load() || x.rand.IntN(5) > 0 {
			stage := admissionv1.Stage_STAGE_VALIDATE
			if name[0] == 'm' {
				stage = admissionv1.Stage_STAGE_MUTATE
			}
			first.GetHello().Hooks = append(first.GetHello().GetHooks(), &hostv1.HookOffer{Name: name, Stage: stage})
		}
	}
	first.GetHello().MaxOutstanding = x.credit
	if x.rand.IntN(2) == 0 {
		first.GetHello().Capabilities = append(first.GetHello().Capabilities, capabilityChunks)
	}
	if x.rand.IntN(2) == 0 {
		first.GetHello().Capabilities = append(first.GetHello().Capabilities, capabilityBatches)
	}
	if x.rand.IntN(4) == 0 && !x.history.quiet.Load() {
		first.GetHello().Clusters = []string{"east"}
	}
	x.tell(first)
	over := x.history.calm
	if x.history.quiet.Load() {
		over = x.history.finished
	}
	trouble, fault := 1+x.rand.IntN(60), x.fault()
	for frames := 0; ; frames++ {
		if frames >= trouble && !x.leaving && !x.history.quiet.Load() {
			trouble = frames + 1 + x.rand.IntN(60)
			fault()
			fault = x.fault()
		}
		select {
		case f := <-x.out:
			if !x.silent {
				x.take(decode(x.t, f))
			}
		case <-x.ctx.Done():
			x.handlers.Wait()
			x.parting.Wait()
			return
		case <-over:
			x.cancel()
		}
	}
}

// fault is something that a host may do wrong.
func (x *actor) fault() func() {
	pause := time.Duration(1+x.rand.IntN(6000)) * time.Millisecond
	return []func(){
		x.cancel,                   // the stream breaks
		x.drain,                    // it leaves as it should
		func() { x.silent = true }, // it reads, and says nothing
		func() { elapse(pause) },   // it does not even read
		func() { x.setCredit(0) },  // it pauses, and goes on with another frame
		func() { x.setCredit(1) },
		func() { x.tell(&hostv1.ConnectRequest{}) },
		func() { x.tell(verdict(&hostv1.Review{CallId: x.last}, x.rand.Uint32N(3), &hostv1.Verdict{})) },
	}[x.rand.IntN(8)]
}

// setCredit changes the credit for a while.
func (x *actor) setCredit(n uint32) {
	credit := func(n uint32) *hostv1.ConnectRequest {
		return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{MaxOutstanding: n}}}
	}
	x.tell(credit(n))
	x.later(time.Duration(x.rand.IntN(2000))*time.Millisecond, func() { x.tell(credit(x.credit)) })
}

// drain leaves: what is started ends, nothing else is.
func (x *actor) drain() {
	x.leaving = true
	x.tell(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Drain{
		Drain: &hostv1.HostDrain{LastStartedCallId: x.last},
	}})
	x.parting.Go(func() {
		x.handlers.Wait()
		x.tell(nil)
	})
}

// take takes a frame of the dispatcher.
func (x *actor) take(f *hostv1.ConnectResponse) {
	if p := f.GetPing(); p != nil {
		x.tell(&hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Pong{Pong: &hostv1.Pong{Seq: p.GetSeq()}}})
	}
	for _, r := range f.GetReviews().GetReviews() {
		x.take(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Review{Review: r}})
	}
	r := f.GetReview()
	if c := f.GetChunk(); c != nil {
		r = x.assemble(c)
	}
	if c := f.GetCancel(); c != nil && x.coming != nil && x.coming.GetCallId() == c.GetCallId() {
		for i := range x.coming.GetHooks() {
			x.tell(verdict(&hostv1.Review{CallId: c.GetCallId()}, i, &hostv1.Verdict{
				Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}},
			}))
		}
		x.coming = nil
	}
	if r == nil {
		return
	}
	for i, c := range r.GetHooks() {
		if x.leaving {
			x.tell(verdict(r, uint32(i), &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}))
			continue
		}
		outcome := x.outcome(r, c)
		_, refused := outcome.GetOutcome().(*hostv1.Verdict_Refused)
		if !refused {
			x.last = max(x.last, r.GetCallId()) // a large one may be whole after a later one
			x.history.begin(fmt.Sprintf("%s/%s/%d", r.GetRequest().GetUid(), c.GetName(), c.GetRound()))
		}
		var takes time.Duration
		switch {
		case x.history.quiet.Load():
			takes = time.Duration(x.rand.IntN(3)) * time.Millisecond
		case !refused && x.rand.IntN(2) == 0:
			takes = time.Duration(x.rand.IntN(100)) * time.Millisecond * time.Duration(x.rand.IntN(20))
		}
		answer, twice := verdict(r, uint32(i), outcome), x.rand.IntN(30) == 0
		x.later(takes, func() {
			if twice {
				v := answer.GetVerdict()
				answer = &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdicts{
					Verdicts: &hostv1.Verdicts{Verdicts: []*hostv1.Verdict{v, v}},
				}}
			}
			x.tell(answer)
		})
	}
}

// assemble takes a chunk. It returns the review that it completes.
func (x *actor) assemble(c *hostv1.Chunk) *hostv1.Review {
	if x.coming == nil {
		x.coming = &hostv1.Chunk{CallId: c.GetCallId(), TotalBytes: c.GetTotalBytes(), Hooks: c.GetHooks()}
	}
	if x.coming.GetCallId() != c.GetCallId() {
		x.t.Errorf("a chunk of %d while %d is not whole", c.GetCallId(), x.coming.GetCallId())
	}
	x.coming.Data = append(x.coming.Data, c.GetData()...)
	if uint64(len(x.coming.GetData())) < c.GetTotalBytes() {
		return nil
	}
	r := new(hostv1.Review)
	if err := proto.Unmarshal(x.coming.GetData(), r); err != nil || len(r.GetHooks()) != int(c.GetHooks()) {
		x.t.Errorf("%d hooks, said to be %d: %v", len(r.GetHooks()), c.GetHooks(), err)
	}
	x.coming = nil
	return r
}

// outcome is how a call ends.
func (x *actor) outcome(r *hostv1.Review, c *hostv1.HookCall) *hostv1.Verdict {
	n := x.rand.IntN(30)
	if x.history.quiet.Load() {
		n = -1
	}
	switch n {
	case 0:
		return &hostv1.Verdict{}
	case 1:
		return &hostv1.Verdict{Outcome: &hostv1.Verdict_Error{Error: &hostv1.HandlerError{Panicked: true}}}
	case 2, 3, 4:
		return &hostv1.Verdict{Outcome: &hostv1.Verdict_Refused{Refused: &hostv1.Refused{}}}
	case 5:
		return &hostv1.Verdict{Outcome: &hostv1.Verdict_Cancelled{Cancelled: &hostv1.Cancelled{}}}
	}
	return &hostv1.Verdict{Outcome: &hostv1.Verdict_Response{Response: decides(r.GetRequest().GetUid(), c.GetName())}}
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

// later does something after a while, unless the session ends first.
func (x *actor) later(after time.Duration, do func()) {
	x.handlers.Go(func() {
		if after == 0 { // timers of a bubble that are due at once crash the race detector (go1.26)
			do()
			return
		}
		select {
		case <-time.After(after):
			do()
		case <-x.ctx.Done():
		}
	})
}

// tell sends a frame, unless the session has ended.
func (x *actor) tell(f *hostv1.ConnectRequest) {
	select {
	case x.in <- f:
	case <-x.ctx.Done():
	}
}
