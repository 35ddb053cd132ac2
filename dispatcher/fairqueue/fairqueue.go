// Package fairqueue shares a bounded resource between tenants, which are clusters: [Shares] limits the places of each tenant, and [Queue] has a line
// of waiting values for each tenant and serves the lines in turn.
//
// Neither has a lock, a clock or a goroutine: the caller locks, and decides when to serve.
package fairqueue

import (
	"container/list"
	"iter"
)

// Queue has a line of waiting values for each tenant, in order of arrival. The zero value is an empty queue. Push and Remove
// take constant time; serving looks at the oldest value of each line.
type Queue[T any] struct {
	lines map[string]*line[T]
	turns list.List // of *line[T], none of them empty; the front is next
	n     int
}

type line[T any] struct {
	tenant  string
	entries list.List // of *Entry[T], the oldest first
	turn    *list.Element
}

// Entry is a value in a queue.
type Entry[T any] struct {
	// Value is the value of Push.
	Value T

	line    *line[T] // nil once removed
	element *list.Element
}

// Len returns the number of values.
func (q *Queue[T]) Len() int { return q.n }

// LenOf returns the number of values of one tenant.
func (q *Queue[T]) LenOf(tenant string) int {
	if l := q.lines[tenant]; l != nil {
		return l.entries.Len()
	}
	return 0
}

// Push adds a value at the end of the line of its tenant. The entry is for Remove.
func (q *Queue[T]) Push(tenant string, value T) *Entry[T] {
	l := q.lines[tenant]
	if l == nil {
		l = &line[T]{tenant: tenant}
		l.turn = q.turns.PushBack(l)
		if q.lines == nil {
			q.lines = make(map[string]*line[T])
		}
		q.lines[tenant] = l
	}
	e := &Entry[T]{Value: value, line: l}
	e.element = l.entries.PushBack(e)
	q.n++
	return e
}

// Remove removes an entry; false if it is nil or was removed before.
func (q *Queue[T]) Remove(e *Entry[T]) bool {
	if e == nil || e.line == nil {
		return false
	}
	l := e.line
	l.entries.Remove(e.element)
	e.line, e.element = nil, nil
	q.n--
	if l.entries.Len() == 0 {
		q.turns.Remove(l.turn)
		delete(q.lines, l.tenant)
	}
	return true
}

// Serve offers the oldest value of each tenant in turn, and removes those that accept returns true for, while free returns
// true. A tenant whose value is not accepted keeps its turn.
func (q *Queue[T]) Serve(free func() bool, accept func(value T) bool) {
	for accepted := true; accepted; {
		accepted = false
		for turn := q.turns.Front(); turn != nil && free(); {
			l, _ := turn.Value.(*line[T])
			turn = turn.Next()
			e := l.oldest()
			if !accept(e.Value) {
				continue
			}
			accepted = true
			q.turns.MoveToBack(l.turn)
			q.Remove(e)
		}
	}
}

// ServeTenant offers the values of one tenant, the oldest first, and removes them, until accept returns false.
func (q *Queue[T]) ServeTenant(tenant string, accept func(value T) bool) {
	for l := q.lines[tenant]; l != nil; l = q.lines[tenant] {
		e := l.oldest()
		if !accept(e.Value) {
			return
		}
		q.Remove(e)
	}
}

// All yields the entries of all tenants. The loop may remove entries.
func (q *Queue[T]) All() iter.Seq[*Entry[T]] {
	return func(yield func(*Entry[T]) bool) {
		for _, l := range q.lines {
			for element := l.entries.Front(); element != nil; {
				e, _ := element.Value.(*Entry[T])
				element = element.Next()
				if !yield(e) {
					return
				}
			}
		}
	}
}

func (l *line[T]) oldest() *Entry[T] {
	e, _ := l.entries.Front().Value.(*Entry[T])
	return e
}
