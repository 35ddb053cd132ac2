package dispatcher

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// What stands for results that have no HTTP status of their own, as in kube-apiserver's metrics of webhooks.
const (
	statusAllowed = "200"
	codeFailed    = 503
	codeRefused   = 0
	maxCode       = 600 // larger codes count as this one, so that the label stays bounded
)

// Values of the label error_type, those of k8s.io/apiserver/pkg/admission/metrics.
const (
	rejectedByVerdict  = "no_error"
	rejectedForFailure = "calling_webhook_error"
	rejectedForReview  = "apiserver_internal_error"
)

// report tells operators what came of the hooks of a review, once nothing more can come: only then is it known whether a
// verdict counted. The log is told of failures alone, and of few that are alike; it and the span are where the operator finds what a host said, of
// which the client is not told.
func (x *run) report(ctx context.Context) {
	series := x.dispatcher.seeing.seriesOf(x.snapshot)
	for o := range x.machine.Outcomes() {
		var f *flight
		if o.ID < len(x.flights) && x.flights[o.ID].hook != nil {
			f = &x.flights[o.ID]
			x.dispatcher.seeing.endCall(f, o)
		}
		if o.Mode == review.Speculative {
			x.dispatcher.seeing.speculated(o)
		}
		if o.Effect == chain.Shadowed && o.Reason != "" { // it could not be asked
			x.dispatcher.seeing.shadowed(o.Hook, shadowFailed)
		}
		x.upsets.learn(o)
		x.dispatcher.seeing.count(series, x.request, o, f)
		if o.Effect == chain.FailedOpen || o.Effect == chain.FailedClosed {
			x.logFailure(ctx, o, f)
		}
	}
}

// endCall ends the span of a call. One that is not recorded takes no note of anything.
func (i *instrumentation) endCall(f *flight, o chain.Outcome) {
	if !f.span.IsRecording() {
		return
	}
	t := o.Timing
	f.span.SetAttributes(
		attribute.String("portcullis.outcome", spanOutcome(o)),
		attribute.String("portcullis.host.instance", t.Instance),
		attribute.Int64("portcullis.queued_us", t.Queued.Microseconds()),
		attribute.Int64("portcullis.wire_us", t.Wire.Microseconds()),
		attribute.Int64("portcullis.host_us", t.Host.Microseconds()),
	)
	if o.Failure != nil || o.Effect == chain.Refused {
		f.span.SetStatus(codes.Error, o.Reason)
	}
	f.span.End(trace.WithTimestamp(f.ended))
}

// spanOutcome is what came of a call that was made: a verdict, or the kind of its failure.
func spanOutcome(o chain.Outcome) string {
	switch {
	case o.Effect == chain.Undecided:
		return review.FailureCancelled.String()
	case o.Failure != nil:
		return o.Failure.Kind.String()
	}
	return o.Effect.String()
}

// count counts what came of a hook, as mutatingDispatcher and validatingDispatcher of kube-apiserver do. f is nil for one
// that was not called. Calls that were given up are counted as failures alone: nobody knows what they would have taken.
func (i *instrumentation) count(series *allowedSeries, r *review.Request, o chain.Outcome, f *flight) {
	if (o.Effect == chain.Allowed || o.Effect == chain.Patched) && f != nil {
		s := series.of(i, o.Hook, r.Admission.GetOperation())
		s.requests.Inc()
		observe(s.durations, f.took(), f.span.SpanContext())
		return
	}
	if o.Effect == chain.Discarded || o.Effect == chain.Shadowed {
		return // they have counters of their own
	}
	name, kind := o.Hook.ID.Name, typeLabel(o.Hook)
	_, operation := operationLabel(r.Admission.GetOperation())
	if o.Failure != nil {
		i.failures.WithLabelValues(name, kind, o.Failure.Kind.String()).Inc()
	}
	var code int
	var errorType string // of a rejection
	switch o.Effect {
	case chain.Undecided:
		if f != nil {
			i.failures.WithLabelValues(name, kind, review.FailureCancelled.String()).Inc()
		}
		return
	case chain.Skipped:
		if o.Round == 0 {
			i.skipped.WithLabelValues(name, kind, o.Reason).Inc()
		}
		return
	case chain.Allowed, chain.Patched: // and none of them was called without a flight
	case chain.FailedOpen:
		code = codeFailed
		i.failOpen.WithLabelValues(name, kind).Inc()
	case chain.FailedClosed:
		code, errorType = codeFailed, rejectedForFailure
	case chain.Denied:
		code, errorType = min(int(o.Code), maxCode), rejectedByVerdict
	case chain.Refused:
		code, errorType = codeRefused, rejectedForReview
	case chain.Discarded, chain.Shadowed:
	}
	status, rejected := strconv.Itoa(code), strconv.FormatBool(errorType != "")
	if errorType != "" {
		i.rejections.WithLabelValues(name, kind, operation, errorType, status).Inc()
	}
	i.requests.WithLabelValues(name, kind, operation, status, rejected).Inc()
	if f != nil {
		observe(i.durations.WithLabelValues(name, kind, operation, rejected), f.took(), f.span.SpanContext())
	}
}

// took is the time of a call that has ended.
func (f *flight) took() time.Duration { return f.ended.Sub(f.begun) }
