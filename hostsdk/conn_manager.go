package hostsdk

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// connManager resolves the names of the dispatchers, and runs a connLoop for each dispatcher of the dial plan.
type connManager struct {
	host     *Host
	handlers sync.WaitGroup // of all sessions

	// resolveNow holds a wake-up for each name.
	resolveNow map[string]chan struct{}

	// launch starts a loop and returns the function that stops it; set by serveAll before anything else starts.
	launch func(t dialTarget) context.CancelFunc

	mu      sync.Mutex
	closed  bool // no more loops are started
	plan    *dialPlan
	running map[string]context.CancelFunc // of loops, by key
	loops   sync.WaitGroup
	cutOff  error // a session whose calls did not finish in time
}

func newConnManager(h *Host) *connManager {
	m := &connManager{
		host:       h,
		resolveNow: map[string]chan struct{}{},
		plan:       newDialPlan(h.options.Dispatchers, h.options.ServerName),
		running:    map[string]context.CancelFunc{},
	}
	for _, name := range h.options.Dispatchers {
		m.resolveNow[name] = make(chan struct{}, 1)
	}
	return m
}

// serveAll holds sessions to all dispatchers until ctx ends and they have drained.
func (m *connManager) serveAll(ctx context.Context) error {
	m.launch = func(t dialTarget) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		m.loops.Go(func() {
			defer cancel()
			(&connLoop{board: m.host.board, dialTarget: t, manager: m}).keepSession(ctx)
			m.change(func(p *dialPlan) dialChanges {
				delete(m.running, t.key)
				return p.gone(t.key)
			})
		})
		return cancel
	}
	var resolvers sync.WaitGroup
	for name, now := range m.resolveNow {
		resolvers.Go(func() { m.resolve(ctx, name, now) })
	}
	<-ctx.Done()
	begun, running := time.Now(), len(m.host.caller.slots)
	resolvers.Wait()
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.loops.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host.options.Logger.Info("host stopped",
		slog.Bool("drained", m.cutOff == nil), slog.Int("calls_in_flight", running), slog.Duration("took", time.Since(begun)))
	return m.cutOff
}

// resolve keeps the addresses of one name current. While the name cannot be resolved the last addresses count.
func (m *connManager) resolve(ctx context.Context, name string, now <-chan struct{}) {
	host, _, _ := net.SplitHostPort(name) // New has checked it.
	timer := time.NewTimer(resolveInterval)
	defer timer.Stop()
	lastError := ""
	for {
		ips, err := m.lookup(ctx, host)
		if err == nil {
			lastError = ""
			m.change(func(p *dialPlan) dialChanges { return p.resolved(name, ips) })
		} else if err.Error() != lastError && ctx.Err() == nil {
			lastError = err.Error()
			m.host.options.Logger.Warn("dispatchers cannot be resolved", slog.String("name", name), slog.Any("error", err))
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

func (m *connManager) lookup(ctx context.Context, host string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveInterval)
	defer cancel()
	ips, err := m.host.options.Resolver.LookupHost(ctx, host)
	if err == nil && len(ips) == 0 {
		return nil, errors.New("no addresses")
	}
	return ips, err
}

// change updates the dial plan, and starts and stops loops as it says.
func (m *connManager) change(update func(p *dialPlan) dialChanges) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	changes := update(m.plan)
	for _, key := range changes.stop {
		m.running[key]()
	}
	for _, t := range changes.start {
		m.running[t.key] = m.launch(t)
	}
}

// resolveAll resolves all names at once: a dispatcher that is gone may be back at another address.
func (m *connManager) resolveAll() {
	for _, now := range m.resolveNow {
		wake(now)
	}
}

func (m *connManager) noteCutOff(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutOff = err
}
