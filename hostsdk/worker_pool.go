package hostsdk

import "sync"

// workerPool runs the handlers of one session. Invocations wait in a queue. A worker that takes one and leaves others wakes
// the next worker before it runs the handler, which may block. One wake-up is under way at a time: few workers run
// handlers that return at once, and a handler that waits delays no other. A goroutine for each handler takes 1.3 to 1.6 times
// the processor, and two allocations more: see BenchmarkHost. Safe for concurrent use.
type workerPool struct {
	handlers *sync.WaitGroup // counts the workers

	mu     sync.Mutex
	wakeUp sync.Cond // of mu
	queue  invocations
	idle   int  // workers that wait
	waking bool // a worker was started or woken, and has not looked at the queue yet; true while the queue is not empty
	closed bool
}

func newWorkerPool(handlers *sync.WaitGroup) *workerPool {
	p := &workerPool{handlers: handlers}
	p.wakeUp.L = &p.mu
	return p
}

func (p *workerPool) enqueue(some []invocation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range some {
		p.queue.push(&some[i])
	}
	p.wakeOneLocked()
}

// close ends the workers that have nothing to do.
func (p *workerPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.idle = true, 0
	p.wakeUp.Broadcast()
}

// wakeOneLocked wakes a worker if one is needed, and starts one if none waits.
func (p *workerPool) wakeOneLocked() {
	if p.queue.first == nil || p.waking {
		return
	}
	p.waking = true
	if p.idle > 0 {
		p.idle--
		p.wakeUp.Signal()
		return
	}
	p.handlers.Go(p.work)
}

// work runs handlers one after the other on one stack. It ends with the session, when maxIdle others wait, and when a handler
// ends the goroutine.
func (p *workerPool) work() {
	for inv := p.next(true); inv != nil; inv = p.next(false) {
		inv.runHandler()
	}
}

// next waits for an invocation; nil ends the worker. started is true for the first call of a new worker.
func (p *workerPool) next(started bool) *invocation {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waking = p.waking && !started
	for p.queue.first == nil {
		if p.closed || p.idle >= maxIdle {
			return nil
		}
		p.idle++
		p.wakeUp.Wait()
		p.waking = false
	}
	inv := p.queue.pop()
	p.wakeOneLocked()
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

// pop takes the first one, and unlinks it, so that it keeps no others in memory.
func (q *invocations) pop() *invocation {
	inv := q.first
	q.first, inv.next = inv.next, nil
	return inv
}
