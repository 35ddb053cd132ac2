package outbound

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/fairqueue"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// targetKey tells targets apart. Who calls is not part of it: that follows from the service or the host.
type targetKey struct {
	service Service
	host    string // of the URL, with its port if it has one
	address string // of a service
	ca      string
}

// target is an address with its CA bundle, and the connections to it.
type target struct {
	key     targetKey
	made    time.Time
	open    func() error            // makes the carrier, once
	carrier atomic.Pointer[carrier] // of the calls; nil until it is open

	gate targetGate // under the lock of the turnstile

	// Under the lock of targets.
	used  time.Time
	in    fairqueue.Shares // of the calls that have acquired and not yet released it
	gone  bool
	place *list.Element
}

// targets are the targets that were called lately.
type targets struct {
	limit, maxCalls, maxWaiting int
	carry                       func(e *endpoint) (*carrier, error)

	mu     sync.Mutex
	byKey  map[targetKey]*target
	recent *list.List // of *target, the last used first
}

func newTargets(o Options, carry func(e *endpoint) (*carrier, error)) *targets {
	return &targets{
		limit: o.MaxTargets, maxCalls: o.MaxTargetCalls, maxWaiting: o.MaxTargetWaiting, carry: carry,
		byKey: make(map[targetKey]*target), recent: list.New(),
	}
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
		if !opened { // Not remembered, also after a panic: what is wrong may be a file that will be right the next time.
			t.forget(x)
			t.release(x, cluster)
		}
	}()
	if err := x.open(); err != nil {
		return nil, notStarted(review.FailureUnavailable, "preparing connections to %s: %w", e.url.Host, err)
	}
	opened = true
	return x, nil
}

// release is the end of a call of a cluster to a target.
func (t *targets) release(x *target, cluster string) {
	if t.leave(x, cluster) {
		x.close()
	}
}

// close forgets all targets. Those that are in use close their connections when they are released.
func (t *targets) close() {
	for _, x := range t.clear() {
		x.close()
	}
}

// enter finds or makes a target and counts the call. unused are targets that were forgotten on the way.
func (t *targets) enter(e *endpoint, cluster string, now time.Time) (x *target, unused []*target, f *review.Failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x = t.byKey[targetKey{service: e.service, host: e.url.Host, address: e.address, ca: string(e.ca)}]
	if x != nil && x.worn(now) {
		unused = t.drop(x, unused)
		x = nil
	}
	if x == nil {
		unused = t.makeRoom(now, unused)
		x = t.add(e, now)
	}
	if !x.in.Allows(cluster) {
		return nil, unused, overload(&x.in, cluster, e.url.Host)
	}
	x.in.Take(cluster)
	x.used = now
	t.recent.MoveToFront(x.place)
	return x, unused, nil
}

// leave uncounts a call and says whether the target is to be closed.
func (t *targets) leave(x *target, cluster string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.in.Give(cluster)
	return x.gone && x.in.Used() == 0
}

func (t *targets) forget(x *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(x, nil)
}

func (t *targets) clear() (unused []*target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.recent.Len() > 0 {
		unused = t.drop(t.last(), unused)
	}
	return unused
}

func (t *targets) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byKey)
}

// add makes a target. The lock is held.
func (t *targets) add(e *endpoint, now time.Time) *target {
	x := &target{
		key:  targetKey{service: e.service, host: e.url.Host, address: e.address, ca: string(e.ca)},
		gate: newTargetGate(t.maxCalls, MaxConnecting),
		in:   fairqueue.NewShares(t.maxCalls+t.maxWaiting, fairqueue.ArrivalParts),
		made: now,
	}
	x.open = sync.OnceValue(func() error {
		c, err := t.carry(e)
		x.carrier.Store(c)
		return err
	})
	x.place = t.recent.PushFront(x)
	t.byKey[x.key] = x
	return x
}

// makeRoom forgets targets that nobody has used for long, and the last one when there are too many. The lock is held.
func (t *targets) makeRoom(now time.Time, unused []*target) []*target {
	for t.recent.Len() > 0 {
		last := t.last()
		if len(t.byKey) < t.limit && (last.in.Used() > 0 || now.Sub(last.used) <= ForgetAfter) {
			break
		}
		unused = t.drop(last, unused)
	}
	return unused
}

// last is the target that was not used for the longest time. The lock is held.
func (t *targets) last() *target {
	x, _ := t.recent.Back().Value.(*target)
	return x
}

// drop forgets a target and adds it to unused when no call uses it. The lock is held.
func (t *targets) drop(x *target, unused []*target) []*target {
	if x.gone {
		return unused
	}
	x.gone = true
	delete(t.byKey, x.key)
	t.recent.Remove(x.place)
	if x.in.Used() > 0 {
		return unused
	}
	return append(unused, x)
}

// worn says whether the client certificate of the connections may have been rotated since they were opened.
func (x *target) worn(now time.Time) bool {
	c := x.carrier.Load()
	return c != nil && c.renew && now.Sub(x.made) > RenewAfter
}

// close closes the connections of a target that nobody uses. Those that are still busy close when they are not any more.
func (x *target) close() {
	if c := x.carrier.Load(); c != nil {
		c.idle()
	}
}
