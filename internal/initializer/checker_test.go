package initializer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// The checker explores every order of the steps of a holder, three controllers and a deleter, with a crash of each at each step. The holder is the
// machine of a Hold, and the others use the pure functions of the life cycle. Two controllers are replicas of initializer a; the third one serves b, and
// x, which a may add. The chain has a and b. Another review may stage an object of the same key once ours is gone.
//
// All invariants are checked in every state. So the crash of a controller or deleter needs no step: it just takes no more steps, and
// every order in which the others go on without it is explored. The crash of the holder is a step, since its lease ends then.

// variant is a configuration of the model.
type variant struct {
	ignore map[string]bool // initializers whose failure policy is Ignore
	hosted bool            // a is asked by the holder over a stream, and has no controllers
}

// actor is a controller.
type actor struct {
	names string                      // of the initializers that it serves
	read  *initializerv1.StagedObject // the object that it works on; nil before
	left  int                         // how often it may still read
}

// world is a state of the model. The messages that it points to are never written.
type world struct {
	variant *variant
	object  *initializerv1.StagedObject // in the store
	version int                         // of the last write
	foreign bool                        // another review has had its object
	deleter bool                        // the deleter may act

	machine machine
	crashed bool   // the holder
	call    int    // of the chain
	chain   string // content of the object of the chain
	gaveUp  string // initializers whose time is over
	answer  string // that the creator has; empty before

	actors  [3]actor
	acted   string // initializers whose change was accepted, in order
	refused string // that whose result was accepted
}

// chainOf are the initializers of the chain.
func chainOf() []string { return []string{"a", "b"} }

func newWorld(v *variant) world {
	w := world{variant: v, deleter: true, actors: [3]actor{{names: "a", left: 2}, {names: "a", left: 2}, {names: "bx", left: 2}}}
	w.machine.base = &initializerv1.StagedObject{Uid: "ours", ReviewUid: "r1"}
	w.begin()
	if v.hosted {
		w.actors[0].left, w.actors[1].left = 0, 0
	}
	return w
}

// key tells states apart.
func (w *world) key() string {
	k := make([]byte, 0, 256)
	add := func(parts ...string) {
		for _, part := range parts {
			k = append(append(k, part...), ';')
		}
	}
	show := func(o *initializerv1.StagedObject) {
		add(o.GetUid(), o.GetResourceVersion(), strings.Join(o.GetPending(), ""), o.GetResult().GetMessage(), string(o.GetObject().GetRaw()))
	}
	show(w.object)
	m := &w.machine
	show(m.seen)
	show(m.there)
	add(w.chain, strings.Join(m.names, ""), w.gaveUp, w.answer, w.acted, w.refused)
	if t := m.turn; t != nil {
		add("turn", fmt.Sprint(t.calls[0].over, t.ready, t.moved, t.asked, t.err))
	}
	k = append(k, byte('0'+w.version), byte('0'+w.call))
	for _, is := range []bool{w.foreign, w.deleter, w.crashed, m.leased, m.released, m.revoked, m.gone} {
		k = strconv.AppendBool(k, is)
	}
	actors := w.actors
	if a, b := actors[0], actors[1]; a.left > b.left || a.left == b.left && a.read.GetResourceVersion() > b.read.GetResourceVersion() {
		actors[0], actors[1] = b, a // replicas are alike
	}
	for _, a := range actors {
		show(a.read)
		k = append(k, byte('0'+a.left))
	}
	return string(k)
}

// put writes the object if the store has a version, as the store's compare-and-swap does.
func (w *world) put(before string, next *initializerv1.StagedObject) bool {
	if w.object.GetResourceVersion() != before {
		return false
	}
	w.version++
	w.object = staged.Copy(next)
	w.object.ResourceVersion = fmt.Sprint(w.version)
	return true
}

// content is a JSON object with the marks of those who have changed it.
func content(marks string) []byte { return fmt.Appendf(nil, `{"marks":%q}`, marks) }

func marksOf(o *initializerv1.StagedObject) string {
	return strings.TrimSuffix(strings.TrimPrefix(string(o.GetObject().GetRaw()), `{"marks":"`), `"}`)
}

// ours is whether the object of this review is staged.
func (w *world) ours() bool { return w.object.GetUid() == "ours" }

// next returns every state that may follow, by the name of its step.
func (w *world) next() map[string]world {
	all := map[string]world{}
	step := func(name string, do func(*world)) {
		c := *w
		c.machine = w.machine.clone()
		do(&c)
		c.settle()
		all[name] = c
	}
	w.holderSteps(step)
	for i := range w.actors {
		w.actorSteps(i, step)
	}
	if w.deleter && w.object != nil {
		step("delete", func(c *world) { c.object, c.deleter = nil, false })
	}
	if w.object == nil && !w.foreign && w.machine.leased {
		step("another review", func(c *world) {
			c.foreign = true
			c.put("", &initializerv1.StagedObject{Uid: "foreign", ReviewUid: "r2", Pending: chainOf(), Object: &admissionv1.Object{Raw: content("")}})
		})
	}
	return all
}

