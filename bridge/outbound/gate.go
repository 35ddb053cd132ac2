package outbound

import "github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"

// gate decides which calls are under way and which wait, fair between clusters: a cluster has at most three times as many
// calls under way as it leaves free for the others, and the lines of the clusters are served in turn. Of the calls under way, so
// many may be without a connection as its window says. It starts small, grows with each connection that is made, and is small
// again when a connection fails: a webhook that does not connect gets MaxConnecting calls at a time.
//
// A gate has no lock, no clock and no goroutine. No call waits that could start: whatever makes room returns those that start.
type gate struct {
	slots      fairqueue.Shares // calls under way
	connecting fairqueue.Shares // those of them that have no connection yet; its limit is the window
	smallest   int              // window
	waiting    fairqueue.Queue[*pass]
}

// pass is one call at a gate. A call that comes to several gates has one for each.
type pass struct {
	cluster string
	state   passState
	entry   *fairqueue.Entry[*pass] // while it waits
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

// newGate makes a gate for so many calls under way, with its smallest window.
func newGate(calls, window int) gate {
	window = min(window, calls)
	return gate{
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
	p.state, p.entry = passWaiting, g.waiting.Push(p.cluster, p)
	return false
}

// start lets a call start if it may.
func (g *gate) start(p *pass) bool {
	if !g.slots.Allows(p.cluster) || !g.connecting.Allows(p.cluster) {
		return false
	}
	g.slots.Take(p.cluster)
	g.connecting.Take(p.cluster)
	p.state = passConnecting
	return true
}

// connected takes note that a call has a connection, and whether it was made for it. It returns the calls that start.
func (g *gate) connected(p *pass, made bool) (started []*pass) {
	if p.state != passConnecting {
		return nil
	}
	p.state = passConnected
	g.connecting.Give(p.cluster)
	if made && g.connecting.Limit() < g.slots.Limit() {
		g.connecting.Resize(g.connecting.Limit() + 1)
	}
	return g.serve()
}

// failed takes note that a connection could not be made.
func (g *gate) failed() {
	g.connecting.Resize(g.smallest)
}

// leave is the end of a call, wherever it is. It returns the calls that start.
func (g *gate) leave(p *pass) (started []*pass) {
	switch p.state {
	case passOutside:
		return nil
	case passWaiting:
		g.waiting.Remove(p.entry) // Whoever was behind it could not have started before it.
	case passConnecting:
		g.connecting.Give(p.cluster)
		g.slots.Give(p.cluster)
		started = g.serve()
	case passConnected:
		g.slots.Give(p.cluster)
		started = g.serve()
	}
	p.state, p.entry = passOutside, nil
	return started
}

// serve lets calls start that waited.
func (g *gate) serve() (started []*pass) {
	if g.waiting.Len() == 0 {
		return nil
	}
	room := func() bool { return !g.slots.Full() && !g.connecting.Full() }
	g.waiting.Serve(room, func(p *pass) bool {
		if !g.start(p) {
			return false
		}
		p.entry = nil
		started = append(started, p)
		return true
	})
	return started
}
