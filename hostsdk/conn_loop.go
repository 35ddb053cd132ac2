package hostsdk

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
)

// connLoop keeps a session to one dispatcher: it dials, serves, and dials again. It is the listener of its sessions: it
// passes their reports to the board, and the addresses of dispatchers to the dial plan.
type connLoop struct {
	*board
	dialTarget
	manager *connManager

	at        endpoint // in use
	accepted  bool     // the session in use was welcomed
	attempts  int      // since the last useful session
	lastError string   // that was logged
}

var _ listener = (*connLoop)(nil)

func (l *connLoop) keepSession(ctx context.Context) {
	wait := l.delay
	for turn := 0; sleep(ctx, wait); turn++ {
		l.at = l.endpoints[turn%len(l.endpoints)]
		err := l.serveOnce(ctx)
		l.report(ctx, err)
		l.manager.change(func(p *dialPlan) dialChanges { return p.ended(l.key) })
		wait = backoffDelay(l.attempts, rand.Float64())
		l.attempts++
	}
}

// serveOnce dials and holds one session.
func (l *connLoop) serveOnce(ctx context.Context) error {
	h := l.manager.host
	conn, err := h.dial(l.at)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // The session has ended: nothing is lost with it.
	l.accepted = false
	s := h.newSession(l, &l.manager.handlers)
	err = s.serveStream(ctx, func(ctx context.Context) (Stream, error) { return connect(ctx, conn) })
	if s.wasUseful() {
		l.attempts = 0
	}
	if err != nil && !l.accepted && ctx.Err() == nil {
		err = h.options.TLS.explain(err, time.Now())
	}
	return err
}

// report logs the end of a session; of equal failures in a row, the first.
func (l *connLoop) report(ctx context.Context, err error) {
	logger := l.manager.host.options.Logger.With(slog.String("address", l.at.address))
	switch {
	case errors.Is(err, errDrained):
		l.manager.noteCutOff(err)
		logger.Warn("session drained in part", slog.Any("error", err))
	case ctx.Err() != nil:
		logger.Debug("session drained", slog.Any("error", err))
	case l.accepted:
		l.lastError = ""
		l.manager.resolveAll()
		logger.Info("session ended", slog.Any("error", err))
	case err != nil && err.Error() != l.lastError:
		l.lastError = err.Error()
		logger.Warn("no session, trying on", slog.Any("error", err))
	}
}

func (l *connLoop) welcomed(s *session, w *hostv1.Welcome) {
	l.accepted = true
	l.board.welcomed(s, w)
	l.manager.change(func(p *dialPlan) dialChanges { return p.welcomed(l.key, l.at, w.GetDispatcherId(), w.GetPeers()) })
}

func (l *connLoop) leaving(s *session, d *hostv1.DispatcherDrain) {
	l.board.leaving(s, d)
	l.manager.change(func(p *dialPlan) dialChanges { return p.leaving(l.key, l.at, d.GetPeers()) })
}

// backoffDelay returns the pause after attempts failures in a row: longer each time, and random by chance, 0 to 1, so that
// the hosts of a dispatcher that restarts do not come back all at once.
func backoffDelay(attempts int, chance float64) time.Duration {
	most := backoffMax
	if attempts < 6 {
		most = min(backoffMax, 2*backoffMin<<attempts)
	}
	return backoffMin + time.Duration(chance*float64(most-backoffMin))
}

// sleep waits for d, or until ctx ends, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
