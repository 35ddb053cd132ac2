package dispatcher

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

// keepTrace makes the spans of the review, which ended then, and of its calls, if they are to be kept.
func (x *run) keepTrace(ctx context.Context, ended time.Time) {
	i := x.dispatcher.metrics
	answer, judged := x.machine.Answer()
	why := i.kept.why(ctx, x.request.Admission.GetCluster(), answer.Failed || !judged, x.begun, ended)
	if why == "" {
		return
	}
	ctx, span := i.kept.start(ctx, x.request, x.begun, why)
	span.AddEvent(phaseHeld, trace.WithTimestamp(x.begun.Add(x.held)))
	for o := range x.machine.Outcomes().All {
		if o.Mode != review.Shadow && o.ID < len(x.calls) && x.calls[o.ID].started() {
			c := x.calls[o.ID]
			c.span = startCall(ctx, i.kept.tracer, x.request, o.Call, c.begun)
			i.endCall(&c, o)
		}
	}
	outcome := review.OutcomeRefused
	if judged {
		outcome = answer.Outcome()
	}
	endKept(span, outcome, answer.Response.GetStatus().GetMessage(), why == keptFailed, ended)
}

// keepRefused makes the span of a review for which there was no configuration, if it is to be kept.
func (i *instrumentation) keepRefused(ctx context.Context, r *review.Request, begun time.Time, err error) {
	ended := time.Now()
	if err == nil {
		return
	}
	if why := i.kept.why(ctx, r.Admission.GetCluster(), true, begun, ended); why != "" {
		_, span := i.kept.start(ctx, r, begun, why)
		endKept(span, review.OutcomeRefused, err.Error(), true, ended)
	}
}

func endKept(span trace.Span, outcome review.Outcome, message string, failed bool, ended time.Time) {
	span.SetAttributes(attribute.String(attrOutcome, string(outcome)))
	if failed {
		span.SetStatus(codes.Error, message)
	}
	span.End(trace.WithTimestamp(ended))
}
