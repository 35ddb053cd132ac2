package hostsdk

import (
	"context"
	"log/slog"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// start has handlers run, each under the deadline of its call.
func (s *session) start(some []invocation) {
	for i := range some {
		some[i].session = s
		some[i].ctx.begin(s.handling, some[i].deadline)
	}
	s.crew.add(some)
}

// run calls the handler and sends its verdict, also when the handler ends this goroutine.
func (i *invocation) run() {
	defer i.finish()
	i.session.caller.run(i)
}

// finish sends the verdict.
func (i *invocation) finish() {
	i.ctx.finish()
	i.verdict.CallId, i.verdict.HookIndex = i.id, i.index
	encoded := i.session.caller.encode(i.scratch[:0], &i.verdict)
	toSend := i.session.decide(func(st *state, now time.Time) (none effects) {
		st.finished(now, i.pair, &i.verdict, encoded)
		return none
	})
	if toSend {
		i.session.flush()
	}
}

// probe asks the hooks of a name whether they are ready.
func (s *session) probe(p *hostv1.Probe) {
	s.handlers.Go(func() {
		ctx, stop := context.WithTimeout(s.handling, probeTimeout)
		defer stop()
		notReady := error(NewError("the probe ended its goroutine", nil))
		defer func() {
			s.step(func(st *state, _ time.Time) (none effects) { st.probed(p.GetSeq(), notReady); return none })
		}()
		notReady = s.ready(ctx, p.GetHook())
	})
}

// ready is nil when the hooks of a name can judge reviews.
func (s *session) ready(ctx context.Context, name string) (notReady error) {
	defer func() {
		if value := recover(); value != nil {
			s.logger.ErrorContext(ctx, "probe panicked", slog.String("hook", name), slog.Any("panic", value))
			notReady = NewError("the probe panicked", nil)
		}
	}()
	for _, stage := range []admissionv1.Stage{admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE} {
		h := s.hooks[hookID{name, stage}]
		if h == nil || h.probe == nil {
			continue
		}
		if err := h.probe(ctx); err != nil {
			s.logger.WarnContext(ctx, "hook is not ready", slog.String("hook", name), slog.Any("error", err))
			return err
		}
	}
	return nil
}
