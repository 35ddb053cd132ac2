package etcdtest

import (
	"sync"
	"time"
)

// Gate cuts, delays or stops the connections that pass through it. It may be turned at any time, from any goroutine.
type Gate struct {
	mu    sync.Mutex
	now   passage
	sweep func() // ends the connections that a cut gate is in the way of
}

// passage is one state of a gate, until it is over.
type passage struct {
	cut, hung bool
	delay     time.Duration
	over      chan struct{} // closed when the gate is turned
}

func newGate(sweep func()) *Gate {
	return &Gate{now: passage{over: make(chan struct{})}, sweep: sweep}
}

// Cut ends all connections, and each new one at once.
func (g *Gate) Cut() { g.turn(passage{cut: true}); g.sweep() }

// Hang lets nothing through, and keeps the data that arrive meanwhile, like a stopped process.
func (g *Gate) Hang() { g.turn(passage{hung: true}) }

// Delay lets each piece through after a while: as a slow network or disk.
func (g *Gate) Delay(d time.Duration) { g.turn(passage{delay: d}) }

// Heal lets everything through.
func (g *Gate) Heal() { g.turn(passage{}) }

func (g *Gate) turn(next passage) {
	next.over = make(chan struct{})
	g.mu.Lock()
	old := g.now
	g.now = next
	g.mu.Unlock()
	close(old.over)
}

func (g *Gate) passage() passage {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// pass waits until bytes may go on. It returns false when the gate is cut, or gone is closed.
func (g *Gate) pass(gone <-chan struct{}) bool {
	for {
		p := g.passage()
		switch {
		case p.cut:
			return false
		case p.hung:
			select {
			case <-p.over:
			case <-gone:
				return false
			}
		case p.delay > 0:
			return wait(p.delay, gone)
		default:
			return true
		}
	}
}

// wait returns false when gone was closed before.
func wait(d time.Duration, gone <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-gone:
		return false
	}
}
