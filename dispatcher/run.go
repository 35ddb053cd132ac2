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

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// flight is a call that was started.
type flight struct {
	hook   *match.Hook
	cancel func(i int)
	index  int // in its batch
	begun  time.Time
	span   trace.Span
	landed bool
	ended  time.Time // once it has landed
}

// run is one review in progress: the shell around a machine. It belongs to the goroutine of the review; others may only put
// results into its inbox.
type run struct {
	dispatcher *Dispatcher
	request    *review.Request
	snapshot   *match.Snapshot
	hooks      []*match.Hook // the candidates
	machine    chain.Machine
	upsets     *upsets // of hooks that mutate
	inbox      *inbox
	taken      []delivery // from the inbox, the last time
	subject    *subject
	asking     *bounded // for what is asked of the cluster
	flights    []flight // by call id; ids of hooks that were skipped have none
	skipped    []match.Skipped

	views    *view // of revision, the latest first
	revision uint32
}

// view is the request as the hooks of one version see it.
type view struct {
	next    *view
	of      *chain.View // nil is the version in which it came
	message *admissionv1.AdmissionRequest
	body    conversion.Body // empty until a stream needs it
}

// judge answers the review, unless its caller is gone. A reinvocation is answered at once when nobody has changed the
// object since the hooks put it out.
func (x *run) judge(ctx context.Context, gone <-chan struct{}) (review.Answer, error) {
	defer x.asking.release()
	reinvocable := slices.ContainsFunc(x.hooks, func(h *match.Hook) bool {
		return h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy
	})
	if !reinvocable || x.request.Stage == admissionv1.Stage_STAGE_VALIDATE {
		return x.loop(ctx, gone)
	}
	known := x.dispatcher.outputs
	if x.request.Stage == admissionv1.Stage_STAGE_REINVOKE && known.recall(x.output(x.request.Admission.GetObject().GetRaw()), time.Now()) {
		return x.unchanged(), nil
	}
	answer, err := x.loop(ctx, gone)
	if err == nil && answer.Response.GetAllowed() {
		known.remember(x.output(answer.Object), time.Now())
	}
	return answer, err
}

// output is the digest of an object that the hooks put out.
func (x *run) output(object []byte) output {
	return outputOf(x.snapshot.Revision(), x.request.Admission, object)
}

// unchanged is the answer to a reinvocation that has nothing to ask.
func (x *run) unchanged() review.Answer {
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
			x.skipped = append(x.skipped, match.Skipped{Hook: h, Reason: "nobody has changed the object since it was called"})
		}
		x.explain(&answer)
	}
	return answer
}

// loop drives the machine until it has an answer, which it has when its time is over. All results that have come are looked
// at before the time is: a verdict counts however late it is read.
func (x *run) loop(ctx context.Context, gone <-chan struct{}) (review.Answer, error) {
	defer x.inbox.close()
	defer x.report(ctx)
	defer x.cancelAll()
	for over := error(nil); ; {
		start, cancel := x.machine.Next(time.Now())
		for _, c := range cancel {
			x.stop(c.ID)
		}
		if over == nil {
			x.start(ctx, start)
		}
		if answer, ok := x.machine.Answer(); ok { // with calls in shadow, there may be some to start all the same
			if err := x.unjudged(answer); err != nil {
				return review.Answer{}, err
			}
			x.explain(&answer)
			return answer, nil
		}
		if over != nil {
			return review.Answer{}, over
		}
		x.inbox.wakeIn(time.Until(x.machine.Wake()))
		select {
		case <-x.inbox.wake:
		case <-gone:
			over = context.Cause(ctx)
		}
		x.taken = x.inbox.take(x.taken)
		for _, d := range x.taken {
			x.land(d.id, d.at)
			x.machine.Deliver(d.id, d.result)
		}
	}
}

// unjudged is why an answer is none: there was no memory to match its hooks, and trying again may help. An entry that fails open
// would let the request pass: to it a refusal is the answer, if a hook has become fail-closed since the entry was made.
func (x *run) unjudged(answer review.Answer) error {
	full := x.subject.cluster.full
	if full == nil || !answer.Failed || answer.Response.GetStatus().GetReason() != string(metav1.StatusReasonTooManyRequests) {
		return nil
	}
	refuses := func(h *match.Hook) bool { return h.Decides() && h.FailsClosed() }
	if match.ParseEntry(x.request.Entry).Name == match.EntryFailOpen && slices.ContainsFunc(x.hooks, refuses) {
		return nil
	}
	return fmt.Errorf("%w: %w", review.ErrNoMemory, full)
}

