package service

import (
	"context"
	"sync"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// turns lets one call at a time work. Each identity has one call in the common queue, and its others wait behind that one, so that no identity delays
// another one by more than one call. The methods may be called concurrently.
type turns struct {
	all chan struct{} // holds a token while a call works

	mu    sync.Mutex
	lines map[string]*line // by identity; an empty line is removed
}

// line is the calls of one identity.
type line struct {
	head  chan struct{} // holds a token while a call of the line is in the common queue
	users int           // in the line, with its head; guarded by turns.mu
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, 1), lines: map[string]*line{}}
}

// apart returns turns with lines of their own in the same common queue.
func (q *turns) apart() *turns {
	return &turns{all: q.all, lines: map[string]*line{}}
}

// wait returns when a call of an identity may work; done ends its turn. With a pace, an identity that owes rest waits before it enters the common queue.
// The error is the end of ctx, as a status.
func (q *turns) wait(ctx context.Context, identity string, pace *pace) (done func(), err error) {
	l := q.join(identity)
	if err := enterQueue(ctx, l.head); err != nil {
		q.quit(identity, l)
		return nil, err
	}
	if pace != nil {
		err = sleep(ctx, pace.delay(identity, time.Now()))
	}
	if err == nil {
		err = enterQueue(ctx, q.all)
	}
	if err != nil {
		<-l.head
		q.quit(identity, l)
		return nil, err
	}
	begun := time.Now()
	return func() {
		if now := time.Now(); pace != nil {
			pace.worked(identity, now, now.Sub(begun))
		}
		<-q.all
		<-l.head
		q.quit(identity, l)
	}, nil
}

// enterQueue waits for a token. It takes a free one whether ctx has ended or not.
func enterQueue(ctx context.Context, token chan<- struct{}) error {
	select {
	case token <- struct{}{}:
		return nil
	default:
	}
	select {
	case token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

func sleep(ctx context.Context, length time.Duration) error {
	if length <= 0 {
		return nil
	}
	t := time.NewTimer(length)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

func (q *turns) join(identity string) *line {
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

func (q *turns) quit(identity string, l *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(q.lines, identity)
	}
}

// turn returns when the caller may occupy a processor, which reviews need; done ends its turn. No call waits for the store in its turn, so that a store
// that does not answer delays no other call.
func (s *Service) turn(ctx context.Context) (done func(), err error) {
	caller := s.o.Identity(ctx)
	return s.work.wait(ctx, caller.Name(), s.paceOf(caller))
}

// paceOf returns the pace of a caller; nil for an operator, who need not rest.
func (s *Service) paceOf(caller identity.Peer) *pace {
	if s.o.Operators.Includes(caller) || s.roles.operator(caller) {
		return nil
	}
	return s.pace
}
