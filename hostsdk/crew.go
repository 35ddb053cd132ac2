package hostsdk

import "sync"

// crew runs handlers in goroutines of its own, which take invocations from a queue. Whoever takes one and leaves others
// calls the next goroutine before it runs a handler, which may block. One call is under way at a time: handlers that return
// at once are run one after the other by few goroutines, and those that wait hold up nobody. Safe for concurrent use.
type crew struct {
	handlers *sync.WaitGroup // counts the goroutines

	mu     sync.Mutex
	called sync.Cond // of mu
	queue  invocations
	idle   int  // goroutines that wait
	coming bool // one was called, and has not come: so it is whenever the queue is not empty
	closed bool
}

func newCrew(handlers *sync.WaitGroup) *crew {
	c := &crew{handlers: handlers}
	c.called.L = &c.mu
	return c
}

// add has invocations run.
func (c *crew) add(some []invocation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range some {
		c.queue.push(&some[i])
	}
	c.callLocked()
}

// close lets those go that have nothing to do.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.idle = true, 0
	c.called.Broadcast()
}

// callLocked calls a goroutine if one is needed, which is a new one if none waits.
func (c *crew) callLocked() {
	if c.queue.first == nil || c.coming {
		return
	}
	c.coming = true
	if c.idle > 0 {
		c.idle--
		c.called.Signal()
		return
	}
	c.handlers.Go(c.work)
}

// work runs handlers one after the other: a new goroutine for each would have to grow its stack anew each time. It ends with
// the session, when enough others wait for work, and when a handler ends it.
func (c *crew) work() {
	for inv := c.next(true); inv != nil; inv = c.next(false) {
		inv.run()
	}
}

// next takes an invocation, and waits for one; nil when there will be none. arrived says that the goroutine has just been
// started.
func (c *crew) next(arrived bool) *invocation {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coming = c.coming && !arrived
	for c.queue.first == nil {
		if c.closed || c.idle >= maxIdle {
			return nil
		}
		c.idle++
		c.called.Wait()
		c.coming = false
	}
	inv := c.queue.pop()
	c.callLocked()
	return inv
}

// invocations are a queue.
type invocations struct{ first, last *invocation }

func (q *invocations) push(inv *invocation) {
	if q.first == nil {
		q.first = inv
	} else {
		q.last.next = inv
	}
	q.last = inv
}

// pop takes the first one. What is kept of it keeps no others.
func (q *invocations) pop() *invocation {
	inv := q.first
	q.first, inv.next = inv.next, nil
	return inv
}
