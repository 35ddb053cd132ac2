package outbound

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// targetKey identifies a target. The identity of the client is not part of it: it follows from the service or the host.
type targetKey struct {
	service Service
	host    string // of the URL, with its port if it has one
	address string // of a service
	ca      string
}

// target is an address with its CA bundle, and the connections to it.
type target struct {
	key       targetKey
	made      time.Time
	open      func() error                    // makes the transport, once
	transport atomic.Pointer[targetTransport] // nil until it is open

	gate gate // under the lock of callLimit

	// Under the lock of targets.
	used    time.Time
	arrived fairqueue.Shares // calls between acquire and release
	gone    bool
}

// targets are the targets that were called lately.
type targets struct {
	limits limits
	dial   func(e *endpoint) (*targetTransport, error)

	mu    sync.Mutex
	byKey map[targetKey]*target
}

func newTargets(l limits, dial func(e *endpoint) (*targetTransport, error)) *targets {
	return &targets{limits: l, dial: dial, byKey: make(map[targetKey]*target)}
}

// acquire returns the target of an endpoint for one call of a cluster, which releases it.
func (t *targets) acquire(e *endpoint, cluster string) (*target, *review.Failure) {
	x, unused, f := t.enter(e, cluster, time.Now())
	for _, u := range unused {
		u.close()
	}
	if f != nil {
		return nil, f
	}
	opened := false
	defer func() {
		if !opened { // Not remembered, also after a panic: a file that was wrong may be right the next time.
			t.forget(x)
			t.release(x, cluster)
		}
	}()
	if err := x.open(); err != nil {
		return nil, notStarted(failure(review.FailureUnavailable, "preparing connections to %s: %w", e.url.Host, err))
	}
	opened = true
	return x, nil
}

// release ends a call of a cluster to a target.
func (t *targets) release(x *target, cluster string) {
	t.mu.Lock()
	x.arrived.Give(cluster)
	unused := x.gone && x.arrived.Used() == 0
	t.mu.Unlock()
	if unused {
		x.close()
	}
}

// close forgets all targets. Those in use close their connections when they are released.
func (t *targets) close() {
	for _, x := range t.clear() {
		x.close()
	}
}

func (t *targets) clear() (unused []*target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.byKey {
		unused = t.drop(x, unused)
	}
	return unused
}

func (t *targets) forget(x *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(x, nil)
}

func (t *targets) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byKey)
}

// enter finds or makes a target and counts the call. unused are targets that were forgotten on the way.
func (t *targets) enter(e *endpoint, cluster string, now time.Time) (x *target, unused []*target, f *review.Failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x = t.byKey[targetKey{service: e.service, host: e.url.Host, address: e.address, ca: string(e.ca)}] // here ca is not copied
	if x != nil && x.outdated(now) {
		unused = t.drop(x, unused)
		x = nil
	}
	if x == nil {
		unused = t.evict(now, unused)
		x = t.add(e, now)
	}
	if f := arrive(&x.arrived, cluster, e.url.Host); f != nil {
		return nil, unused, f
	}
	x.used = now
	return x, unused, nil
}

// The methods below need the lock.

func (t *targets) add(e *endpoint, now time.Time) *target {
	x := &target{
		key:  targetKey{service: e.service, host: e.url.Host, address: e.address, ca: string(e.ca)},
		made: now, used: now,
		gate:    newGate(t.limits.targetCalls, maxConnecting),
		arrived: fairqueue.NewShares(t.limits.targetCalls+t.limits.targetWaiting, fairqueue.ArrivalParts),
	}
	x.open = sync.OnceValue(func() error {
		transport, err := t.dial(e)
		x.transport.Store(transport)
		return err
	})
	t.byKey[x.key] = x
	return x
}

// evict forgets targets that were unused for forgetAfter, and the least recently used target if there are too many.
func (t *targets) evict(now time.Time, unused []*target) []*target {
	var oldest *target
	for _, x := range t.byKey {
		switch {
		case x.arrived.Used() == 0 && now.Sub(x.used) > forgetAfter:
			unused = t.drop(x, unused)
		case oldest == nil || x.used.Before(oldest.used):
			oldest = x
		}
	}
	if len(t.byKey) >= t.limits.targets {
		unused = t.drop(oldest, unused)
	}
	return unused
}

// drop forgets a target and adds it to unused when no call uses it.
func (t *targets) drop(x *target, unused []*target) []*target {
	if x.gone {
		return unused
	}
	x.gone = true
	delete(t.byKey, x.key)
	if x.arrived.Used() > 0 {
		return unused
	}
	return append(unused, x)
}

// outdated reports whether the client certificate of the connections may have been rotated since they were opened.
func (x *target) outdated(now time.Time) bool {
	transport := x.transport.Load()
	return transport != nil && transport.renew && now.Sub(x.made) > renewAfter
}

// close closes the idle connections of a target without calls.
func (x *target) close() {
	if transport := x.transport.Load(); transport != nil {
		transport.closeIdle()
	}
}
