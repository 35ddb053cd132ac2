package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// record counts, records and logs the outcome of the hook, and passes it to a review that waits.
func (s *shadowCall) record(ctx context.Context, outcome shadow.Outcome, o chain.Outcome) {
	call := shadow.Call{Outcome: outcome, Message: o.Reason, Reference: shadow.Reference{Instance: o.Timing.Instance}}
	if outcome != shadow.Dropped && !s.ended.IsZero() {
		call.Took = s.duration()
	}
	s.dispatcher.recordShadow(ctx, s.request, s.Hook, call)
	s.awaited.set(string(outcome), o)
	if outcome == shadow.Dropped && s.ended.IsZero() {
		return
	}
	s.dispatcher.options.Logger.LogAttrs(ctx, slog.LevelDebug, "hook in shadow",
		slog.String("uid", s.request.Admission.GetUid()),
		slog.String("cluster", s.request.Admission.GetCluster()),
		slog.String("configuration", s.Hook.ID.Configuration),
		slog.String("hook", s.Hook.ID.Name),
		slog.String("outcome", string(outcome)),
		slog.String("reason", o.Reason),
		slog.String("instance", o.Timing.Instance))
}

// recordShadow counts a call of a hook in shadow and completes its record.
func (d *Dispatcher) recordShadow(ctx context.Context, r *review.Request, h *match.Hook, c shadow.Call) {
	d.metrics.countShadow(h, string(c.Outcome))
	if d.options.Shadows == nil {
		return
	}
	a := r.Admission
	c.Cluster, c.Hook = a.GetCluster(), h.ID
	c.Subject = shadow.Subject{Namespace: a.GetNamespace(), User: a.GetUserInfo().GetUsername()}
	v := &c.Reference
	v.UID, v.TraceID = a.GetUid(), trace.SpanContextFromContext(ctx).TraceID()
	v.Operation, v.Group, v.Resource, v.Subresource = a.GetOperation(), a.GetResource().GetGroup(), a.GetResource().GetResource(), a.GetSubResource()
	if c.Outcome != shadow.Allowed && c.Outcome != shadow.Dropped {
		v.Name = objectName(a)
	}
	d.options.Shadows.Add(time.Now(), &c)
}

// shadowUnanswered is the outcome of a hook in shadow that has not answered while its review waited.
const shadowUnanswered = "unanswered"

// awaitedShadow is the result of a shadow call for which its review waits. A nil one is not waited for.
type awaitedShadow struct {
	id      int           // of the call
	ended   chan struct{} // closed after the fields below were written
	outcome string
	chain.Outcome
}

func (a *awaitedShadow) set(outcome string, o chain.Outcome) {
	if a != nil {
		a.outcome, a.Outcome = outcome, o
	}
}

func (a *awaitedShadow) end() {
	if a != nil {
		close(a.ended)
	}
}

// await returns the result to come of a shadow call; nil if the caller does not wait for it.
func (x *run) await(id int) *awaitedShadow {
	if !x.request.AwaitShadows {
		return nil
	}
	a := &awaitedShadow{id: id, ended: make(chan struct{}), outcome: string(shadow.Failed)} // which stays after a panic
	x.awaited = append(x.awaited, a)
	return a
}

// awaitShadows waits for the shadow calls of an explained review until its time is over, and adds their results to its outcomes.
func (x *run) awaitShadows(gone <-chan struct{}, outcomes []*admissionv1.HookOutcome) {
	results := make(map[int]*awaitedShadow, len(x.awaited))
	for _, a := range x.awaited {
		select {
		case <-a.ended:
			results[a.id] = a
		case <-x.lookups.Done():
		case <-gone:
		}
	}
	i := 0
	for o := range x.machine.Outcomes().All { // the outcomes of the answer come first, in the same order
		if i == len(outcomes) {
			return
		}
		if o.Effect == chain.Shadowed {
			results[o.ID].explain(outcomes[i])
		}
		i++
	}
}

// explain adds the result of a call to the outcome of its hook. It is nil if there is none.
func (a *awaitedShadow) explain(o *admissionv1.HookOutcome) {
	switch {
	case a == nil && o.GetReason() != "": // the call could not be made
		o.Shadow = string(shadow.Failed)
	case a == nil:
		o.Shadow = shadowUnanswered
	default:
		o.Shadow, o.Reason, o.Instance = a.outcome, a.Reason, a.Timing.Instance
		o.QueuedUs, o.WireUs, o.HostUs = uint32(a.Timing.Queued.Microseconds()), uint32(a.Timing.Wire.Microseconds()), uint32(a.Timing.Host.Microseconds())
	}
}
