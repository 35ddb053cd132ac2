package dispatcher

import (
	"context"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// callsPerHook bounds how often one review calls one hook: once, and once more in a reinvocation.
const callsPerHook = 2

// delivery is the result of a call on its way to the machine.
type delivery struct {
	id     int
	result review.Result
}

// flight is a call that was started.
type flight struct {
	hook   *match.Hook
	cancel func(i int)
	index  int // in its batch
	begun  time.Time
	span   trace.Span
	landed bool
}

// run is one review in progress: the shell around a machine. It belongs to the goroutine of the review; only results may
// be sent to from others.
type run struct {
	dispatcher *Dispatcher
	request    *review.Request
	machine    chain.Machine
	results    chan delivery
	flights    []flight // by call id; ids of hooks that were skipped have none
	skipped    []match.Skipped

	message  *admissionv1.AdmissionRequest // of revision, for backends
	body     conversion.Body
	revision uint32
}

// loop drives the machine until it has an answer. All results that have come are looked at before the time is: a verdict
// counts however late it is read.
func (x *run) loop(ctx context.Context) (review.Answer, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer x.cancelAll()
	for over := error(nil); ; {
		start, cancel := x.machine.Next(time.Now())
		for _, c := range cancel {
			x.stop(c.ID, c.Kind)
		}
		if answer, ok := x.machine.Answer(); ok {
			x.explain(&answer)
			return answer, nil
		}
		if over != nil {
			return review.Answer{}, over
		}
		x.start(ctx, start)
		timer.Reset(time.Until(x.machine.Wake()))
		select {
		case d := <-x.results:
			x.deliver(d)
		case <-timer.C:
		case <-ctx.Done():
			over = context.Cause(ctx)
		}
		for len(x.results) > 0 {
			x.deliver(<-x.results)
		}
	}
}

// deliver hands the machine a result.
func (x *run) deliver(d delivery) {
	x.land(d.id, d.result)
	x.machine.Deliver(d.id, d.result)
}

// start hands calls to their backends: those of one backend as one batch.
func (x *run) start(ctx context.Context, calls []chain.Call) {
	if len(calls) == 0 {
		return
	}
	x.encode(calls[0].Object)
	var streams, webhooks []chain.Call
	for _, c := range calls {
		if c.Hook.Route.Stream {
			streams = append(streams, c)
		} else {
			webhooks = append(webhooks, c)
		}
	}
	x.startOn(ctx, x.dispatcher.streams, streams)
	x.startOn(ctx, x.dispatcher.webhooks, webhooks)
}

// startOn hands calls to one backend.
func (x *run) startOn(ctx context.Context, backend Backend, calls []chain.Call) {
	if len(calls) == 0 {
		return
	}
	batch := &Batch{Request: x.message, Body: x.body, Calls: make([]Call, len(calls))}
	ids := make([]int, len(calls))
	for i, c := range calls {
		span := x.dispatcher.seeing.beginCall(ctx, c)
		batch.Calls[i] = Call{Hook: c.Hook, Round: c.Round, Deadline: c.Deadline, Span: span.SpanContext()}
		ids[i] = c.ID
		x.flight(c.ID, flight{hook: c.Hook, index: i, begun: time.Now(), span: span})
	}
	cancel := backend.Start(ctx, batch, func(i int, r review.Result) { x.results <- delivery{ids[i], r} })
	for _, id := range ids {
		x.flights[id].cancel = cancel
	}
}

// encode makes the body of the object that the calls see, unless it is that of the calls before.
func (x *run) encode(o chain.Object) {
	if x.message != nil && x.revision == o.Revision {
		return
	}
	x.message, x.revision = x.request.Admission, o.Revision
	if o.Revision > 0 {
		x.message = withObject(x.request.Admission, o)
	}
	x.body = conversion.EncodeBody(x.message)
	x.dispatcher.seeing.encoded(x.body.Len())
}

// flight keeps a call by its id.
func (x *run) flight(id int, f flight) {
	for len(x.flights) <= id {
		x.flights = append(x.flights, flight{landed: true})
	}
	x.flights[id] = f
}

// land ends a call for the eyes of operators, once.
func (x *run) land(id int, r review.Result) {
	f := &x.flights[id]
	if !f.landed {
		f.landed = true
		x.dispatcher.seeing.endCall(f, x.request, r)
	}
}

// stop ends a call whose result is no longer wanted.
func (x *run) stop(id int, why review.FailureKind) {
	if f := &x.flights[id]; !f.landed {
		f.cancel(f.index)
		x.land(id, review.Fail(why, "no longer waited for"))
	}
}

// cancelAll ends the calls that nobody waits for any more.
func (x *run) cancelAll() {
	for id := range x.flights {
		x.stop(id, review.FailureCancelled)
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

// withObject is a request with another object. The parts that stay are shared.
func withObject(r *admissionv1.AdmissionRequest, o chain.Object) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: r.GetUid(), Cluster: r.GetCluster(),
		Kind: r.GetKind(), Resource: r.GetResource(), SubResource: r.GetSubResource(),
		RequestKind: r.GetRequestKind(), RequestResource: r.GetRequestResource(),
		RequestSubResource: r.GetRequestSubResource(),
		Name:               r.GetName(), Namespace: r.GetNamespace(), Operation: r.GetOperation(),
		UserInfo: r.GetUserInfo(), OldObject: r.GetOldObject(), Options: r.GetOptions(), DryRun: r.DryRun,
		Object:         &admissionv1.Object{ContentType: r.GetObject().GetContentType(), Raw: o.Raw},
		ObjectRevision: o.Revision,
		Projection:     r.GetProjection(),
	}
}
