// Package observe shows reviews to operators: spans, metrics, records of where time went, log lines of failures and slow reviews, and traces that
// are kept though they were not sampled. The dispatcher gives it one [FinishedReview] for each review that is over.
//
// It decides nothing about a review. An [Observer] may be used from any number of goroutines.
package observe

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/latency"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
)

// Options are the places where reviews are shown. Only Logger is required.
type Options struct {
	// TracerProvider makes the spans; nil means none. Below a span of this process that is not sampled there are none.
	TracerProvider trace.TracerProvider
	// KeptTraces makes the spans of slow and failed reviews whose trace is not sampled, after their end. It samples all. nil means none.
	KeptTraces trace.TracerProvider
	// Metrics registers the instruments; nil means none.
	Metrics prometheus.Registerer
	// Latencies keeps where the time of recent reviews went; nil keeps nothing.
	Latencies *latency.Recorder
	// Slow is how long a review takes that is logged, gets an audit annotation with where its time went, and whose trace is kept; 0 means none.
	Slow time.Duration
	// Shadows keeps the outcomes of hooks in shadow; nil keeps nothing.
	Shadows *shadow.Recorder
	// Logger gets failures of hooks and slow reviews.
	Logger *slog.Logger
}

// Observer shows the reviews of one dispatcher.
type Observer struct {
	options  Options
	metrics  *instruments
	tracer   trace.Tracer
	kept     *keptTraces
	failures *logLimit[failureKey]
	slow     *logLimit[string] // by cluster
	finished sync.Pool         // of *FinishedReview
}

