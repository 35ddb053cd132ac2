package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
)

const (
	// checkTimeout is how long a check of the webhook may take.
	checkTimeout = 2 * time.Second
	// downInterval is how often a webhook is checked that cannot be called.
	downInterval = 250 * time.Millisecond
	// readyInterval is how often one is checked that can, if it has a check of its own.
	readyInterval = 2 * time.Second
	// maxUnready is how many such checks fail in a row when the host pauses: kubelet's failureThreshold.
	maxUnready = 3

	// DefaultSlots is with how many slots a host begins.
	DefaultSlots = 16
)

// Capacity takes the number of calls to take at a time, 0 for none. It is called from one goroutine. *hostsdk.Host is one.
type Capacity interface{ SetMaxOutstanding(n int) }

// GovernorOptions configure a governor.
type GovernorOptions struct {
	// Slots is the number to begin with; 0 means DefaultSlots, or MaxSlots if that is less.
	Slots int
	// MaxSlots is the largest number. Required.
	MaxSlots int
	// Slow is how long a call takes that is slow; 0 means half of the time that it has.
	Slow time.Duration
	// Connect returns an error when the webhook takes no connections. Required.
	Connect func(ctx context.Context) error
	// Ready returns an error when the webhook should not be called though it takes connections; nil means that there is no such
	// check.
	Ready func(ctx context.Context) error
	// Logger receives that the webhook is gone, and that it is back; nil means slog.Default.
	Logger *slog.Logger
}

func (o *GovernorOptions) defaults() error {
	switch {
	case o.MaxSlots <= 0:
		return errors.New("remote: GovernorOptions.MaxSlots is not positive")
	case o.Slots < 0 || o.Slots > o.MaxSlots:
		return errors.New("remote: GovernorOptions.Slots is negative, or more than MaxSlots")
	case o.Slow < 0:
		return errors.New("remote: GovernorOptions.Slow is negative")
	case o.Connect == nil:
		return errors.New("remote: GovernorOptions.Connect is not set")
	}
	o.Slots = cmp.Or(o.Slots, min(DefaultSlots, o.MaxSlots))
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return nil
}

// Governor decides how many calls a host takes for its webhook. It observes the calls, and checks the webhook when they find it gone:
// while it is gone the host takes none, so that other replicas are asked. Safe for concurrent use.
type Governor struct {
	options GovernorOptions
	wake    chan struct{} // holds one wake-up

	mu       sync.Mutex
	slots    slots
	down     bool // no calls
	suspect  bool // a call has found no connection, or lost it, since the last check
	failures int  // of checks, in a row
}

var _ adapt.Observer = (*Governor)(nil)

// NewGovernor makes a governor of a webhook that is down until it is found to be up.
func NewGovernor(o GovernorOptions) (*Governor, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	return &Governor{
		options: o, wake: make(chan struct{}, 1), slots: newSlots(o.Slots, o.MaxSlots, o.Slow), down: true,
	}, nil
}

// Began implements [adapt.Observer].
func (g *Governor) Began() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slots.began()
}

// Ended implements [adapt.Observer].
func (g *Governor) Ended(c adapt.Call) {
	g.mu.Lock()
	before := g.slots.count()
	g.slots.ended(c)
	news := g.slots.count() != before
	if c.Outcome == adapt.Unreachable || c.Outcome == adapt.Lost {
		g.suspect, news = true, true
	}
	g.mu.Unlock()
	if news {
		g.rouse()
	}
}

func (g *Governor) rouse() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Slots is how many calls the host takes now.
func (g *Governor) Slots() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		return 0
	}
	return g.slots.count()
}

// InFlight is how many calls the webhook has.
func (g *Governor) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots.flying
}

// Up reports whether the webhook can be called.
func (g *Governor) Up() bool { return g.Slots() > 0 }

// Await waits until the webhook can be called, or returns the cause of the end of ctx.
func (g *Governor) Await(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		g.check(ctx)
		if g.Up() {
			return nil
		}
		timer.Reset(downInterval)
	}
}

// Run tells the host how many calls to take until ctx ends. One at a time.
func (g *Governor) Run(ctx context.Context, host Capacity) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	told := -1
	for {
		due := false
		select {
		case <-g.wake:
		case <-timer.C:
			due = true
		case <-ctx.Done():
			return
		}
		if g.needsCheck(due) {
			g.check(ctx)
		}
		if n := g.Slots(); n != told {
			host.SetMaxOutstanding(n)
			told = n
		}
		if due {
			timer.Reset(g.interval())
		} else if !g.Up() {
			timer.Reset(downInterval)
		}
	}
}

func (g *Governor) needsCheck(due bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.suspect || due && (g.down || g.options.Ready != nil)
}

func (g *Governor) interval() time.Duration {
	if g.Up() {
		return readyInterval
	}
	return downInterval
}

// check looks whether the webhook can be called.
func (g *Governor) check(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	gone := g.options.Connect(bounded)
	var unready error
	if gone == nil && g.options.Ready != nil {
		unready = g.options.Ready(bounded)
	}
	if ctx.Err() != nil {
		return
	}
	g.checked(gone, unready, time.Now())
}

// checked notes the result of a check: the webhook takes no connections, or is not ready, or neither.
func (g *Governor) checked(gone, unready error, now time.Time) {
	g.mu.Lock()
	g.suspect = false
	was := g.down
	switch {
	case gone == nil && unready == nil:
		if g.failures = 0; was {
			g.slots.restart(g.options.Slots, now)
		}
		g.down = false
	case gone == nil:
		g.failures++
		g.down = was || g.failures >= maxUnready
	default:
		g.failures++
		g.down = true
	}
	is, first := g.down, g.failures == 1
	g.mu.Unlock()
	switch {
	case is && (!was || first):
		g.options.Logger.Warn("the webhook cannot be called: the host takes no calls", slog.Any("error", cmp.Or(gone, unready)))
	case was && !is:
		g.options.Logger.Info("the webhook can be called", slog.Int("slots", g.Slots()))
	}
}
