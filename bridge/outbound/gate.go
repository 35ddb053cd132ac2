package outbound

import "github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"

// gate decides which calls are under way and which wait, fair between clusters: of the calls under way, to one target and to
// all, a cluster has at most three times as many as it leaves free for the others, and the lines of the clusters are served in
// turn.
//
// A call that waits holds nothing: it takes its places, at its target and among all calls, at once when it starts. So calls
// that wait for one thing do not keep others from another, and no two of them wait for each other.
//
// A gate has no lock, no clock and no goroutine. No call waits that could start: whatever makes room returns those that start.
type gate struct {
	slots  fairqueue.Shares // calls under way, to all targets
	parked fairqueue.Queue[*pass]
}

// targetGate is the part of a gate for one target. Of the calls under way to it, so many may be without a connection as its
// window says. It starts small, grows with each connection that is made, and is small again when a connection fails: a webhook
// that does not connect gets MaxConnecting calls at a time.
type targetGate struct {
	slots      fairqueue.Shares // calls under way
	connecting fairqueue.Shares // those of them that have no connection yet; its limit is the window
	smallest   int              // window
	waiting    fairqueue.Queue[*pass]
}

// pass is one call at a gate.
type pass struct {
	cluster string
	target  *targetGate
	state   passState
	entry   *fairqueue.Entry[*pass] // while it waits
	parked  *fairqueue.Entry[*pass] // of the first call of a line, while only its cluster's calls to other targets are in its way
	started chan struct{}           // closed when a call that waited starts; of the turnstile
}

// passState says where a call is.
type passState int

const (
	passOutside passState = iota // before it comes, and when it has left
	passWaiting
	passConnecting // under way
	passConnected  // under way
)

// newGate makes a gate for so many calls under way.
func newGate(calls int) gate {
	return gate{slots: fairqueue.NewShares(calls, fairqueue.GrowthParts)}
}

// newTargetGate makes the part for a target that takes so many calls, with its smallest window.
func newTargetGate(calls, window int) targetGate {
	window = min(window, calls)
	return targetGate{
		slots:      fairqueue.NewShares(calls, fairqueue.GrowthParts),
		connecting: fairqueue.NewShares(window, fairqueue.GrowthParts),
		smallest:   window,
	}
}

// enter lets a call start, or wait: then it reports false.
func (g *gate) enter(p *pass) (started bool) {
	if g.start(p) {
		return true
	}
	p.state, p.entry = passWaiting, p.target.waiting.Push(p.cluster, p)
	if p.target.waiting.LenOf(p.cluster) == 1 {
		g.park(p)
	}
	return false
}

// start lets a call start if it may.
func (g *gate) start(p *pass) bool {
	t := p.target
	if !t.allows(p.cluster) || !g.slots.Allows(p.cluster) {
		return false
	}
	g.unpark(p)
	g.slots.Take(p.cluster)
	t.slots.Take(p.cluster)
	t.connecting.Take(p.cluster)
	p.state, p.entry = passConnecting, nil
	return true
}

// park remembers the first call of a line that waits for nothing of its target.
func (g *gate) park(p *pass) {
	if p.parked == nil && p.target.allows(p.cluster) {
		p.parked = g.parked.Push(p.cluster, p)
	}
}

func (g *gate) unpark(p *pass) {
	if p.parked != nil {
		g.parked.Remove(p.parked)
		p.parked = nil
	}
}

// connected takes note that a call has a connection, and whether it was made for it. It returns the calls that start.
func (g *gate) connected(p *pass, made bool) (started []*pass) {
	if p.state != passConnecting {
		return nil
	}
	p.state = passConnected
	t := p.target
	t.connecting.Give(p.cluster)
	if made && t.connecting.Limit() < t.slots.Limit() {
		t.connecting.Resize(t.connecting.Limit() + 1)
	}
	return g.serve(t, nil)
}

// failed takes note that a connection to a target could not be made.
func (t *targetGate) failed() {
	t.connecting.Resize(t.smallest)
}

// leave is the end of a call, wherever it is. It returns the calls that start.
func (g *gate) leave(p *pass) (started []*pass) {
	t, was := p.target, p.state
	p.state = passOutside
	switch was {
	case passOutside:
		return nil
	case passWaiting:
		return g.forget(p)
	case passConnecting:
		t.connecting.Give(p.cluster)
	case passConnected:
	}
	t.slots.Give(p.cluster)
	g.slots.Give(p.cluster)
	return g.serve(t, g.serveParked())
}

// forget takes a call out that waits. None starts, but the next of its line may be parked in its place.
func (g *gate) forget(p *pass) (started []*pass) {
	parked := p.parked != nil
	g.unpark(p)
	p.target.waiting.Remove(p.entry)
	p.entry = nil
	if !parked {
		return nil
	}
	return g.serve(p.target, nil)
}

// serve lets calls start that waited for a target, and parks those that now wait for other calls of their cluster alone.
func (g *gate) serve(t *targetGate, started []*pass) []*pass {
	if t.waiting.Len() == 0 {
		return started
	}
	room := func() bool { return !t.slots.Full() && !t.connecting.Full() }
	t.waiting.Serve(room, func(p *pass) bool {
		if !g.start(p) {
			g.park(p)
			return false
		}
		started = append(started, p)
		return true
	})
	return started
}

// serveParked serves the targets of the calls that are parked, in the turns of their clusters, as long as there is room.
func (g *gate) serveParked() (started []*pass) {
	for p := g.nextParked(); p != nil; p = g.nextParked() {
		started = g.serve(p.target, started)
	}
	return started
}

// nextParked takes out the next parked call whose cluster may start one more; nil when there is none.
func (g *gate) nextParked() (next *pass) {
	room := func() bool { return next == nil && !g.slots.Full() }
	g.parked.Serve(room, func(p *pass) bool {
		if g.slots.Allows(p.cluster) {
			next = p
		}
		return next != nil
	})
	if next != nil {
		next.parked = nil
	}
	return next
}

// allows reports whether a target takes one more call of a cluster.
func (t *targetGate) allows(cluster string) bool {
	return t.slots.Allows(cluster) && t.connecting.Allows(cluster)
}

// waitsFor says what is in the way of a call.
func (p *pass) waitsFor() string {
	switch {
	case !p.target.slots.Allows(p.cluster):
		return "waiting for other calls to the same webhook"
	case !p.target.connecting.Allows(p.cluster):
		return "waiting for other calls to connect to the same webhook"
	}
	return "waiting for other webhook calls"
}
