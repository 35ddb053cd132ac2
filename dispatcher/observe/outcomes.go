package observe

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

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

// Values of the label error_type, as in k8s.io/apiserver/pkg/admission/metrics.
const (
	rejectedByVerdict  = "no_error"
	rejectedForFailure = "calling_webhook_error"
	rejectedForReview  = "apiserver_internal_error"
)

// countOutcome counts the outcome of a hook as mutatingDispatcher and validatingDispatcher of kube-apiserver do. Cancelled calls are counted as
// failures only, since their duration is not known.
func (i *instruments) countOutcome(series *allowedSeries, r *review.Request, c *FinishedHook, exemplar prometheus.Labels) {
	if c.made() && c.Failure == nil && c.Effect != chain.Undecided {
		series.phasesFor(i, c.Hook).observe(c)
	}
	if (c.Effect == chain.Allowed || c.Effect == chain.Patched) && c.made() {
		s := series.seriesFor(i, c.Hook, r.Admission.GetOperation())
		s.requests.Inc()
		observe(s.durations, c.took(), exemplar)
		return
	}
	if c.Effect == chain.Discarded || c.Effect == chain.Shadowed {
		return // counted by countSpeculation and countShadow
	}
	l := i.labels(c.Hook)
	name, kind := l.name, l.kind
	_, operation := operationLabel(r.Admission.GetOperation())
	if c.Failure != nil {
		i.failures.WithLabelValues(name, kind, c.Failure.Kind.String()).Inc()
	}
	var code int
	var errorType string // of a rejection
	switch c.Effect {
	case chain.Undecided:
		if c.made() {
			i.failures.WithLabelValues(name, kind, review.FailureCancelled.String()).Inc()
		}
		return
	case chain.Skipped:
		if c.Round == 0 {
			i.skipped.WithLabelValues(name, kind, c.Reason).Inc()
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
		code, errorType = min(int(c.Code), maxCode), rejectedByVerdict
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
	if c.made() {
		observe(i.durations.WithLabelValues(name, kind, operation, rejected), c.took(), exemplar)
	}
}

// Outcomes of speculative calls in portcullis_hook_speculation_total.
const (
	speculationCounted   = "counted"   // the verdict counted at the hook's turn
	speculationDiscarded = "discarded" // another hook changed the object, or ended the review
	speculationFailed    = "failed"    // no verdict: the hook was called again if its turn came
)

func (i *instruments) countSpeculation(c *FinishedHook) {
	outcome := speculationCounted
	switch {
	case c.Effect == chain.Discarded && c.Failure != nil:
		outcome = speculationFailed
	case c.Effect == chain.Discarded, c.Effect == chain.Undecided:
		outcome = speculationDiscarded
	}
	l := i.labels(c.Hook)
	i.speculations.WithLabelValues(l.name, l.kind, outcome).Inc()
}