// start hands calls to their backends, those in shadow last: they keep nobody waiting.
func (x *run) start(ctx context.Context, calls []chain.Call) {
	deciding, beside := split(calls, func(c chain.Call) bool { return c.Mode == review.Shadow })
	x.hand(ctx, deciding, x.startOn)
	x.hand(ctx, beside, x.overshadow)
}

// hand hands calls of one backend that see the same version to start, together.
func (x *run) hand(ctx context.Context, calls []chain.Call, start func(context.Context, *view, []chain.Call, bool)) {
	for len(calls) > 0 {
		v, stream := x.view(calls[0]), calls[0].Hook.Route.Stream
		together, others := split(calls, func(c chain.Call) bool { return c.Hook.Route.Stream != stream || x.view(c) != v })
		start(ctx, v, together, stream)
		calls = others
	}
}

// split parts calls in two, in their order. Without any that are apart it costs nothing.
func split(calls []chain.Call, apart func(chain.Call) bool) (together, others []chain.Call) {
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

// startOn hands calls that see the same to one backend.
func (x *run) startOn(ctx context.Context, v *view, calls []chain.Call, stream bool) {
	backend := x.dispatcher.webhooks
	if stream {
		backend = x.dispatcher.streams
		x.encode(v)
	}
	batch := &Batch{Request: v.message, Body: v.body, Lease: x.request.Lease, Calls: make([]Call, len(calls))}
	ids, begun, of := make([]int, len(calls)), time.Now(), trace.SpanFromContext(ctx)
	for i, c := range calls {
		span := x.dispatcher.seeing.beginCall(ctx, of, c)
		batch.Calls[i] = Call{Hook: c.Hook, Round: c.Round, Mode: c.Mode, Deadline: c.Deadline, Span: span.SpanContext()}
		ids[i] = c.ID
		x.flight(c.ID, flight{hook: c.Hook, index: i, begun: begun, span: span})
	}
	x.inbox.expect(len(calls))
	cancel := backend.Start(ctx, batch, func(i int, r review.Result) { x.inbox.put(ids[i], x.book(r)) })
	for _, id := range ids {
		x.flights[id].cancel = cancel
	}
}

// view is the request as a hook sees it: made once for all hooks that see the same object in the same version.
func (x *run) view(c chain.Call) *view {
	if x.revision != c.Object.Revision {
		x.views, x.revision = nil, c.Object.Revision
	}
	for v := x.views; v != nil; v = v.next {
		if v.of == c.View {
			return v
		}
	}
	x.views = &view{next: x.views, of: c.View, message: message(x.request.Admission, c.Object, c.View)}
	if c.View != nil {
		x.request.Lease.Charge(int64(len(c.View.Object) + len(c.View.OldObject)))
	}
	return x.views
}

// encode makes the body of a view for streams, once.
func (x *run) encode(v *view) {
	if v.body.Len() == 0 {
		v.body = conversion.EncodeBody(v.message)
		x.dispatcher.seeing.encoded(v.body.Len())
	}
}

// flight keeps a call by its id.
func (x *run) flight(id int, f flight) {
	for len(x.flights) <= id {
		x.flights = append(x.flights, flight{landed: true})
	}
	x.flights[id] = f
}

// land takes note of when a call ended, once. What came of it is known when the review is over.
func (x *run) land(id int, at time.Time) {
	if f := &x.flights[id]; !f.landed {
		f.landed, f.ended = true, at
	}
}

// stop ends a call whose result is no longer wanted.
func (x *run) stop(id int) {
	if f := &x.flights[id]; !f.landed {
		f.cancel(f.index)
		x.land(id, time.Now())
	}
}

// cancelAll ends the calls that nobody waits for any more.
func (x *run) cancelAll() {
	for id := range x.flights {
		x.stop(id)
	}
}

// explain adds the hooks that were no candidates to the outcomes.
func (x *run) explain(a *review.Answer) {
	for _, s := range x.skipped {
		a.Outcomes = append(a.Outcomes, &admissionv1.HookOutcome{
			Configuration: s.Hook.ID.Configuration, Hook: s.Hook.ID.Name, Outcome: "skipped", Reason: s.Reason,
		})
	}
}
