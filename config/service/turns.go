package service

import (
	"context"
	"sync"

	"google.golang.org/grpc/status"
)

// turns let one apply at a time be checked: decoding and compiling take a processor for long, beside reviews. Of one identity one
// apply waits for the turn of all, and the others wait behind it, so that whoever applies much delays nobody else by more than
// one apply. The methods may be called concurrently.
type turns struct {
	all chan struct{} // holds a token while an apply is checked

	mu    sync.Mutex
	lines map[string]*line // by identity; one that nobody is in is dropped
}

// line is the applies of one identity.
type line struct {
	turn  chan struct{} // holds a token while one of them is at its head
	users int           // at the head or behind it; held by mu
}

func newTurns() *turns { return &turns{all: make(chan struct{}, 1), lines: map[string]*line{}} }

// take waits for the turn of an identity, which calls leave at its end. The error is that of ctx, as a status.
func (t *turns) take(ctx context.Context, identity string) (leave func(), err error) {
	l := t.join(identity)
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		t.quit(identity, l)
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	select {
	case t.all <- struct{}{}:
	case <-ctx.Done():
		<-l.turn
		t.quit(identity, l)
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return func() {
		<-t.all
		<-l.turn
		t.quit(identity, l)
	}, nil
}

func (t *turns) join(identity string) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[identity]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		t.lines[identity] = l
	}
	l.users++
	return l
}

func (t *turns) quit(identity string, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.lines, identity)
	}
}
