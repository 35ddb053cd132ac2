package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/observe"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/wire"
)

// callState is the state of a call. The zero value stands for a call that was not started.
type callState struct {
	cancel func(i int)
	index  int // in its call set
	begun  time.Time
	ended  time.Time // zero while the call is outstanding
	span   trace.Span
}

func (c *callState) started() bool { return c.span != nil }

func (c *callState) outstanding() bool { return c.started() && c.ended.IsZero() }

// run is one review in progress: it drives a [chain.Machine], starts its calls on the backends and delivers their results.
// It belongs to the goroutine of the review. Other goroutines may only call results.addResult and accountVerdict.
type run struct {
	dispatcher    *Dispatcher
	request       *review.Request
	snapshot      *match.Snapshot
	span          trace.Span    // of the review
	begun         time.Time     // of the review, or of this stage of it
	held          time.Duration // of that, for a fresh configuration
	hooks         []*match.Hook // the candidates
	machine       chain.Machine
	changeRates   *changeRates // nil for validating hooks
	results       resultQueue
	taken         []callResult // the last slice that takeResults returned
	reviewContext reviewContext
	lookups       bounded     // bounds look-ups in the cluster
	calls         []callState // by call id
	skipped       []match.Skipped
	awaited       []*awaitedShadow
	hold          Hold // of the object while initializers act; nil before the first is called

	versions *versionedRequest // of the object at revision, the newest first
	revision uint32
}

// versionedRequest is the request with its objects in one version, shared by all hooks that take that version.
type versionedRequest struct {
	next    *versionedRequest
	view    *chain.View // nil: the version of the request
	message *admissionv1.AdmissionRequest
	body    wire.Body // empty until encode
}

// judge returns the answer to the review; an error if the caller has gone or there was no memory to match the hooks.
func (x *run) judge(ctx context.Context, gone <-chan struct{}) (review.Answer, error) {
	defer x.lookups.release()
	defer x.endHold(ctx)
	answer, err := x.decide(ctx, gone)
	if err == nil && x.request.AwaitShadows {
		x.awaitShadows(gone, answer.Outcomes)
	}
	return answer, err
}

// decide returns the answer without the outcomes of hooks in shadow. A reinvocation by the API server is answered at once if the reinvocation cache
// has its object.
func (x *run) decide(ctx context.Context, gone <-chan struct{}) (review.Answer, error) {
	reinvocable := slices.ContainsFunc(x.hooks, func(h *match.Hook) bool {
		return h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy
	})
	if !reinvocable || x.request.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return x.runMachine(ctx, gone)
	}
	cache := x.dispatcher.reinvocations
	if x.request.Stage == admissionv1.Stage_STAGE_REINVOKE && cache.isOutput(x.digestOf(x.request.Admission.GetObject().GetRaw()), time.Now()) {
		return x.unchangedAnswer(), nil
	}
	answer, err := x.runMachine(ctx, gone)
	if err == nil && answer.Response.GetAllowed() {
		cache.addOutput(x.digestOf(answer.Object), time.Now())
	}
	return answer, err
}

func (x *run) digestOf(object []byte) outputDigest {
	return digestOutput(x.snapshot.Revision(), x.request.Admission, object)
}

// unchangedAnswer allows a reinvocation without a call of any hook.
func (x *run) unchangedAnswer() review.Answer {
	answer := review.Answer{
		Response: &admissionv1.AdmissionResponse{
			Uid: x.request.Admission.GetUid(), Allowed: true,
			AuditAnnotations: map[string]string{chain.AuditRevision: x.snapshot.Revision()},
		},
		Object:   x.request.Admission.GetObject().GetRaw(),
		Revision: x.snapshot.Revision(),
	}
	if x.request.Explain {
		for _, h := range x.hooks {
			x.skipped = append(x.skipped, match.Skipped{Hook: h, Reason: "the object has not changed since it was called"})
		}
		x.addSkipped(&answer)
	}
	return answer
}

