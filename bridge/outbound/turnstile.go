package outbound

import (
	"context"
	"sync"
)

// turnstile is a gate that goroutines wait at.
type turnstile struct {
	mu   sync.Mutex
	gate gate
}

func newTurnstile(calls, window int) *turnstile {
	return &turnstile{gate: newGate(calls, window)}
}

// wait lets a call of a cluster in, and reports whether it is before ctx has ended. A call that is in leaves.
func (t *turnstile) wait(ctx context.Context, p *pass, cluster string) bool {
	if ctx.Err() != nil {
		return false
	}
	p.cluster = cluster
	if t.enter(p) {
		return true
	}
	select {
	case <-p.started:
		return true
	case <-ctx.Done():
		t.leave(p) // It may have started meanwhile.
		return false
	}
}

func (t *turnstile) enter(p *pass) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gate.enter(p) {
		return true
	}
	p.started = make(chan struct{})
	return false
}

// leave is the end of a call that is in.
func (t *turnstile) leave(p *pass) {
	t.mu.Lock()
	started := t.gate.leave(p)
	t.mu.Unlock()
	wake(started)
}

// connected takes note that a call has a connection, and whether it was made for it.
func (t *turnstile) connected(p *pass, made bool) {
	t.mu.Lock()
	started := t.gate.connected(p, made)
	t.mu.Unlock()
	wake(started)
}

// failed takes note that a connection could not be made.
func (t *turnstile) failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gate.failed()
}

// underWay counts the calls that are in.
func (t *turnstile) underWay() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gate.slots.Used()
}

// awaitsConnections reports whether a call of a cluster would wait for nothing but the connections of others.
func (t *turnstile) awaitsConnections(cluster string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gate.slots.Allows(cluster) && !t.gate.connecting.Allows(cluster)
}

// wake goes on with the goroutines of calls that waited.
func wake(started []*pass) {
	for _, p := range started {
		close(p.started)
	}
}
