package hostsdk

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// metrics counts calls and measures handlers. Safe for concurrent use.
type metrics struct {
	calls    metric.Int64Counter
	duration metric.Float64Histogram
}

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter(instrumentation)
	calls, err := meter.Int64Counter("portcullis.host.calls",
		metric.WithUnit("{call}"), metric.WithDescription("Calls of hooks, by how they ended."))
	duration, err2 := meter.Float64Histogram("portcullis.host.handler.duration",
		metric.WithUnit("s"), metric.WithDescription("Time that handlers take."))
	return &metrics{calls: calls, duration: duration}, errors.Join(err, err2)
}

// refused counts a call whose handler was not called.
func (m *metrics) refused(ctx context.Context, h *hook) {
	m.calls.Add(ctx, 1, h.attributes.ended[callRefused]...)
}

// handled counts a call whose handler took a time.
func (m *metrics) handled(ctx context.Context, h *hook, v *hostv1.Verdict, took time.Duration) {
	m.calls.Add(ctx, 1, h.attributes.ended[endOf(v)]...)
	m.duration.Record(ctx, took.Seconds(), h.attributes.all...)
}

// callEnd is how a call ended: the attribute portcullis.outcome.
type callEnd int

const (
	callAllowed callEnd = iota
	callDenied
	callFailed
	callPanicked
	callCancelled
	callRefused
)

func endOf(v *hostv1.Verdict) callEnd {
	switch outcome := v.GetOutcome().(type) {
	case *hostv1.Verdict_Response:
		if outcome.Response.GetAllowed() {
			return callAllowed
		}
		return callDenied
	case *hostv1.Verdict_Cancelled:
		return callCancelled
	case *hostv1.Verdict_Refused:
		return callRefused
	case *hostv1.Verdict_Error:
		if outcome.Error.GetPanicked() {
			return callPanicked
		}
	}
	return callFailed
}

// hookAttributes are the attributes of the metrics of a hook. They are made once, so that a call makes none.
type hookAttributes struct {
	all   []metric.RecordOption
	ended [callRefused + 1][]metric.AddOption // those and the outcome
}

func newHookAttributes(id hookID) hookAttributes {
	hook, stage := attribute.String("portcullis.hook", id.name), attribute.String("portcullis.stage", string(stageOf(id.stage)))
	a := hookAttributes{all: []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(hook, stage))}}
	for end, word := range [...]string{
		callAllowed: "allowed", callDenied: "denied", callFailed: "failed",
		callPanicked: "panicked", callCancelled: "cancelled", callRefused: "refused",
	} {
		set := attribute.NewSet(hook, stage, attribute.String("portcullis.outcome", word))
		a.ended[end] = []metric.AddOption{metric.WithAttributeSet(set)}
	}
	return a
}
