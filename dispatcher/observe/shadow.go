package observe

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
)

// maxShadowReason is the most bytes of a shadow hook's denial that a span shows.
const maxShadowReason = 1024

// SkipShadow counts a hook in shadow that does not apply. reason is a value of [match.Decision].Skip.
func (x *Observer) SkipShadow(h *match.Hook, reason string) {
	l := x.metrics.labels(h)
	x.metrics.skipped.WithLabelValues(l.name, l.kind, reason).Inc()
}

// AddShadow shows a call of a hook in shadow that is over, or that could not be made.
func (x *Observer) AddShadow(ctx context.Context, r *review.Request, outcome shadow.Outcome, c *FinishedHook) {
	call := shadow.CallRecord{Outcome: outcome, Message: c.Reason, Reference: shadow.Reference{Instance: c.Timing.Instance}}
	if !c.Ended.IsZero() {
		x.endShadow(r, outcome, c)
		if outcome != shadow.Dropped {
			call.Took = c.took()
		}
	}
	x.recordShadow(ctx, r, c.Hook, call)
	if outcome == shadow.Dropped && c.Ended.IsZero() {
		return
	}
	x.options.Logger.LogAttrs(ctx, slog.LevelDebug, "hook in shadow",
		slog.String("uid", r.Admission.GetUid()),
		slog.String("cluster", r.Admission.GetCluster()),
		slog.String("configuration", c.Hook.ID.Configuration),
		slog.String("hook", c.Hook.ID.Name),
		slog.String("outcome", string(outcome)),
		slog.String("reason", c.Reason),
		slog.String("instance", c.Timing.Instance))
}

// endShadow counts a call that was made, and ends its span.
func (x *Observer) endShadow(r *review.Request, outcome shadow.Outcome, c *FinishedHook) {
	l := x.metrics.labels(c.Hook)
	switch outcome {
	case shadow.Failed:
		x.metrics.failures.WithLabelValues(l.name, l.kind, c.Failure.Kind.String()).Inc()
	case shadow.Denied:
		c.Recorded.SetAttributes(attribute.String("portcullis.denial", Cut(c.Reason, maxShadowReason)))
	case shadow.Allowed, shadow.Patched, shadow.Dropped:
	}
	if outcome != shadow.Dropped {
		_, operation := operationLabel(r.Admission.GetOperation())
		observe(x.metrics.durations.WithLabelValues(l.name, l.kind, operation, "false"), c.took(), exemplarOf(c.Recorded))
	}
	c.Recorded.SetAttributes(attribute.Bool("portcullis.shadow", true))
	endCall(c)
}

// recordShadow counts a call of a hook in shadow and completes its record.
func (x *Observer) recordShadow(ctx context.Context, r *review.Request, h *match.Hook, c shadow.CallRecord) {
	l := x.metrics.labels(h)
	x.metrics.shadowCalls.WithLabelValues(l.name, l.kind, string(c.Outcome)).Inc()
	if x.options.Shadows == nil {
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
	x.options.Shadows.Add(time.Now(), &c)
}
