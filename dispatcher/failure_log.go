package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// FailureLogInterval is the shortest time between two log lines about failures of one kind of one hook. Failures in between
// are counted in the next line, and all of them in portcullis_hook_failures_total.
const FailureLogInterval = 10 * time.Second

const (
	// maxLogged is the most bytes of an attribute that comes from a caller; names in Kubernetes have at most 253.
	maxLogged = 256
	// minPrune is the number of failure keys below which none are removed.
	minPrune = 64
)

// failureLog limits the rate of log lines about failures. Its methods may be called concurrently.
type failureLog struct {
	mu      sync.Mutex
	last    map[failureKey]*logged
	pruneAt int // length of last at which old keys are removed
}

// failureKey names the failures of one kind of one hook.
type failureKey struct {
	hook match.HookID
	kind review.FailureKind
}

// logged is the time of the last line, and the number of failures since.
type logged struct {
	at   time.Time
	more int
}

func newFailureLog() *failureLog {
	return &failureLog{last: map[failureKey]*logged{}, pruneAt: minPrune}
}

// shouldLog reports whether to log a failure, and how many with the same key were not logged since the last line.
func (l *failureLog) shouldLog(f failureKey, now time.Time) (more int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last[f]
	switch {
	case last == nil:
		l.pruneOld(now)
		l.last[f] = &logged{at: now}
		return 0, true
	case now.Sub(last.at) < FailureLogInterval:
		last.more++
		return 0, false
	}
	more, last.at, last.more = last.more, now, 0
	return more, true
}

// pruneOld removes keys without recent failures, once there are many: hooks are removed, and hosts recover.
func (l *failureLog) pruneOld(now time.Time) {
	if len(l.last) < l.pruneAt {
		return
	}
	for f, last := range l.last {
		if now.Sub(last.at) >= 2*FailureLogInterval {
			delete(l.last, f)
		}
	}
	l.pruneAt = max(minPrune, 2*len(l.last))
}

// logFailure logs a failure within the rate limit. c is nil for a call that was not made.
func (x *run) logFailure(ctx context.Context, o chain.Outcome, c *callState) {
	d := x.dispatcher
	more, ok := d.failures.shouldLog(failureKey{o.Hook.ID, o.Failure.Kind}, time.Now())
	if !ok {
		return
	}
	a := x.request.Admission
	attrs := []slog.Attr{
		slog.String("uid", cut(a.GetUid(), maxLogged)),
		slog.String("cluster", a.GetCluster()),
		slog.String("configuration", o.Hook.ID.Configuration),
		slog.String("hook", o.Hook.ID.Name),
		slog.Uint64("round", uint64(o.Round)),
		slog.String("operation", cut(a.GetOperation(), maxLogged)),
		slog.String("resource", cut(a.GetResource().GetResource(), maxLogged)),
		slog.String("kind", o.Failure.Kind.String()),
		slog.String("policy", string(o.Hook.FailurePolicy)),
		slog.Duration("timeout", o.Hook.Timeout),
		slog.Any("error", o.Failure.Err),
	}
	if c != nil {
		attrs = append(attrs, slog.Duration("duration", c.duration()))
	}
	for _, named := range []struct{ key, value string }{
		{"namespace", a.GetNamespace()}, {"name", a.GetName()}, {"user", a.GetUserInfo().GetUsername()}, {"instance", o.Timing.Instance},
	} {
		if named.value != "" {
			attrs = append(attrs, slog.String(named.key, cut(named.value, maxLogged)))
		}
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		attrs = append(attrs, slog.String("trace_id", span.TraceID().String()))
	}
	if more > 0 {
		attrs = append(attrs, slog.Int("more", more))
	}
	d.options.Logger.LogAttrs(ctx, slog.LevelWarn, "hook failed", attrs...)
}