// runMachine drives the machine until it has an answer, which it has at its deadline at the latest. Results are delivered
// before the machine looks at the time, so a verdict that came in time counts even if it is read late.
func (x *run) runMachine(ctx context.Context, gone <-chan struct{}) (review.Answer, error) {
	defer x.results.stopTimer()
	defer x.report(ctx)
	defer x.cancelOutstanding()
	for over := error(nil); ; {
		start, cancel := x.machine.Next(time.Now())
		if len(start) > 0 || len(x.calls) == 0 {
			x.phases().End(observe.PhaseMatched)
		}
		for _, id := range cancel {
			x.cancelCall(id)
		}
		if over == nil {
			x.startCalls(ctx, start)
		}
		if answer, ok := x.machine.Answer(); ok { // shadow calls of this step were started above
			if err := x.noMemory(answer); err != nil {
				return review.Answer{}, err
			}
			x.addSkipped(&answer)
			return answer, nil
		}
		if over != nil {
			return review.Answer{}, over
		}
		x.results.wakeAfter(time.Until(x.machine.Wake()))
		select {
		case <-x.results.wakeups:
		case <-gone:
			over = context.Cause(ctx)
		}
		x.taken = x.results.takeResults(x.taken)
		for _, d := range x.taken {
			x.completeCall(d.id, d.at)
			x.machine.Deliver(d.id, d.result)
		}
	}
}

// noMemory returns an error instead of an answer that failed since there was no memory to match its hooks: the caller may
// try again. An entry with failurePolicy Ignore would let the request pass on an error. It gets the refusal if a candidate is
// fail-closed for the request, as it may have become since the entry was generated.
func (x *run) noMemory(answer review.Answer) error {
	full := x.reviewContext.cluster.memoryErr
	if full == nil || !answer.Failed || answer.Response.GetStatus().GetReason() != string(metav1.StatusReasonTooManyRequests) {
		return nil
	}
	refuses := func(h *match.Hook) bool { return h.Decides() && h.FailsClosed() }
	if x.request.Entry.IgnoresFailures() && !x.reviewContext.attributes.FailsOpen() && slices.ContainsFunc(x.hooks, refuses) {
		return nil
	}
	return fmt.Errorf("%w: %w", review.ErrNoMemory, full)
}

// startCalls starts calls on their backends, shadow calls last.
func (x *run) startCalls(ctx context.Context, calls []chain.Start) {
	deciding, shadows := split(calls, func(c chain.Start) bool { return c.Mode == review.Shadow })
	x.startTogether(ctx, deciding, x.startOnBackend)
	x.startTogether(ctx, shadows, x.startShadows)
}

// startTogether groups calls by backend and version, and passes each group to start.
func (x *run) startTogether(ctx context.Context, calls []chain.Start, start func(context.Context, *versionedRequest, []chain.Start)) {
	for len(calls) > 0 {
		v, first := x.versionFor(calls[0]), calls[0].Hook
		together, others := split(calls, func(c chain.Start) bool {
			return c.Hook.Route.Stream != first.Route.Stream || c.Hook.Initializes() != first.Initializes() ||
				(c.Hook.Policy == nil) != (first.Policy == nil) || x.versionFor(c) != v
		})
		start(ctx, v, together)
		calls = others
	}
}

// split separates the calls for which apart is true from the others, in order. It allocates only if there are any.
func split(calls []chain.Start, apart func(chain.Start) bool) (together, others []chain.Start) {
	if !slices.ContainsFunc(calls, apart) {
		return calls, nil
	}
	for _, c := range calls {
		if apart(c) {
			others = append(others, c)
		} else {
			together = append(together, c)
		}
	}
	return together, others
}

// startOnBackend starts calls that take the same version on one backend, in one call set.
func (x *run) startOnBackend(ctx context.Context, v *versionedRequest, calls []chain.Start) {
	if calls[0].Hook.Route.Stream {
		x.encode(v)
	}
	set := &review.CallSet{Request: v.message, Body: v.body, Reservation: x.request.Reservation, Calls: make([]review.Call, len(calls))}
	begun := time.Now()
	for i, c := range calls {
		span := x.dispatcher.observer.BeginCall(ctx, x.span, x.request, c.Call)
		set.Calls[i] = c.Call
		set.Calls[i].Span = span.SpanContext()
		x.addCall(c.ID, callState{index: i, begun: begun, span: span})
	}
	x.results.addCalls(len(calls))
	backend := x.dispatcher.backendOf(calls[0].Hook)
	switch first := calls[0].Hook; {
	case first.Initializes():
		backend = initializers{x}
	case first.Policy != nil:
		backend = policies{&x.reviewContext, v.view}
	}
	cancel := backend.Start(ctx, set, func(i int, r review.Result) { x.results.addResult(set.Calls[i].ID, x.accountVerdict(r)) })
	for _, c := range calls {
		x.calls[c.ID].cancel = cancel
	}
}

