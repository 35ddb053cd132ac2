package observe

import (
	"context"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// maxReason is the most bytes of a reason in a latency record.
const maxReason = 256

// records reports whether latency records are of use.
func (x *Observer) records() bool { return x.options.Latencies != nil || x.options.Slow > 0 }

// recordReview keeps the latency record of a review, and returns its annotation if it was slow.
func (x *Observer) recordReview(ctx context.Context, r *FinishedReview) (slow string) {
	if !x.records() {
		return ""
	}
	v := &r.record
	calls := v.Calls
	*v = latencyOf(r)
	v.Calls, v.Held, v.Due, v.FailsOpen = calls, r.Held, r.Due.Sub(r.Begun), r.FailsOpen
	for i := range r.Hooks {
		if c := &r.Hooks[i]; c.made() && c.Mode != review.Shadow {
			v.Calls = append(v.Calls, latencyOfCall(c, r.Begun))
		}
	}
	if r.Answer.Response != nil {
		v.Outcome = string(r.Answer.Outcome())
	}
	v.AttributeWaiting()
	slow = x.noteSlow(ctx, v)
	if l := x.options.Latencies; l != nil {
		l.Add(r.Ended, v)
	}
	return slow
}

// recordRefused keeps the record of a review for which there was no configuration.
func (x *Observer) recordRefused(ctx context.Context, r *FinishedReview) {
	if !x.records() {
		return
	}
	v := latencyOf(r)
	v.Held = v.Took
	x.noteSlow(ctx, &v)
	if x.options.Latencies != nil {
		x.options.Latencies.Add(r.Ended, &v)
	}
}

// latencyOf is the record of a review without calls.
func latencyOf(r *FinishedReview) latency.ReviewRecord {
	a := r.Request.Admission
	v := latency.ReviewRecord{
		UID: a.GetUid(), TraceID: r.Span.SpanContext().TraceID(), Cluster: a.GetCluster(), Stage: r.Request.Stage,
		Operation: a.GetOperation(), Group: a.GetResource().GetGroup(), Resource: a.GetResource().GetResource(),
		Namespace: a.GetNamespace(), Name: objectName(a), Outcome: latency.OutcomeRefused, Begun: r.Begun, Took: r.Ended.Sub(r.Begun),
	}
	if v.Size = len(a.GetObject().GetRaw()); v.Size == 0 {
		v.Size = len(a.GetOldObject().GetRaw())
	}
	if received := r.Request.Received; !received.IsZero() && r.Begun.After(received) {
		v.Edge = r.Begun.Sub(received)
	}
	return v
}

// latencyOfCall is the record of a call that was made in a review that begun then.
func latencyOfCall(c *FinishedHook, begun time.Time) latency.CallRecord {
	call := latency.CallRecord{
		Hook: c.Hook.ID, Round: c.Round, Begun: c.Begun.Sub(begun), Ended: c.Ended.Sub(begun), Applied: c.Applying,
		Queued: c.Timing.Queued, Wire: c.Timing.Wire, Host: c.Timing.Host, HostQueued: c.Timing.HostQueued, Instance: c.Timing.Instance,
		Streamed: c.Hook.HasHosts(), Outcome: c.Effect.String(),
	}
	if c.Failure != nil {
		call.Failure = c.Failure.Kind.String()
	}
	switch {
	case c.Effect == chain.Undecided:
		call.Outcome = latency.OutcomeCancelled
	case c.Failure != nil || c.Effect == chain.Refused || c.Effect == chain.Skipped:
		call.Reason = Cut(c.Reason, maxReason)
	case c.Effect == chain.Denied:
		call.Reason = c.False
	}
	return call
}
