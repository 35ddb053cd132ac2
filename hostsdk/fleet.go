package hostsdk

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/clock"
)

// fleet is the shell around the roster: it resolves names, and runs a link to every dispatcher that the roster wants.
type fleet struct {
	host     *Host
	handlers sync.WaitGroup // of all sessions

	// resolveNow holds a wake-up for each name.
	resolveNow map[string]chan struct{}

	// launch starts a link and returns what stops it; set by run before anything else starts.
	launch func(t target) context.CancelFunc

	mu      sync.Mutex
	closed  bool // no more links are started
	roster  *roster
	running map[string]context.CancelFunc // of links, by key
	links   sync.WaitGroup
	cutOff  error // a session whose calls did not finish in time
}

func newFleet(h *Host) *fleet {
	f := &fleet{
		host:       h,
		resolveNow: map[string]chan struct{}{},
		roster:     newRoster(h.options.Dispatchers, h.options.ServerName),
		running:    map[string]context.CancelFunc{},
	}
	for _, name := range h.options.Dispatchers {
		f.resolveNow[name] = make(chan struct{}, 1)
	}
	return f
}

// run holds sessions to all dispatchers until ctx ends and they have drained.
func (f *fleet) run(ctx context.Context) error {
	f.launch = func(t target) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		f.links.Go(func() {
			defer cancel()
			(&link{fleet: f, target: t}).run(ctx)
			f.change(func(r *roster) plan {
				delete(f.running, t.key)
				return r.gone(t.key)
			})
		})
		return cancel
	}
	var resolvers sync.WaitGroup
	for name, now := range f.resolveNow {
		resolvers.Go(func() { f.resolve(ctx, name, now) })
	}
	<-ctx.Done()
	begun, running := time.Now(), len(f.host.caller.slots)
	resolvers.Wait()
	f.close()
	f.links.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.host.options.Logger.Info("host stopped",
		slog.Bool("drained", f.cutOff == nil), slog.Int("calls_in_flight", running), slog.Duration("took", time.Since(begun)))
	return f.cutOff
}

// close keeps further links from being started.
func (f *fleet) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// resolve keeps the addresses of one name. When it cannot be resolved the last ones are kept.
func (f *fleet) resolve(ctx context.Context, name string, now <-chan struct{}) {
	host, _, _ := net.SplitHostPort(name) // New has checked it.
	timer := time.NewTimer(resolveInterval)
	defer timer.Stop()
	said := ""
	for {
		ips, err := f.lookup(ctx, host)
		if err == nil {
			said = ""
			f.change(func(r *roster) plan { return r.resolve(name, ips) })
		} else if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			f.host.options.Logger.Warn("dispatchers cannot be resolved", slog.String("name", name), slog.Any("error", err))
		}
		timer.Reset(resolveInterval)
		select {
		case <-timer.C:
		case <-now:
		case <-ctx.Done():
			return
		}
	}
}

func (f *fleet) lookup(ctx context.Context, host string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveInterval)
	defer cancel()
	ips, err := f.host.options.Resolver.LookupHost(ctx, host)
	if err == nil && len(ips) == 0 {
		return nil, errors.New("no addresses")
	}
	return ips, err
}

// change lets the roster decide, and carries out its plan.
func (f *fleet) change(decide func(r *roster) plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	p := decide(f.roster)
	for _, key := range p.stop {
		f.running[key]()
	}
	for _, t := range p.start {
		f.running[t.key] = f.launch(t)
	}
}

// lost resolves all names anew: a dispatcher that is gone may be back elsewhere.
func (f *fleet) lost() {
	for _, now := range f.resolveNow {
		wake(now)
	}
}

func (f *fleet) cut(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutOff = err
}

// link keeps a session to one target.
type link struct {
	target
	fleet *fleet

	at       endpoint // in use
	welcome  bool     // the session in use was accepted
	attempts int      // since the last useful session
	said     string   // the last complaint
}

var _ listener = (*link)(nil)

// run dials the target and serves it, again and again until ctx ends.
func (l *link) run(ctx context.Context) {
	wait := l.delay
	for turn := 0; clock.Sleep(ctx, wait); turn++ {
		l.at = l.endpoints[turn%len(l.endpoints)]
		err := l.serve(ctx)
		l.report(ctx, err)
		l.fleet.change(func(r *roster) plan { return r.ended(l.key) })
		wait = backoffDelay(l.attempts, rand.Float64())
		l.attempts++
	}
}

// serve dials and holds one session.
func (l *link) serve(ctx context.Context) error {
	h := l.fleet.host
	conn, err := h.dial(l.at)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // The session has ended: nothing is lost with it.
	l.welcome = false
	s := h.newSession(l, &l.fleet.handlers)
	err = s.run(ctx, func(ctx context.Context) (Stream, error) { return connect(ctx, conn) })
	if s.wasUseful() {
		l.attempts = 0
	}
	return err
}

// report logs the end of a session, and of several failures alike the first.
func (l *link) report(ctx context.Context, err error) {
	logger := l.fleet.host.options.Logger.With(slog.String("address", l.at.address))
	switch {
	case errors.Is(err, errDrained):
		l.fleet.cut(err)
		logger.Warn("session drained in part", slog.Any("error", err))
	case ctx.Err() != nil:
		logger.Debug("session drained", slog.Any("error", err))
	case l.welcome:
		l.said = ""
		l.fleet.lost()
		logger.Info("session ended", slog.Any("error", err))
	case err != nil && err.Error() != l.said:
		l.said = err.Error()
		logger.Warn("no session, trying on", slog.Any("error", err))
	}
}

func (l *link) welcomed(s *session, w *hostv1.Welcome) {
	l.welcome = true
	l.fleet.host.board.welcomed(s, w)
	l.fleet.change(func(r *roster) plan { return r.welcomed(l.key, l.at, w.GetDispatcherId(), w.GetPeers()) })
}

func (l *link) hookChanged(s *session, h *hostv1.HookState) { l.fleet.host.board.hookChanged(s, h) }

func (l *link) leaving(s *session, d *hostv1.DispatcherDrain) {
	l.fleet.host.board.leaving(s, d)
	l.fleet.change(func(r *roster) plan { return r.leaving(l.key, l.at, d.GetPeers()) })
}

func (l *link) ended(s *session) { l.fleet.host.board.ended(s) }
