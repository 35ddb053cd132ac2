package initializer

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/conversion"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// step is the kind of an action.
type step int

// The steps of a hold.
const (
	stepNone   step = iota // nothing until Start or Release is called
	stepCreate             // write the object for the first time
	stepRemove             // delete the object that another dispatcher has staged for the same review
	stepUpdate             // write the object over the version that was seen
	stepAwait              // read the next version of the object
	stepAsk                // ask the hosts of the calls
	stepEnd                // end calls
	stepOver               // the calls of the turn have ended
	stepRevoke             // delete the object
	stepGone               // free the room of the hold
)

// action is a step that a machine asks for. The holder reports the result of a step that writes or reads before it asks for the next action.
type action struct {
	step   step
	object *initializerv1.StagedObject // to write, or to delete
	calls  []int                       // that end
	err    error                       // of the calls that end; nil if their initializers have acted
}

// machine decides the steps of a hold: it stages the object, asks one turn of calls after the other, and deletes the object. It has no goroutine, lock,
// clock and I/O.
type machine struct {
	base  *initializerv1.StagedObject // the staged object without its content and its pending initializers
	name  stagedName
	named int // names that were tried

	turn   *turn                       // nil between two turns
	there  *initializerv1.StagedObject // the object under the key that this hold has not staged
	seen   *initializerv1.StagedObject // the object as it was written or read last; nil before
	names  []string                    // pending initializers that were staged last, without the names that initializers have added
	leased bool                        // the object was staged

	released, revoked, gone bool
}

// turn is calls of initializers that act at the same time: of one, mostly.
type turn struct {
	object  []byte   // of the chain
	pending []string // of the first call, and of the initializers behind it
	calls   []turnCall
	hosts   bool // hosts are asked once the object is staged

	ready bool // the initializers may act
	moved bool // another writer has changed the object since it was seen
	asked bool // the hosts
	err   error
}

// turnCall is one call of an initializer.
type turnCall struct {
	pending []string // its initializer, and the initializers behind it
	over    bool
}

// left are the calls that are not over.
func (t *turn) left() (calls []int) {
	for i := range t.calls {
		if !t.calls[i].over {
			calls = append(calls, i)
		}
	}
	return calls
}

// next returns the next action.
func (m *machine) next(now time.Time) action {
	t := m.turn
	switch {
	case t != nil && len(t.left()) == 0:
		m.turn, m.there = nil, nil
		return action{step: stepOver}
	case t != nil && t.err != nil:
		return action{step: stepEnd, calls: t.left(), err: t.err}
	case t != nil && !m.leased:
		return m.nextCreate(t)
	case t != nil && !t.ready:
		return m.nextUpdate(t, now)
	case t != nil:
		return m.nextAsk(t)
	case !m.released || m.gone:
		return action{}
	case m.leased && !m.revoked:
		return action{step: stepRevoke}
	}
	return action{step: stepGone}
}

// nextCreate stages the object for the first time, once the object of the same review that another dispatcher had before is deleted.
func (m *machine) nextCreate(t *turn) action {
	if m.there != nil {
		refused := Create(m.there, m.base.GetReviewUid())
		switch {
		case refused == nil:
			return action{step: stepRemove, object: m.there}
		case m.name.generated() && m.named < maxNames-1:
			m.named++
			m.base = staged.Copy(m.base)
			m.base.Key = renamed(m.base.GetKey(), m.name.next())
		default:
			t.err = &existsError{m.there, refused}
			return action{step: stepEnd, calls: t.left(), err: t.err}
		}
	}
	m.there = nil
	o := staged.Copy(m.base)
	o.Object, o.Pending, o.Waiting, o.Together = &admissionv1.Object{Raw: t.object}, t.pending, o.Created, uint32(len(t.calls))
	return action{step: stepCreate, object: o}
}

// nextUpdate gives the staged object the content of the chain and the pending initializers of the turn, unless they are there, or the initializers have
// acted already.
func (m *machine) nextUpdate(t *turn, now time.Time) action {
	names := Names{Before: m.names, Now: t.pending, Together: len(t.calls)}
	switch {
	case t.moved:
		return action{step: stepAwait}
	case Acted(m.seen, names):
		t.ready = true
		return m.nextAsk(t)
	}
	next, err := Sync(m.seen, t.object, names, now)
	if err != nil {
		t.err = err
		return action{step: stepEnd, calls: t.left(), err: err}
	}
	asked := max(next.GetTogether(), 1) == max(m.seen.GetTogether(), 1) && slices.Equal(next.GetPending(), m.seen.GetPending())
	if asked && same(t.object, m.seen.GetObject().GetRaw()) {
		m.names, t.ready = t.pending, true
		return m.nextAsk(t)
	}
	return action{step: stepUpdate, object: next}
}

// nextAsk asks the hosts, ends the calls of the initializers that have acted, and waits for the others.
func (m *machine) nextAsk(t *turn) action {
	if t.hosts && !t.asked {
		t.asked = true
		return action{step: stepAsk}
	}
	acted := slices.DeleteFunc(t.left(), func(i int) bool { return Progress(m.seen, t.calls[i].pending) == Waiting })
	if len(acted) > 0 {
		return action{step: stepEnd, calls: acted}
	}
	return action{step: stepAwait}
}

// wrote reports the result of stepCreate and stepUpdate.
func (m *machine) wrote(o *initializerv1.StagedObject, err error) {
	var exists *staged.ExistsError
	switch t := m.turn; {
	case err == nil:
		m.seen, m.names, m.leased, t.ready = o, t.pending, true, true
	case errors.As(err, &exists):
		m.there = exists.Object
	case m.leased && errors.Is(err, staged.ErrConflict):
		t.moved = true
	default:
		t.err = err
	}
}

// removed reports the result of stepRemove.
func (m *machine) removed(err error) {
	if err == nil || errors.Is(err, staged.ErrNotFound) || errors.Is(err, staged.ErrConflict) {
		m.there = nil
		return
	}
	m.turn.err = err
}

// read reports the result of stepAwait.
func (m *machine) read(o *initializerv1.StagedObject, err error) {
	if err != nil {
		m.turn.err = err
		return
	}
	m.seen, m.turn.moved = o, false
}

// same reports whether two objects are equal.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	patch, err := conversion.DiffPatch(a, b)
	return err == nil && patch == nil
}

// renamed returns a key with another name.
func renamed(k *initializerv1.StagedKey, name string) *initializerv1.StagedKey {
	return &initializerv1.StagedKey{Cluster: k.GetCluster(), Resource: k.GetResource(), Namespace: k.GetNamespace(), Name: name}
}
