package dispatcher

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// maxLogged is the most bytes of an attribute that comes from a caller; names in Kubernetes have at most 253.
const maxLogged = 256

// failureKey names the failures of one kind of one hook.
type failureKey struct {
	hook match.HookID
	kind review.FailureKind
}

// logFailure logs a failure within the rate limit. c is nil for a call that was not made.
func (x *run) logFailure(ctx context.Context, o chain.Outcome, c *callState) {
	d := x.dispatcher
	more, ok := d.failures.allow(failureKey{o.Hook.ID, o.Failure.Kind}, time.Now())
	if !ok {
		return
	}
	a := x.request.Admission
	attrs := []slog.Attr{
		slog.String("uid", cut(a.GetUid(), maxLogged)),
		slog.String("cluster", a.GetCluster()),
		slog.String("stage", stageLabel(o.Hook.ID.Stage)),
		slog.String("configuration", o.Hook.ID.Configuration),
		slog.String("hook", o.Hook.ID.Name),
		slog.Uint64("round", uint64(o.Round)),
		slog.String("operation", cut(a.GetOperation(), maxLogged)),
		slog.String("resource", cut(a.GetResource().GetResource(), maxLogged)),
		slog.String("outcome", o.Effect.String()),
		slog.String("kind", o.Failure.Kind.String()),
		slog.String("policy", string(o.Hook.FailurePolicy)),
		slog.Duration("timeout", o.Hook.Timeout),
		slog.Any("error", o.Failure.Err),
	}
	if c != nil {
		attrs = append(attrs, slog.Duration("duration", c.duration()))
	}
	if o.Effect == chain.FailedOpen && o.Hook.FailsClosed() {
		attrs = append(attrs, slog.String("bypass", match.BypassFailOpen))
	}
	host := "host"
	if o.Hook.Initializes() && !o.Hook.Route.Stream {
		host = "controller"
	}
	for _, named := range []struct{ key, value string }{
		{"namespace", a.GetNamespace()}, {"name", objectName(a)}, {"instance", o.Timing.Instance},
		{"queued", spell(o.Timing.Queued)}, {"wire", spell(o.Timing.Wire)}, {host, spell(o.Timing.Host)},
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
