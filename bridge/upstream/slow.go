package upstream

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// LogInterval is the shortest time between two log lines of slow reviews. Lines that are left out are counted in the next one.
const LogInterval = 10 * time.Second

// road is where the time of a review went that was sent to dispatchers.
type road struct {
	attempts   int
	queued     time.Duration // no dispatcher was connected, or each had been tried
	answered   time.Duration // of the last attempt
	dispatcher string        // the address of the last dispatcher that got it; empty for none
}

// slowLog logs reviews that took too long. It may be used by several goroutines.
type slowLog struct {
	after time.Duration // 0 logs none
	log   *slog.Logger
	lines rate.Sometimes
	more  atomic.Int64
}

// note logs a review that has its outcome, if it took too long. The dispatcher logs where its own time went, by the same uid.
func (l *slowLog) note(ctx context.Context, r *review.Request, begun time.Time, went road, outcome review.Outcome) {
	now := time.Now()
	received := begun
	if !r.Received.IsZero() {
		received = r.Received
	}
	if l.after <= 0 || now.Sub(received) < l.after {
		return
	}
	logged := false
	l.lines.Do(func() {
		logged = true
		attrs := []slog.Attr{
			slog.String("uid", r.Admission.GetUid()), slog.String("cluster", r.Admission.GetCluster()),
			slog.String("stage", match.StageName(r.Stage)), slog.String("operation", r.Admission.GetOperation()),
			slog.String("resource", r.Admission.GetResource().GetResource()), slog.String("outcome", string(outcome)),
			slog.Duration("duration", now.Sub(received)), slog.Duration("edge", begun.Sub(received)), slog.Duration("queued", went.queued),
			slog.Duration("answered", went.answered), slog.String("dispatcher", went.dispatcher), slog.Int("attempts", went.attempts),
		}
		if span := trace.SpanContextFromContext(ctx); span.IsValid() {
			attrs = append(attrs, slog.String("trace_id", span.TraceID().String()))
		}
		if more := l.more.Swap(0); more > 0 {
			attrs = append(attrs, slog.Int64("more", more))
		}
		l.log.LogAttrs(ctx, slog.LevelWarn, "the review was slow", attrs...)
	})
	if !logged {
		l.more.Add(1)
	}
}
