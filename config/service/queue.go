package service

import (
	"context"
	"sync"
)

// applyQueue lets one apply at a time be checked, since decoding and compiling occupy a processor that reviews need. Each
// identity has one apply in the common queue, and the others wait behind it, so that no identity delays another one by more than
// one apply. The methods may be called concurrently.
type applyQueue struct {
	all chan struct{} // holds a token while an apply is checked

	mu    sync.Mutex
	lines map[string]*line // by identity; an empty line is removed
}

// line is the applies of one identity.
type line struct {
	head  chan struct{} // holds a token while one of them is in the common queue
	users int           // in the line, with its head; guarded by applyQueue.mu
}

func newApplyQueue() *applyQueue {
	return &applyQueue{all: make(chan struct{}, 1), lines: map[string]*line{}}
}

// wait returns when an apply of an identity may be checked; done ends its turn. The error is that of ctx, as a status.
func (q *applyQueue) wait(ctx context.Context, identity string) (done func(), err error) {
	l := q.join(identity)
	select {
	case l.head <- struct{}{}:
	case <-ctx.Done():
		q.quit(identity, l)
		return nil, ended(ctx)
	}
	select {
	case q.all <- struct{}{}:
	case <-ctx.Done():
		<-l.head
		q.quit(identity, l)
		return nil, ended(ctx)
	}
	return func() {
		<-q.all
		<-l.head
		q.quit(identity, l)
	}, nil
}

func (q *applyQueue) join(identity string) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[identity]
	if l == nil {
		l = &line{head: make(chan struct{}, 1)}
		q.lines[identity] = l
	}
	l.users++
	return l
}

func (q *applyQueue) quit(identity string, l *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(q.lines, identity)
	}
}