// clone is a copy that shares nothing that the machine writes.
func (m *machine) clone() machine {
	c := *m
	if t := m.turn; t != nil {
		turn := *t
		turn.calls = slices.Clone(t.calls)
		c.turn = &turn
	}
	return c
}

// settle takes the steps of the holder that no other actor can see: their order among the steps of the others changes nothing.
func (w *world) settle() {
	for !w.crashed {
		ahead := w.machine.clone()
		switch ahead.next(time.Time{}).step {
		case stepAsk, stepEnd, stepOver, stepGone:
			w.take(w.machine.next(time.Time{}), false)
		default:
			return
		}
	}
}

// begin begins the turn of the next initializer of the chain.
func (w *world) begin() {
	names := chainOf()[w.call:]
	w.machine.turn = &turn{object: content(w.chain), pending: names, calls: []turnCall{{pending: names}}, hosts: w.variant.hosted && w.call == 0}
}

// holderSteps are the action that the machine asks for, with each result that it may have, and the ends of its call from outside.
func (w *world) holderSteps(step func(string, func(*world))) {
	if w.crashed {
		if w.ours() {
			step("lease ends", (*world).end)
		}
		return
	}
	step("holder crashes", func(c *world) {
		c.crashed = true
		if c.answer == "" {
			c.answer = "error"
		}
	})
	if t := w.machine.turn; t != nil && !t.calls[0].over {
		if t.ready || t.moved {
			step("give up", (*world).giveUp)
		}
		if t.asked {
			step("host answers", func(c *world) { c.acted += "a"; c.advance(c.chain + "a") })
		}
	}
	step("holder", func(c *world) { c.take(c.machine.next(time.Time{}), false) })
	if w.machine.leased {
		step("holder, interrupted", func(c *world) {
			if a := c.machine.next(time.Time{}); a.step == stepUpdate {
				c.take(a, true)
			}
		})
	}
}

// take takes a step of the holder. The result of an interrupted one is lost, and the call over.
func (w *world) take(a action, interrupted bool) {
	m := &w.machine
	switch a.step {
	case stepCreate, stepUpdate:
		switch written := w.put(a.object.GetResourceVersion(), a.object); {
		case !written && a.step == stepCreate:
			m.wrote(nil, &staged.ExistsError{Object: w.object})
		case !written && !w.ours():
			m.wrote(nil, staged.ErrNotFound)
		case !written:
			m.wrote(nil, staged.ErrConflict)
		case interrupted:
			m.wrote(nil, context.Canceled)
			w.giveUp()
		default:
			m.wrote(w.object, nil)
		}
	case stepAwait:
		switch {
		case !w.ours():
			m.read(nil, staged.ErrNotFound)
		case w.object.GetResourceVersion() != m.seen.GetResourceVersion():
			m.read(w.object, nil)
		}
	case stepEnd:
		switch {
		case m.seen.GetResult() != nil:
			w.reply("refused")
		case errors.Is(a.err, staged.ErrNotFound):
			w.reply("deleted")
		case a.err != nil:
			w.reply("error")
		default:
			w.advance(marksOf(m.seen))
		}
	case stepOver:
		if w.answer == "" {
			w.begin()
		}
	case stepRevoke:
		w.end()
		m.revoked = true
	case stepGone:
		m.gone = true
	case stepNone, stepAsk, stepRemove:
	}
}

// end ends the lease of our object.
func (w *world) end() {
	if w.ours() {
		w.object = nil
	}
}

// reply gives the creator its answer, and releases the hold.
func (w *world) reply(answer string) {
	w.answer, w.machine.released, w.machine.turn.calls[0].over = answer, true, true
}

// giveUp is the end of the time of a call.
func (w *world) giveUp() {
	name := chainOf()[w.call]
	w.gaveUp += name
	if w.variant.ignore[name] {
		w.advance(w.chain)
		return
	}
	w.reply("error")
}

// advance goes on with the next initializer of the chain.
func (w *world) advance(content string) {
	w.chain, w.call, w.machine.turn.calls[0].over = content, w.call+1, true
	if w.call == len(chainOf()) {
		w.reply("ok")
	}
}