// New makes an observer and registers its metrics.
func New(o Options) (*Observer, error) {
	metrics, err := newInstruments(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	if o.TracerProvider == nil {
		o.TracerProvider = noop.NewTracerProvider()
	}
	return &Observer{
		options: o, metrics: metrics, tracer: o.TracerProvider.Tracer(scope), kept: newKeptTraces(o.KeptTraces, o.Slow),
		failures: newLogLimit[failureKey](), slow: newLogLimit[string](),
	}, nil
}

// FinishedReview is a review that is over, or either stage of an admit. The observer changes nothing that it refers to.
type FinishedReview struct {
	// Request is the review, and Span its span.
	Request *review.Request
	Span    trace.Span
	// Snapshot is the configuration that judged it; nil if there was none.
	Snapshot *match.Snapshot
	// Begun and Ended are its times, and Due is the deadline of its hooks.
	Begun, Ended, Due time.Time
	// Held is how long it waited for a fresh configuration.
	Held time.Duration
	// FailsOpen is true if no failure of a hook may refuse it.
	FailsOpen bool
	// Answer is the answer. Without one Response is nil, and Err is the reason, if it is known.
	Answer review.Answer
	Err    error
	// Hooks are the outcomes of its hooks, called or not.
	Hooks []FinishedHook

	record latency.ReviewRecord
}

// FinishedHook is the outcome of one hook in one round of a finished review.
type FinishedHook struct {
	chain.Outcome

	// Begun and Ended are the times of the call; zero if it was not made.
	Begun, Ended time.Time
	// Recorded is the span of the call; nil if it was not made.
	Recorded trace.Span
}

func (c *FinishedHook) made() bool { return c.Recorded != nil }

func (c *FinishedHook) took() time.Duration { return c.Ended.Sub(c.Begun) }

// NewFinishedReview returns an empty one, whose memory [Observer.Add] takes back.
func (x *Observer) NewFinishedReview() *FinishedReview {
	r, _ := x.finished.Get().(*FinishedReview)
	if r == nil {
		r = &FinishedReview{}
	}
	return r
}

// Add shows a review whose hooks have been called. Only then it is known which verdicts counted. Error texts of hosts appear in spans and
// log only, not in the answer to the client. r must not be used afterwards. slow is the value of the annotation [AuditSlow] of a slow review.
func (x *Observer) Add(ctx context.Context, r *FinishedReview) (slow string) {
	series, exemplar := x.metrics.seriesOf(r.Snapshot), exemplarOf(r.Span)
	for i := range r.Hooks {
		c := &r.Hooks[i]
		switch {
		case c.made() && c.Hook.Policy != nil:
			notePolicy(r.Span, c)
		case c.made():
			endCall(c)
		}
		if c.Mode == review.Speculative {
			x.metrics.countSpeculation(c)
		}
		if c.Effect == chain.Shadowed && c.Reason != "" { // the call could not be made
			x.recordShadow(ctx, r.Request, c.Hook, shadow.CallRecord{Outcome: shadow.Failed, Message: c.Reason})
		}
		x.metrics.countOutcome(series, r.Request, c, exemplar)
		if c.Effect == chain.FailedOpen || c.Effect == chain.FailedClosed {
			x.logFailure(ctx, r.Request, c)
		}
	}
	slow = x.recordReview(ctx, r)
	x.keepTrace(ctx, r)
	x.recycle(r)
	return slow
}

// recycle keeps the memory of a finished review without references to its review.
func (x *Observer) recycle(r *FinishedReview) {
	clear(r.Hooks)
	clear(r.record.Calls) // they hold strings of hooks and hosts
	*r = FinishedReview{Hooks: r.Hooks[:0], record: latency.ReviewRecord{Calls: r.record.Calls[:0]}}
	x.finished.Put(r)
}

// End shows the end of a review with all its stages: its span and its duration. A refusal and a failure are errors of the span. A denial is none, and
// neither is a review that failed open: there the span of the call has the error. Of a review without a configuration it makes the record.
func (x *Observer) End(ctx context.Context, r *FinishedReview) {
	outcome, took := latency.OutcomeRefused, r.Ended.Sub(r.Begun)
	if r.Err != nil {
		r.Span.SetStatus(codes.Error, r.Err.Error())
	} else if outcome = string(r.Answer.Outcome()); r.Answer.Failed {
		r.Span.SetStatus(codes.Error, r.Answer.Response.GetStatus().GetMessage())
	}
	cluster := x.metrics.clusterLabel(r.Request.Admission.GetCluster())
	observe(x.metrics.reviews.WithLabelValues(cluster, stageLabel(r.Request.Stage), outcome), took, exemplarOf(r.Span))
	if r.Span.IsRecording() {
		r.Span.SetAttributes(attribute.String(attrOutcome, outcome), attribute.String("portcullis.revision", r.Answer.Revision))
	}
	r.Span.End()
	if r.Snapshot == nil {
		x.recordRefused(ctx, r)
		x.keepRefused(ctx, r)
	}
}

// Bypassed counts a review that the bypass of its cluster exempts.
func (x *Observer) Bypassed(span trace.Span, cluster, kind string) {
	x.metrics.bypassed.WithLabelValues(x.metrics.clusterLabel(cluster), kind).Inc()
	span.SetAttributes(attribute.String("portcullis.bypass", kind))
}

// Encoded counts the encoding of a request for hosts.
func (x *Observer) Encoded(bytes int) {
	x.metrics.encodes.Inc()
	x.metrics.bytes.Add(float64(bytes))
}

// Update begins the metric series of hooks and ends the series of all others. Calls of Update are made in order.
func (x *Observer) Update(hooks []*match.Hook) {
	all := make([]hookLabels, 0, len(hooks))
	for _, h := range hooks {
		all = append(all, labelsOf(h))
	}
	x.metrics.hooks.Update(all)
	x.metrics.beginModes(hooks)
}

// UpdateClusters replaces the clusters that send reviews. Records and series of others end.
func (x *Observer) UpdateClusters(names []string) {
	x.metrics.clusters.Update(names)
	if x.options.Latencies != nil {
		x.options.Latencies.Keep(names)
	}
	if x.options.Shadows != nil {
		x.options.Shadows.Keep(names)
	}
}
