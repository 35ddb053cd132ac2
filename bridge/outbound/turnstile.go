package outbound

import (
	"context"
	"sync"
)

// turnstile is a gate that goroutines wait at. Its lock is that of the gate and of its parts in all targets.
type turnstile struct {
	mu   sync.Mutex
	gate gate
}

func newTurnstile(calls int) *turnstile {
	return &turnstile{gate: newGate(calls)}
}

// wait lets a call of a cluster to a target in, and reports whether it is before ctx has ended; waitedFor is what was in its way
// if it is not. A call that is in leaves.
func (t *turnstile) wait(ctx context.Context, p *pass, to *target, cluster string) (waitedFor string, in bool) {
	p.cluster, p.target = cluster, &to.gate
	if ctx.Err() != nil {
		return "waiting for its turn", false
	}
	if t.enter(p) {
		return "", true
	}
	select {
	case <-p.started:
		return "", true
	case <-ctx.Done():
		return t.giveUp(p), false
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

// giveUp is the end of a call that waits, though it may have started meanwhile. It says what was in its way.
func (t *turnstile) giveUp(p *pass) (waitedFor string) {
	t.mu.Lock()
	waitedFor = p.waitsFor()
	started := t.gate.leave(p)
	t.mu.Unlock()
	wake(started)
	return waitedFor
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

// failed takes note that a connection could not be made for a call.
func (t *turnstile) failed(p *pass) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.target.failed()
}

// underWay counts the calls that are in.
func (t *turnstile) underWay() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gate.slots.Used()
}

// wake goes on with the goroutines of calls that waited.
func wake(started []*pass) {
	for _, p := range started {
		close(p.started)
	}
}
