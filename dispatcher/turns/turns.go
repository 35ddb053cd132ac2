// Package turns has work beside reviews wait for its turn, so that reviews find a processor: one call works at a time, and each holder rests in between.
// Go runs goroutines in the order in which they became ready, so that a review waits for all work that became ready before it.
package turns

import (
	"context"
	"sync"
	"time"
)

// Queue lets one call at a time work, and a holder that rests a part of the time. Each holder, such as an identity or a cluster, has one call in the
// common queue, and its others wait behind that one, so that no holder delays another one by more than one call. The methods may be called
// concurrently.
type Queue struct {
	all  chan struct{} // holds a token while a call works
	pace *pace

	mu    sync.Mutex
	lines map[string]*line // by holder; an empty line is removed
}

// line is the calls of one holder.
type line struct {
	head  chan struct{} // holds a token while a call of it is in the common queue
	users int           // in the line, with its head; guarded by Queue.mu
}

// NewQueue returns a queue in which no call is.
func NewQueue() *Queue {
	return &Queue{all: make(chan struct{}, 1), pace: newPace(), lines: map[string]*line{}}
}

// Apart returns a queue with lines of its own before the same common queue. Holders rest from their work in both.
func (q *Queue) Apart() *Queue {
	return &Queue{all: q.all, pace: q.pace, lines: map[string]*line{}}
}

// Beside returns a queue with lines and a common queue of its own. Holders rest from their work in both.
func (q *Queue) Beside() *Queue {
	return &Queue{all: make(chan struct{}, 1), pace: q.pace, lines: map[string]*line{}}
}

// Wait returns when a call of a holder may work; done ends its turn. A holder that rests waits before it enters the common queue, for as long as it owes
// rest. The error is the end of ctx.
func (q *Queue) Wait(ctx context.Context, holder string, rests bool) (done func(), err error) {
	l := q.join(holder)
	if err := enter(ctx, l.head); err != nil {
		q.quit(holder, l)
		return nil, err
	}
	if rests {
		err = sleep(ctx, q.pace.delay(holder, time.Now()))
	}
	if err == nil {
		err = enter(ctx, q.all)
	}
	if err != nil {
		<-l.head
		q.quit(holder, l)
		return nil, err
	}
	begun := time.Now()
	return func() {
		if now := time.Now(); rests {
			q.pace.worked(holder, now, now.Sub(begun))
		}
		<-q.all
		<-l.head
		q.quit(holder, l)
	}, nil
}

// Own returns when no other call of a holder works; done ends its turn. Holders do not wait for each other, and do not rest. The error is the end of ctx.
func (q *Queue) Own(ctx context.Context, holder string) (done func(), err error) {
	l := q.join(holder)
	if err := enter(ctx, l.head); err != nil {
		q.quit(holder, l)
		return nil, err
	}
	return func() {
		<-l.head
		q.quit(holder, l)
	}, nil
}

// Spend counts work that has no turn, such as the bytes of a message that is read or written. It returns how long the holder has to rest from its
// work before.
func (q *Queue) Spend(holder string, work time.Duration) (rest time.Duration) {
	now := time.Now()
	rest = q.pace.delay(holder, now)
	q.pace.worked(holder, now, work)
	return rest
}

// enter waits for a token. It takes a free one whether ctx has ended or not.
func enter(ctx context.Context, token chan<- struct{}) error {
	select {
	case token <- struct{}{}:
		return nil
	default:
	}
	select {
	case token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
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
		return ctx.Err()
	}
}

func (q *Queue) join(holder string) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[holder]
	if l == nil {
		l = &line{head: make(chan struct{}, 1)}
		q.lines[holder] = l
	}
	l.users++
	return l
}

func (q *Queue) quit(holder string, l *line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(q.lines, holder)
	}
}
