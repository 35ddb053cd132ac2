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

// Values of the label code for results without an HTTP status, as in kube-apiserver's metrics of webhooks.
const (
	statusAllowed = "200"
	codeFailed    = 503
	codeRefused   = 0
	maxCode       = 600 // larger codes are counted as this one, to bound the label
)

// Values of the label error_type, those of k8s.io/apiserver/pkg/admission/metrics.
const (
	rejectedByVerdict  = "no_error"
	rejectedForFailure = "calling_webhook_error"
	rejectedForReview  = "apiserver_internal_error"
)

// report records the outcomes of all hooks in metrics, spans and change rates, and logs failures. It runs at the end of the
// review, since only then it is known which verdicts counted. Error texts of hosts appear in spans and log only, not in
// the answer to the client.
func (x *run) report(ctx context.Context) {
	series := x.dispatcher.metrics.seriesOf(x.snapshot)
	for o := range x.machine.Outcomes().All {
		var c *callState
		if o.ID < len(x.calls) && x.calls[o.ID].started() {
			c = &x.calls[o.ID]
			x.dispatcher.metrics.endCall(c, o)
		}
		if o.Mode == review.Speculative {
			x.dispatcher.metrics.countSpeculation(o)
		}
		if o.Effect == chain.Shadowed && o.Reason != "" { // the call could not be made
			x.dispatcher.metrics.countShadow(o.Hook, shadowFailed)
		}
		x.changeRates.learnOutcome(o)
		x.dispatcher.metrics.countOutcome(series, x.request, o, c)
		if o.Effect == chain.FailedOpen || o.Effect == chain.FailedClosed {
			x.logFailure(ctx, o, c)
		}
	}
}

// endCall ends the span of a call, with attributes if it is recorded.
func (i *instrumentation) endCall(c *callState, o chain.Outcome) {
	if !c.span.IsRecording() {
		return
	}
	t := o.Timing
	c.span.SetAttributes(
		attribute.String("portcullis.outcome", spanOutcome(o)),
		attribute.String("portcullis.host.instance", t.Instance),
		attribute.Int64("portcullis.queued_us", t.Queued.Microseconds()),
		attribute.Int64("portcullis.wire_us", t.Wire.Microseconds()),
		attribute.Int64("portcullis.host_us", t.Host.Microseconds()),
	)
	if o.Failure != nil || o.Effect == chain.Refused {
		c.span.SetStatus(codes.Error, o.Reason)
	}
	c.span.End(trace.WithTimestamp(c.ended))
}

func spanOutcome(o chain.Outcome) string {
	switch {
	case o.Effect == chain.Undecided:
		return review.FailureCancelled.String()
	case o.Failure != nil:
		return o.Failure.Kind.String()
	}
	return o.Effect.String()
}

// countOutcome counts the outcome of a hook as mutatingDispatcher and validatingDispatcher of kube-apiserver do. c is nil if
// the hook was not called. Cancelled calls are counted as failures only, since their duration is not known.
func (i *instrumentation) countOutcome(series *allowedSeries, r *review.Request, o chain.Outcome, c *callState) {
	if (o.Effect == chain.Allowed || o.Effect == chain.Patched) && c != nil {
		s := series.seriesFor(i, o.Hook, r.Admission.GetOperation())
		s.requests.Inc()
		observe(s.durations, c.duration(), c.span.SpanContext())
		return
	}
	if o.Effect == chain.Discarded || o.Effect == chain.Shadowed {
		return // counted by countSpeculation and countShadow
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
		if c != nil {
			i.failures.WithLabelValues(name, kind, review.FailureCancelled.String()).Inc()
		}
		return
	case chain.Skipped:
		if o.Round == 0 {
			i.skipped.WithLabelValues(name, kind, o.Reason).Inc()
		}
		return
	case chain.Allowed, chain.Patched: // counted above
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
	if c != nil {
		observe(i.durations.WithLabelValues(name, kind, operation, rejected), c.duration(), c.span.SpanContext())
	}
}

func (c *callState) duration() time.Duration { return c.ended.Sub(c.begun) }
