package observe

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

// logFailure logs a failure within the rate limit.
func (x *Observer) logFailure(ctx context.Context, r *review.Request, c *FinishedHook) {
	more, ok := x.failures.allow(failureKey{c.Hook.ID, c.Failure.Kind}, time.Now())
	if !ok {
		return
	}
	a := r.Admission
	attrs := []slog.Attr{
		slog.String("uid", Cut(a.GetUid(), maxLogged)),
		slog.String("cluster", a.GetCluster()),
		slog.String("stage", stageLabel(c.Hook.ID.Stage)),
		slog.String("configuration", c.Hook.ID.Configuration),
		slog.String("hook", c.Hook.ID.Name),
		slog.Uint64("round", uint64(c.Round)),
		slog.String("operation", Cut(a.GetOperation(), maxLogged)),
		slog.String("resource", Cut(a.GetResource().GetResource(), maxLogged)),
		slog.String("outcome", c.Effect.String()),
		slog.String("kind", c.Failure.Kind.String()),
		slog.String("policy", string(c.Hook.FailurePolicy)),
		slog.Duration("timeout", c.Hook.Timeout),
		slog.Any("error", c.Failure.Err),
	}
	if c.made() {
		attrs = append(attrs, slog.Duration("duration", c.took()))
	}
	if c.Effect == chain.FailedOpen && c.Hook.FailsClosed() {
		attrs = append(attrs, slog.String("bypass", match.BypassFailOpen))
	}
	host := "host"
	if c.Hook.Initializes() && !c.Hook.Route.Stream {
		host = "controller"
	}
	for _, named := range []struct{ key, value string }{
		{"namespace", a.GetNamespace()}, {"name", objectName(a)}, {"instance", c.Timing.Instance},
		{"queued", spell(c.Timing.Queued)}, {"wire", spell(c.Timing.Wire)}, {host, spell(c.Timing.Host)},
	} {
		if named.value != "" {
			attrs = append(attrs, slog.String(named.key, Cut(named.value, maxLogged)))
		}
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		attrs = append(attrs, slog.String("trace_id", span.TraceID().String()))
	}
	if more > 0 {
		attrs = append(attrs, slog.Int("more", more))
	}
	x.options.Logger.LogAttrs(ctx, slog.LevelWarn, "hook failed", attrs...)
}
