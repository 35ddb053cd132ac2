package outbound

import (
	"context"
	"sync"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// callLimit bounds the calls in flight, to each target and to all, fair between clusters: of the calls in flight a cluster has
// at most three times as many as it leaves free for the others, and the lines of the clusters are served in turn.
//
// A call that waits holds no slot: it takes one at its target and one among all calls together, when it starts. So calls that
// wait for one thing do not keep others from another, and no two of them wait for each other. No call waits that could start:
// whatever frees a slot starts the calls that may have it.
type callLimit struct {
	mu      sync.Mutex                   // of the gates and permits too
	arrived fairqueue.Shares             // calls in flight and waiting
	slots   fairqueue.Shares             // calls in flight
	parked  fairqueue.Queue[*callPermit] // the first of each line that waits only for its cluster's calls to other targets
}

// gate is the limit on the calls to one target. Of the calls in flight only as many may be without a connection as its window
// says. The window starts small, grows with each connection that is made, and is small again when a connection fails: a webhook
// that does not connect gets maxConnecting calls at a time.
type gate struct {
	slots      fairqueue.Shares // calls in flight
	connecting fairqueue.Shares // calls in flight without a connection; its limit is the window
	smallest   int              // window
	waiting    fairqueue.Queue[*callPermit]
}

// callPermit is the state of one call at a callLimit.
type callPermit struct {
	cluster string
	gate    *gate
	state   permitState
	entry   *fairqueue.Entry[*callPermit] // of the gate, while the call waits
	parked  *fairqueue.Entry[*callPermit] // while the call is parked
	started chan struct{}                 // closed when a call starts that had to wait
}

type permitState int

const (
	permitOutside permitState = iota // before the call comes, and when it has left
	permitWaiting
	permitConnecting // in flight
	permitConnected  // in flight
)

func newCallLimit(calls, waiting int) *callLimit {
	return &callLimit{
		arrived: fairqueue.NewShares(calls+waiting, fairqueue.ArrivalParts),
		slots:   fairqueue.NewShares(calls, fairqueue.GrowthParts),
	}
}

func newGate(calls, window int) gate {
	window = min(window, calls)
	return gate{
		slots:      fairqueue.NewShares(calls, fairqueue.GrowthParts),
		connecting: fairqueue.NewShares(window, fairqueue.GrowthParts),
		smallest:   window,
	}
}

// arrive counts a call of a cluster until it departs, or refuses it if there are too many.
func (l *callLimit) arrive(cluster string) *review.Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return arrive(&l.arrived, cluster, "webhooks")
}

func (l *callLimit) depart(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived.Give(cluster)
}

// wait returns when the call has started: then it leaves. If ctx ends before, waitedFor names the limit.
func (l *callLimit) wait(ctx context.Context, p *callPermit) (waitedFor string, started bool) {
	if ctx.Err() != nil {
		return "waiting for its turn", false
	}
	if l.enter(p) {
		return "", true
	}
	select {
	case <-p.started:
		return "", true
	case <-ctx.Done():
		return l.giveUp(p), false
	}
}

// enter starts the call if it may start, or puts it in line and reports false.
func (l *callLimit) enter(p *callPermit) (started bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start(p) {
		return true
	}
	p.started = make(chan struct{})
	p.state, p.entry = permitWaiting, p.gate.waiting.Push(p.cluster, p)
	if p.gate.waiting.LenOf(p.cluster) == 1 {
		l.park(p)
	}
	return false
}

// giveUp ends a call that waits, though it may have started meanwhile.
func (l *callLimit) giveUp(p *callPermit) (waitedFor string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waitedFor = p.waitsFor()
	l.end(p)
	return waitedFor
}

// leave ends a call that has started.
func (l *callLimit) leave(p *callPermit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(p)
}

// connected notes that a call has a connection, and whether it was made for it.
func (l *callLimit) connected(p *callPermit, made bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state != permitConnecting {
		return
	}
	p.state = permitConnected
	g := p.gate
	g.connecting.Give(p.cluster)
	if made && g.connecting.Limit() < g.slots.Limit() {
		g.connecting.Resize(g.connecting.Limit() + 1)
	}
	l.serve(g)
}

// failed notes that a connection could not be made for a call.
func (l *callLimit) failed(p *callPermit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.gate.connecting.Resize(p.gate.smallest)
}

func (l *callLimit) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots.Used()
}

// The methods below need the lock.

func (l *callLimit) start(p *callPermit) bool {
	g := p.gate
	if !g.allows(p.cluster) || !l.slots.Allows(p.cluster) {
		return false
	}
	l.unpark(p)
	l.slots.Take(p.cluster)
	g.slots.Take(p.cluster)
	g.connecting.Take(p.cluster)
	p.state, p.entry = permitConnecting, nil
	if p.started != nil {
		close(p.started)
	}
	return true
}

func (l *callLimit) end(p *callPermit) {
	g, was := p.gate, p.state
	p.state = permitOutside
	switch was {
	case permitOutside:
		return
	case permitWaiting:
		l.forget(p)
		return
	case permitConnecting:
		g.connecting.Give(p.cluster)
	case permitConnected:
	}
	g.slots.Give(p.cluster)
	l.slots.Give(p.cluster)
	l.serveParked()
	l.serve(g)
}

// forget takes a call out of its line. The next of the line may be parked in its place.
func (l *callLimit) forget(p *callPermit) {
	parked := p.parked != nil
	l.unpark(p)
	p.gate.waiting.Remove(p.entry)
	p.entry = nil
	if parked {
		l.serve(p.gate)
	}
}

// serve starts calls that wait at a gate, and parks those that now wait only for other calls of their cluster.
func (l *callLimit) serve(g *gate) {
	if g.waiting.Len() == 0 {
		return
	}
	free := func() bool { return !g.slots.Full() && !g.connecting.Full() }
	g.waiting.Serve(free, func(p *callPermit) bool {
		started := l.start(p)
		if !started {
			l.park(p)
		}
		return started
	})
}

// serveParked serves the gates of the parked calls, in the turns of their clusters, while slots are free.
func (l *callLimit) serveParked() {
	for p := l.nextParked(); p != nil; p = l.nextParked() {
		l.serve(p.gate)
	}
}

// nextParked takes out the next parked call whose cluster may start one more.
func (l *callLimit) nextParked() (next *callPermit) {
	if l.parked.Len() == 0 {
		return nil
	}
	free := func() bool { return next == nil && !l.slots.Full() }
	l.parked.Serve(free, func(p *callPermit) bool {
		if l.slots.Allows(p.cluster) {
			next = p
		}
		return next != nil
	})
	if next != nil {
		next.parked = nil
	}
	return next
}

// park notes the first call of a line if its gate would let it start.
func (l *callLimit) park(p *callPermit) {
	if p.parked == nil && p.gate.allows(p.cluster) {
		p.parked = l.parked.Push(p.cluster, p)
	}
}

func (l *callLimit) unpark(p *callPermit) {
	l.parked.Remove(p.parked)
	p.parked = nil
}

func (g *gate) allows(cluster string) bool {
	return g.slots.Allows(cluster) && g.connecting.Allows(cluster)
}

func (p *callPermit) waitsFor() string {
	switch {
	case !p.gate.slots.Allows(p.cluster):
		return "waiting for other calls to the same webhook"
	case !p.gate.connecting.Allows(p.cluster):
		return "waiting for other calls to connect to the same webhook"
	}
	return "waiting for other webhook calls"
}
