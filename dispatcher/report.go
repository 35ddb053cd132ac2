package dispatcher

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
)

// Values of the label code for results without an HTTP status, as in kube-apiserver's metrics of webhooks.
const (
	statusAllowed = "200"
	codeFailed    = 503
	codeRefused   = 0
	maxCode       = 600 // larger codes are counted as this one, to bound the label
)

// Values of the label error_type, as in k8s.io/apiserver/pkg/admission/metrics.
const (
	rejectedByVerdict  = "no_error"
	rejectedForFailure = "calling_webhook_error"
	rejectedForReview  = "apiserver_internal_error"
)

// report records the outcomes of all hooks in metrics, spans and change rates, and logs failures. It runs at the end of the
// review, since only then it is known which verdicts counted. Error texts of hosts appear in spans and log only, not in
// the answer to the client.
func (x *run) report(ctx context.Context) {
	series, exemplar := x.dispatcher.metrics.seriesOf(x.snapshot), exemplarOf(x.span)
	record := x.beginRecord()
	for o := range x.machine.Outcomes().All {
		var c *callState
		if o.ID < len(x.calls) && x.calls[o.ID].started() {
			c = &x.calls[o.ID]
			x.dispatcher.metrics.endCall(c, o)
			record.addCall(o, c)
		}
		if o.Mode == review.Speculative {
			x.dispatcher.metrics.countSpeculation(o)
		}
		if o.Effect == chain.Shadowed && o.Reason != "" { // the call could not be made
			x.dispatcher.recordShadow(ctx, x.request, o.Hook, shadow.Call{Outcome: shadow.Failed, Message: o.Reason})
		}
		x.changeRates.learnOutcome(o)
		x.dispatcher.metrics.countOutcome(series, x.request, o, c, exemplar)
		if o.Effect == chain.FailedOpen || o.Effect == chain.FailedClosed {
			x.logFailure(ctx, o, c)
		}
	}
	ended := time.Now()
	record.end(ctx, x, ended)
	x.keepTrace(ctx, ended)
}

// countOutcome counts the outcome of a hook as mutatingDispatcher and validatingDispatcher of kube-apiserver do. c is nil if
// the hook was not called. Cancelled calls are counted as failures only, since their duration is not known.
func (i *instrumentation) countOutcome(series *allowedSeries, r *review.Request, o chain.Outcome, c *callState, exemplar prometheus.Labels) {
	if c != nil && o.Failure == nil && o.Effect != chain.Undecided {
		series.phasesFor(i, o.Hook).observe(o)
	}
	if (o.Effect == chain.Allowed || o.Effect == chain.Patched) && c != nil {
		s := series.seriesFor(i, o.Hook, r.Admission.GetOperation())
		s.requests.Inc()
		observe(s.durations, c.duration(), exemplar)
		return
	}
	if o.Effect == chain.Discarded || o.Effect == chain.Shadowed {
		return // counted by countSpeculation and countShadow
	}
	l := i.labels(o.Hook)
	name, kind := l.name, l.kind
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
		i.failClosed.WithLabelValues(name, kind).Inc()
	case chain.Denied:
		code, errorType = min(int(o.Code), maxCode), rejectedByVerdict
	case chain.Refused:
		code, errorType = codeRefused, rejectedForReview
		i.failClosed.WithLabelValues(name, kind).Inc()
	case chain.Discarded, chain.Shadowed:
	}
	status, rejected := strconv.Itoa(code), strconv.FormatBool(errorType != "")
	if errorType != "" {
		i.rejections.WithLabelValues(name, kind, operation, errorType, status).Inc()
	}
	i.requests.WithLabelValues(name, kind, operation, status, rejected).Inc()
	if c != nil {
		observe(i.durations.WithLabelValues(name, kind, operation, rejected), c.duration(), exemplar)
	}
}

func (c *callState) duration() time.Duration { return c.ended.Sub(c.begun) }
