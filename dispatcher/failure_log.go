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

// FailureLogInterval is how long the log has one line about the failures of a hook of one kind. Further ones are counted in the
// next line, and all of them in the metric portcullis_hook_failures_total.
const FailureLogInterval = 10 * time.Second

const (
	// maxLogged bounds what a caller can put into an attribute of a line, in bytes: names in Kubernetes have at most 253.
	maxLogged = 256
	// fewFailures is how many kinds of failures of hooks are remembered before those are looked for that are over.
	fewFailures = 64
)

// failureLog decides which failures are logged. Its methods may be called concurrently.
type failureLog struct {
	mu    sync.Mutex
	last  map[failures]*logged
	prune int // how many are remembered when those are forgotten that are over
}

// failures are those of one kind of a hook.
type failures struct {
	hook match.HookID
	kind review.FailureKind
}

// logged is when failures were logged last, and how many there have been since.
type logged struct {
	at   time.Time
	more int
}

func newFailureLog() *failureLog {
	return &failureLog{last: map[failures]*logged{}, prune: fewFailures}
}

// take reports whether a failure is logged, and how many like it were not since the last that was.
func (l *failureLog) take(f failures, now time.Time) (more int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last[f]
	switch {
	case last == nil:
		l.forget(now)
		l.last[f] = &logged{at: now}
		return 0, true
	case now.Sub(last.at) < FailureLogInterval:
		last.more++
		return 0, false
	}
	more, last.at, last.more = last.more, now, 0
	return more, true
}

// forget lets go of failures that are over, once there are many: hooks go, and hosts come back. What was counted of them the
// metric has.
func (l *failureLog) forget(now time.Time) {
	if len(l.last) < l.prune {
		return
	}
	for f, last := range l.last {
		if now.Sub(last.at) >= 2*FailureLogInterval {
			delete(l.last, f)
		}
	}
	l.prune = max(fewFailures, 2*len(l.last))
}

// logFailure logs a call without a verdict, unless one like it was logged just now. f is nil for a call that was not made.
func (x *run) logFailure(ctx context.Context, o chain.Outcome, f *flight) {
	d := x.dispatcher
	more, ok := d.failures.take(failures{o.Hook.ID, o.Failure.Kind}, time.Now())
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
	if f != nil {
		attrs = append(attrs, slog.Duration("duration", f.took()))
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
	d.log.LogAttrs(ctx, slog.LevelWarn, "hook failed", attrs...)
}
