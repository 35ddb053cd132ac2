package dispatcher

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// maxReason is the most bytes of a failure in a latency record.
const maxReason = 256

// records are latency records to be used again: most are counted and not kept.
type records struct{ pool sync.Pool }

// kept reports whether a record is of use.
func (*records) kept(o *Options) bool { return o.Latencies != nil || o.Slow > 0 }

// record is the latency record of one review. The zero value records nothing.
type record struct{ *latency.Review }

// beginRecord begins the record of a review whose outcomes are reported.
func (x *run) beginRecord() record {
	d := x.dispatcher
	if !d.records.kept(&d.options) {
		return record{}
	}
	v, _ := d.records.pool.Get().(*latency.Review)
	if v == nil {
		v = &latency.Review{}
	}
	calls := v.Calls[:0]
	*v = latencyOf(x.span, x.request, x.begun)
	v.Calls, v.Held, v.Due = calls, x.held, x.lookups.deadline.Sub(x.begun)
	v.FailsOpen = x.reviewContext.attributes.FailsOpen()
	return record{v}
}

// latencyOf is the record of a review without calls.
func latencyOf(span trace.Span, r *review.Request, begun time.Time) latency.Review {
	a := r.Admission
	v := latency.Review{
		UID: a.GetUid(), TraceID: span.SpanContext().TraceID(), Cluster: a.GetCluster(), Stage: r.Stage,
		Operation: a.GetOperation(), Group: a.GetResource().GetGroup(), Resource: a.GetResource().GetResource(),
		Namespace: a.GetNamespace(), Name: objectName(a), Outcome: latency.OutcomeRefused, Begun: begun,
	}
	if v.Size = len(a.GetObject().GetRaw()); v.Size == 0 {
		v.Size = len(a.GetOldObject().GetRaw())
	}
	if !r.Received.IsZero() && begun.After(r.Received) {
		v.Edge = begun.Sub(r.Received)
	}
	return v
}

// addCall adds a call that was made.
func (r *record) addCall(o chain.Outcome, c *callState) {
	if r.Review == nil || o.Mode == review.Shadow {
		return
	}
	call := latency.Call{
		Hook: o.Hook.ID, Round: o.Round, Begun: c.begun.Sub(r.Begun), Ended: c.ended.Sub(r.Begun), Applied: o.Applying,
		Queued: o.Timing.Queued, Wire: o.Timing.Wire, Host: o.Timing.Host, HostQueued: o.Timing.HostQueued, Instance: o.Timing.Instance,
		Streamed: o.Hook.HasHosts(), Outcome: o.Effect.String(),
	}
	if o.Failure != nil {
		call.Failure = o.Failure.Kind.String()
	}
	switch {
	case o.Effect == chain.Undecided:
		call.Outcome = latency.OutcomeCancelled
	case o.Failure != nil || o.Effect == chain.Refused:
		call.Reason = cut(o.Reason, maxReason)
	}
	r.Calls = append(r.Calls, call)
}

// end records the review, which ended then.
func (r *record) end(ctx context.Context, x *run, ended time.Time) {
	if r.Review == nil {
		return
	}
	r.Took = ended.Sub(r.Begun)
	var annotations map[string]string
	if a, ok := x.machine.Answer(); ok {
		r.Outcome, annotations = string(a.Outcome()), a.Response.AuditAnnotations
	}
	r.AttributeWaiting()
	x.dispatcher.noteSlow(ctx, r.Review, annotations)
	if l := x.dispatcher.options.Latencies; l != nil {
		l.Add(ended, r.Review)
	}
	clear(r.Calls) // they hold strings of hooks and hosts
	x.dispatcher.records.pool.Put(r.Review)
}

// recordRefused records a review for which there was no configuration.
func (d *Dispatcher) recordRefused(ctx context.Context, span trace.Span, r *review.Request, begun time.Time) {
	if !d.records.kept(&d.options) {
		return
	}
	now := time.Now()
	v := latencyOf(span, r, begun)
	v.Took = now.Sub(begun)
	v.Held = v.Took
	d.noteSlow(ctx, &v, nil)
	if d.options.Latencies != nil {
		d.options.Latencies.Add(now, &v)
	}
}