func (w *world) actorSteps(i int, step func(string, func(*world))) {
	a := &w.actors[i]
	id := fmt.Sprint(a.names, i)
	if a.read == nil {
		if a.left > 0 && w.object != nil && len(w.object.GetPending()) > 0 && strings.Contains(a.names, w.object.GetPending()[0]) {
			step(id+" reads", func(c *world) { c.actors[i].read = c.object; c.actors[i].left-- })
		}
		return
	}
	name, pending := a.read.GetPending()[0], a.read.GetPending()[1:]
	change := UpdateRequest{ResourceVersion: a.read.GetResourceVersion(), Object: content(marksOf(a.read) + name), Pending: pending}
	step(id+" acts", func(c *world) { c.update(i, change) })
	if name == "a" {
		change.Pending = slices.Concat([]string{"x"}, pending)
		step(id+" adds x", func(c *world) { c.update(i, change) })
	}
	step(id+" refuses", func(c *world) {
		c.update(i, UpdateRequest{ResourceVersion: a.read.GetResourceVersion(), Result: &admissionv1.Status{Status: failure, Message: name}})
	})
}

// update is an update of a controller.
func (w *world) update(i int, change UpdateRequest) {
	a := &w.actors[i]
	read := a.read
	a.read = nil
	if w.object == nil {
		return
	}
	next, err := Update(w.object, change, Rules{
		Granted:    func(name string) bool { return strings.Contains(a.names, name) },
		Configured: func(name string) []string { return []string{name} }, MaxObjectBytes: 1000,
	})
	if err != nil || !w.put(change.ResourceVersion, next) || !w.ours() {
		return
	}
	if change.Result != nil {
		w.refused = read.GetPending()[0]
	} else {
		w.acted += read.GetPending()[0]
	}
}

// wrong is an invariant that does not hold; empty if all hold.
func (w *world) wrong() string {
	acted := func(name string) bool { return strings.Contains(w.acted, name) }
	over := func(name string) bool { return strings.Contains(w.gaveUp, name) }
	ended := w.machine.gone || w.crashed
	for _, name := range []string{"a", "b", "x"} {
		if strings.Count(w.acted, name) > 1 {
			return name + " has acted twice"
		}
		if strings.Count(w.chain, name) > 1 {
			return "the object has the change of " + name + " twice"
		}
	}
	switch {
	case acted("b") && !acted("a") && !over("a"):
		return "b has acted before a"
	case acted("x") && !acted("a"):
		return "x has acted before a"
	case strings.Contains(w.acted, "bx"):
		return "x has acted after b"
	case w.machine.gone && w.ours():
		return "the object is staged after the end of its hold"
	case ended && w.answer == "":
		return "the creator has no answer"
	case w.answer == "ok" && w.refused != "" && !over(w.refused) && (w.refused != "x" || !over("a")):
		return w.refused + " has refused the object, and the creator is not told"
	case w.answer == "error" && !w.crashed && (w.gaveUp == "" || w.variant.ignore[w.gaveUp[len(w.gaveUp)-1:]]):
		return "the creator has an error, and no call that fails closed was given up"
	case w.answer == "refused" && w.refused == "":
		return "nobody has refused the object"
	case w.foreign && w.object.GetUid() == "foreign" && w.object.GetResourceVersion() == w.machine.seen.GetResourceVersion():
		return "the holder has written the object of another review"
	}
	if w.answer == "ok" {
		for _, name := range strings.Split(w.acted, "") {
			if !over(name) && !over("a") && !strings.Contains(w.chain, name) {
				return "the change of " + name + " is lost"
			}
		}
	}
	return ""
}

// explore visits every state that can be reached, and returns how many there are, and the answers of those without a next step.
func explore(t *testing.T, first world) (states int, answers map[string]int) {
	t.Helper()
	type from struct{ key, step string }
	seen, todo, answers := map[string]from{first.key(): {}}, []world{first}, map[string]int{}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next := w.next()
		if len(next) == 0 {
			answers[w.answer]++
			if w.ours() || w.answer == "" {
				t.Fatalf("it ends with %s", w.key())
			}
		}
		for step, c := range next {
			key := c.key()
			if _, ok := seen[key]; ok {
				continue
			}
			seen[key] = from{w.key(), step}
			if what := c.wrong(); what != "" {
				var road []string
				for at := key; seen[at].step != ""; at = seen[at].key {
					road = append(road, seen[at].step)
				}
				slices.Reverse(road)
				t.Fatalf("%s after: %s", what, strings.Join(road, ", "))
			}
			todo = append(todo, c)
		}
	}
	return len(seen), answers
}

func TestTheLifeCycle(t *testing.T) {
	for name, v := range map[string]variant{
		"policy Ignore":            {ignore: map[string]bool{"a": true, "b": true}},
		"policy Fail":              {},
		"a host, and a controller": {ignore: map[string]bool{"a": true, "b": true}, hosted: true},
	} {
		t.Run(name, func(t *testing.T) {
			states, answers := explore(t, newWorld(&v))
			t.Logf("%d states, last ones by answer: %v", states, answers)
			for _, answer := range []string{"ok", "refused", "deleted", "error"} {
				if answers[answer] == 0 {
					t.Errorf("no road ends with %q: %v", answer, slices.Sorted(maps.Keys(answers)))
				}
			}
		})
	}
}
