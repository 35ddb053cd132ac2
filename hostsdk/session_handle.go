package hostsdk

import (
	"context"
	"log/slog"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

func (s *session) startHandlers(some []invocation) {
	for i := range some {
		some[i].session = s
		some[i].ctx.init(s.handling, some[i].deadline)
	}
	s.pool.enqueue(some)
}

// runHandler calls the handler and sends its verdict, also when the handler ends this goroutine.
func (i *invocation) runHandler() {
	defer i.sendVerdict()
	i.session.caller.callInSlot(i)
}

func (i *invocation) sendVerdict() {
	i.ctx.handlerReturned()
	i.verdict.CallId, i.verdict.HookIndex = i.id, i.index
	encoded := i.session.caller.encode(i.scratch[:0], &i.verdict)
	toSend := i.session.stepUnsent(func(st *state, now time.Time) (none effects) {
		st.finished(now, i.pair, &i.verdict, encoded)
		return none
	})
	if toSend {
		i.session.flush()
	}
}

// runProbe runs the readiness probes of the hooks of a name.
func (s *session) runProbe(p *hostv1.Probe) {
	s.handlers.Go(func() {
		ctx, stop := context.WithTimeout(s.handling, probeTimeout)
		defer stop()
		notReady := error(NewError("the probe ended its goroutine", nil))
		defer func() {
			s.step(func(st *state, _ time.Time) (none effects) { st.probed(p.GetSeq(), notReady); return none })
		}()
		notReady = s.probeHooks(ctx, p.GetHook())
	})
}

// probeHooks returns nil if all hooks of a name are ready.
func (s *session) probeHooks(ctx context.Context, name string) (notReady error) {
	defer func() {
		if value := recover(); value != nil {
			s.logger.ErrorContext(ctx, "probe panicked", slog.String("hook", name), slog.Any("panic", value))
			notReady = NewError("the probe panicked", nil)
		}
	}()
	for _, stage := range stages() {
		h := s.hooks[hookID{name, stage}]
		if h == nil || h.probe == nil {
			continue
		}
		if err := h.probe(ctx); err != nil {
			s.logger.WarnContext(ctx, "hook is not ready", slog.String("hook", name), slog.Any("error", err))
			return NewError(publicText(err, notReadyYet), nil)
		}
	}
	return nil
}