// versionFor returns the request as the hook of a call sees it. Requests are made once for each object and version.
func (x *run) versionFor(c chain.Start) *versionedRequest {
	if x.revision != c.Object.Revision {
		x.versions, x.revision = nil, c.Object.Revision
	}
	for v := x.versions; v != nil; v = v.next {
		if v.view == c.View {
			return v
		}
	}
	x.versions = &versionedRequest{next: x.versions, view: c.View, message: message(x.request.Admission, c.Object, c.View)}
	if c.View != nil {
		x.request.Reservation.Charge(int64(len(c.View.Object) + len(c.View.OldObject)))
	}
	return x.versions
}

func (x *run) phases() observe.Phases { return x.reviewContext.cluster.phases }

func (x *run) encode(v *versionedRequest) {
	if v.body.Len() == 0 {
		v.body = wire.EncodeBody(v.message, x.span.SpanContext())
		x.dispatcher.observer.Encoded(v.body.Len())
		x.phases().End(observe.PhaseEncoded)
	}
}

func (x *run) addCall(id int, c callState) {
	for len(x.calls) <= id {
		x.calls = append(x.calls, callState{})
	}
	x.calls[id] = c
}

// completeCall records when a call ended, unless it was recorded before. Its outcome is reported by [run.report].
func (x *run) completeCall(id int, at time.Time) {
	if c := &x.calls[id]; c.outstanding() {
		c.ended = at
	}
}

func (x *run) cancelCall(id int) {
	if c := &x.calls[id]; c.outstanding() {
		c.cancel(c.index)
		c.ended = time.Now()
	}
}

// spent cancels a call whose time is over, and returns where that went, as its backend says.
func (x *run) spent(id int) review.Timing {
	if id < 0 || id >= len(x.calls) || !x.calls[id].outstanding() {
		return review.Timing{}
	}
	x.cancelCall(id)
	return x.results.timingOf(id)
}

func (x *run) cancelOutstanding() {
	for id := range x.calls {
		x.cancelCall(id)
	}
}

// report hands the review to the observer once it is over, and learns the change rates of its hooks.
func (x *run) report(ctx context.Context) {
	answer, judged := x.machine.Answer()
	r := x.dispatcher.observer.NewFinishedReview()
	r.Request, r.Span, r.Snapshot, r.Answer = x.request, x.span, x.snapshot, answer
	r.Begun, r.Held, r.Due, r.FailsOpen = x.begun, x.held, x.lookups.deadline, x.reviewContext.attributes.FailsOpen()
	for o := range x.machine.Outcomes().All {
		c := observe.FinishedHook{Outcome: o}
		if o.ID < len(x.calls) {
			made := &x.calls[o.ID]
			c.Begun, c.Ended, c.Recorded = made.begun, made.ended, made.span
		}
		r.Hooks = append(r.Hooks, c)
		x.changeRates.learnOutcome(o)
	}
	r.Ended = time.Now()
	if slow := x.dispatcher.observer.Add(ctx, r); slow != "" && judged {
		answer.Response.AuditAnnotations[observe.AuditSlow+match.StageName(x.request.Stage)] = slow
	}
}

// addSkipped adds the hooks that were not candidates to the outcomes of an answer.
func (x *run) addSkipped(a *review.Answer) {
	for _, s := range x.skipped {
		a.Outcomes = append(a.Outcomes, skippedOutcome(s.Hook, s.Reason))
	}
}

func skippedOutcome(h *match.Hook, reason string) *admissionv1.HookOutcome {
	return &admissionv1.HookOutcome{
		Configuration: h.ID.Configuration, Hook: h.ID.Name, Outcome: chain.Skipped.String(), Reason: reason, Stage: chain.OwnStage(h),
	}
}
