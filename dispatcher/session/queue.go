package session

import (
	"container/list"
	"iter"
)

// queue is the calls of one hook that wait for a free replica, fair between clusters: each has a line of its own, and the
// lines are served in turn. A line may be as long as the room that is left in the queue: one cluster that floods gets half
// of [MaxWaiting], two get a third each, and there is always as much left for the others. Nothing but looking at all calls
// depends on how many wait. It has no lock and no clock.
type queue struct {
	lines map[string]*line
	turns list.List // of *line with calls; the front is next
	n     int
}

// line is the calls of one cluster, the oldest first.
type line struct {
	cluster string
	calls   list.List // of *ticket
	turn    *list.Element
}

// full reports whether the queue takes no more calls of a cluster.
func (q *queue) full(cluster string) bool {
	waiting := 0
	if l := q.lines[cluster]; l != nil {
		waiting = l.calls.Len()
	}
	return waiting >= MaxWaiting-q.n
}

// push lets a ticket wait. It reports whether it is the first one of its cluster.
func (q *queue) push(t *ticket) (first bool) {
	cluster := t.cluster()
	l := q.lines[cluster]
	if l == nil {
		l = &line{cluster: cluster}
		l.turn = q.turns.PushBack(l)
		if q.lines == nil {
			q.lines = make(map[string]*line)
		}
		q.lines[cluster] = l
	}
	t.line, t.element = l, l.calls.PushBack(t)
	q.n++
	return l.calls.Len() == 1
}

// remove takes a ticket out that is in the queue.
func (q *queue) remove(t *ticket) {
	l := t.line
	l.calls.Remove(t.element)
	t.line, t.element = nil, nil
	q.n--
	if l.calls.Len() == 0 {
		q.turns.Remove(l.turn)
		delete(q.lines, l.cluster)
	}
}

// serve offers the oldest call of each cluster in turn, and takes out what is seated, as long as there is room. A cluster
// whose call finds no seat keeps its turn.
func (q *queue) serve(room func() bool, seat func(t *ticket) bool) {
	for seated := true; seated; {
		seated = false
		for e := q.turns.Front(); e != nil && room(); {
			l, _ := e.Value.(*line)
			e = e.Next()
			t := ticketIn(l.calls.Front())
			if !seat(t) {
				continue
			}
			seated = true
			q.turns.MoveToBack(l.turn)
			q.remove(t)
		}
	}
}

// serveLine offers the calls of one cluster, the oldest first, and takes out what is seated, until one finds no seat.
func (q *queue) serveLine(cluster string, seat func(t *ticket) bool) {
	for l := q.lines[cluster]; l != nil; l = q.lines[cluster] {
		t := ticketIn(l.calls.Front())
		if !seat(t) {
			return
		}
		q.remove(t)
	}
}

// all are the tickets of all clusters. They may be taken out meanwhile.
func (q *queue) all() iter.Seq[*ticket] {
	return func(yield func(*ticket) bool) {
		for _, l := range q.lines {
			for e := l.calls.Front(); e != nil; {
				t := ticketIn(e)
				e = e.Next()
				if !yield(t) {
					return
				}
			}
		}
	}
}

// ticketIn is the ticket in an element of a line; nothing else is put there.
func ticketIn(e *list.Element) *ticket {
	t, _ := e.Value.(*ticket)
	return t
}
