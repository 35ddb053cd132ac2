package observe

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// MaxKeptTraces is how many reviews of one cluster are kept in a second though their trace is not sampled. An outage makes every review slow
// or failed.
const MaxKeptTraces = 10

// Values of the attribute portcullis.kept.
const (
	keptSlow   = "slow"
	keptFailed = "failed"
)

// keptTraces makes the spans of slow and failed reviews whose trace is not sampled. It makes them when the review is over, from data that each review
// has in any case: a fast review without a failure costs nothing. So the spans of other processes, and most phases, are not among them. It may be
// used from any goroutine; nil keeps nothing.
type keptTraces struct {
	tracer trace.Tracer
	slow   time.Duration // how long a review takes that counts as slow; 0 for none

	mu     sync.Mutex
	second time.Time      // that kept counts
	kept   map[string]int // by cluster; only clusters with a Cluster document send reviews
}

func newKeptTraces(provider trace.TracerProvider, slow time.Duration) *keptTraces {
	if provider == nil {
		return nil
	}
	return &keptTraces{tracer: provider.Tracer(scope), slow: slow, kept: map[string]int{}}
}

// why returns the reason to keep a review; empty if there is none, or if its cluster has had its part of the second.
func (k *keptTraces) why(ctx context.Context, cluster string, failed bool, begun, ended time.Time) string {
	if k == nil {
		return ""
	}
	slow := k.slow > 0 && ended.Sub(begun) >= k.slow
	if !slow && !failed || trace.SpanContextFromContext(ctx).IsSampled() || !k.admit(cluster, ended) {
		return ""
	}
	if failed {
		return keptFailed
	}
	return keptSlow
}

func (k *keptTraces) admit(cluster string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if second := now.Truncate(time.Second); !second.Equal(k.second) {
		clear(k.kept)
		k.second = second
	}
	k.kept[cluster]++
	return k.kept[cluster] <= MaxKeptTraces
}

// start begins the span of a review that is over.
func (k *keptTraces) start(ctx context.Context, r *review.Request, begun time.Time, why string) (context.Context, trace.Span) {
	attributes := trace.WithAttributes(reviewAttributes(r)...)
	ctx, span := k.tracer.Start(ctx, reviewSpan(r.Stage), trace.WithTimestamp(begun), attributes) //nolint:spancheck // endKept ends it
	span.SetAttributes(attribute.String("portcullis.kept", why))
	return ctx, span //nolint:spancheck // endKept ends it
}

// keepTrace makes the spans of a review that is over, and of its calls, if they are to be kept.
func (x *Observer) keepTrace(ctx context.Context, r *FinishedReview) {
	judged := r.Answer.Response != nil
	why := x.kept.why(ctx, r.Request.Admission.GetCluster(), r.Answer.Failed || !judged, r.Begun, r.Ended)
	if why == "" {
		return
	}
	ctx, span := x.kept.start(ctx, r.Request, r.Begun, why)
	span.AddEvent(PhaseHeld, trace.WithTimestamp(r.Begun.Add(r.Held)))
	for _, c := range r.Hooks {
		if c.Mode != review.Shadow && c.made() {
			c.Recorded = startCall(ctx, x.kept.tracer, r.Request, c.Call, c.Begun)
			endCall(&c)
		}
	}
	outcome := review.OutcomeRefused
	if judged {
		outcome = r.Answer.Outcome()
	}
	endKept(span, outcome, r.Answer.Response.GetStatus().GetMessage(), why == keptFailed, r.Ended)
}

// keepRefused makes the span of a review for which there was no configuration, if it is to be kept.
func (x *Observer) keepRefused(ctx context.Context, r *FinishedReview) {
	if r.Err == nil {
		return
	}
	if why := x.kept.why(ctx, r.Request.Admission.GetCluster(), true, r.Begun, r.Ended); why != "" {
		_, span := x.kept.start(ctx, r.Request, r.Begun, why)
		endKept(span, review.OutcomeRefused, r.Err.Error(), true, r.Ended)
	}
}

func endKept(span trace.Span, outcome review.Outcome, message string, failed bool, ended time.Time) {
	span.SetAttributes(attribute.String(attrOutcome, string(outcome)))
	if failed {
		span.SetStatus(codes.Error, message)
	}
	span.End(trace.WithTimestamp(ended))
}
