// Package fairqueue shares what is bounded between tenants: [Shares] bounds how much of it each tenant holds, and [Queue] is
// the line of each tenant for the rest, served in turn. A tenant is a cluster wherever reviews are concerned.
//
// Neither has a lock, a clock or a goroutine: whoever uses them brings a lock, and decides what a turn means.
package fairqueue

import (
	"container/list"
	"iter"
)

// Queue is what waits, with a line for each tenant, in the order of arrival within a line. The lines are served in turn. The
// zero value is an empty queue. Adding and removing take the same time however much waits; serving looks at the oldest of each
// line.
type Queue[T any] struct {
	lines map[string]*line[T]
	turns list.List // of *line[T], none of them empty; the front is next
	n     int
}

// line is what waits of one tenant, the oldest first.
type line[T any] struct {
	tenant  string
	entries list.List // of *Entry[T]
	turn    *list.Element
}

// Entry is a value that waits in a queue.
type Entry[T any] struct {
	// Value is what waits.
	Value T

	line    *line[T]
	element *list.Element
}

// Len counts what waits.
func (q *Queue[T]) Len() int { return q.n }

// LenOf counts what waits of one tenant.
func (q *Queue[T]) LenOf(tenant string) int {
	if l := q.lines[tenant]; l != nil {
		return l.entries.Len()
	}
	return 0
}

// Push lets a value wait behind those of its tenant. The entry is for Remove.
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

// Remove takes an entry out. It reports false for nil, and for one that is out already.
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

// Serve offers the oldest value of each tenant in turn, and takes out what accept takes, as long as there is room. A tenant whose
// value is not taken keeps its turn.
func (q *Queue[T]) Serve(room func() bool, accept func(value T) bool) {
	for accepted := true; accepted; {
		accepted = false
		for turn := q.turns.Front(); turn != nil && room(); {
			l, _ := turn.Value.(*line[T])
			turn = turn.Next()
			e := l.first()
			if !accept(e.Value) {
				continue
			}
			accepted = true
			q.turns.MoveToBack(l.turn)
			q.Remove(e)
		}
	}
}

// ServeTenant offers the values of one tenant, the oldest first, and takes out what accept takes, until it takes one not.
func (q *Queue[T]) ServeTenant(tenant string, accept func(value T) bool) {
	for l := q.lines[tenant]; l != nil; l = q.lines[tenant] {
		e := l.first()
		if !accept(e.Value) {
			return
		}
		q.Remove(e)
	}
}

// All goes over the entries of all tenants. Entries may be removed meanwhile.
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

// first is the oldest entry of a line, which is not empty.
func (l *line[T]) first() *Entry[T] {
	e, _ := l.entries.Front().Value.(*Entry[T])
	return e
}
