package initializer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// The checker explores every order of the steps of a holder, three controllers and a deleter, with a crash of each at each step, over
// the pure functions of the life cycle. Two controllers are replicas of initializer a; the third one serves b, and x, which a may add.
// The chain has a and b. Another review may stage an object of the same key once ours is gone.
//
// All invariants are checked in every state. So the crash of a controller or deleter needs no step: it just takes no more steps, and
// every order in which the others go on without it is explored. The crash of the holder is a step, since its lease ends then.

// variant is a configuration of the model.
type variant struct {
	ignore map[string]bool // initializers whose failure policy is Ignore
	hosted bool            // a is asked by the holder over a stream, and has no controllers
}

// Places in the program of the holder.
const (
	creating  = "creating"
	syncing   = "syncing"
	waiting   = "waiting"
	releasing = "releasing"
	done      = "done"
	crashed   = "crashed"
)

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

	holder string                      // its place
	turn   int                         // of the chain
	chain  string                      // content of the object of the chain
	before []string                    // names that it has staged last
	seen   *initializerv1.StagedObject // the staged object as it knows it
	gaveUp string                      // initializers whose time is over
	answer string                      // that the creator has; empty before

	actors  [3]actor
	acted   string // initializers whose change was accepted, in order
	refused string // that whose result was accepted
}

// chainOf are the initializers of the chain.
func chainOf() []string { return []string{"a", "b"} }

func newWorld(v *variant) world {
	w := world{variant: v, holder: creating, deleter: true, actors: [3]actor{{names: "a", left: 2}, {names: "a", left: 2}, {names: "bx", left: 2}}}
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
	show(w.seen)
	add(w.holder, w.chain, strings.Join(w.before, ""), w.gaveUp, w.answer, w.acted, w.refused)
	k = append(k, byte('0'+w.version), byte('0'+w.turn))
	k = strconv.AppendBool(strconv.AppendBool(k, w.foreign), w.deleter)
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
	w.object = with(next)
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
		do(&c)
		all[name] = c
	}
	w.holderSteps(step)
	for i := range w.actors {
		w.actorSteps(i, step)
	}
	if w.deleter && w.object != nil {
		step("delete", func(c *world) { c.object, c.deleter = nil, false })
	}
	if w.object == nil && !w.foreign && w.holder != creating {
		step("another review", func(c *world) {
			c.foreign = true
			c.put("", &initializerv1.StagedObject{Uid: "foreign", ReviewUid: "r2", Pending: chainOf(), Object: &admissionv1.Object{Raw: content("")}})
		})
	}
	return all
}

func (w *world) holderSteps(step func(string, func(*world))) {
	switch w.holder {
	case creating:
		step("create", func(c *world) {
			c.put("", &initializerv1.StagedObject{Uid: "ours", ReviewUid: "r1", Pending: chainOf(), Object: &admissionv1.Object{Raw: content("")}})
			c.seen, c.before, c.holder = c.object, chainOf(), waiting
		})
	case waiting:
		step("observe", (*world).observe)
		step("give up", (*world).giveUp)
		if w.variant.hosted && w.turn == 0 {
			step("host answers", func(c *world) { c.acted += "a"; c.advance(c.chain + "a") })
		}
	case syncing:
		step("sync", (*world).sync)
	case releasing:
		step("release", func(c *world) { c.end(); c.holder = done })
	case crashed:
		if w.ours() {
			step("lease ends", (*world).end)
		}
		return
	case done:
		return
	}
	step("holder crashes", func(c *world) {
		c.holder = crashed
		if c.answer == "" {
			c.answer = "error"
		}
	})
}

// end ends the lease of our object.
func (w *world) end() {
	if w.ours() {
		w.object = nil
	}
}

func (w *world) reply(answer string) { w.answer, w.holder = answer, releasing }

// observe is a change, or the state, that the watch brings.
func (w *world) observe() {
	if !w.ours() {
		w.reply("deleted")
		return
	}
	w.seen = w.object
	switch Progress(w.seen, chainOf()[w.turn:]) {
	case Refused:
		w.reply("refused")
	case Initialized:
		w.advance(marksOf(w.seen))
	case Waiting:
	}
}

// giveUp is the end of the time of a call.
func (w *world) giveUp() {
	name := chainOf()[w.turn]
	w.gaveUp += name
	if w.variant.ignore[name] {
		w.advance(w.chain)
		return
	}
	w.reply("error")
}

// advance goes on with the next initializer of the chain.
func (w *world) advance(content string) {
	w.chain, w.turn, w.holder = content, w.turn+1, syncing
	if w.turn == len(chainOf()) {
		w.reply("ok")
	}
}

// sync is the begin of the call of an initializer.
func (w *world) sync() {
	names := Names{Before: w.before, Now: chainOf()[w.turn:]}
	if Acted(w.seen, names) {
		w.holder = waiting
		return
	}
	next, err := Sync(w.seen, content(w.chain), names, time.Time{})
	switch {
	case err != nil:
		w.reply("refused")
	case w.put(w.seen.GetResourceVersion(), next):
		w.seen, w.before, w.holder = w.object, names.Now, waiting
	case !w.ours():
		w.reply("deleted")
	default:
		w.seen = w.object // and again
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
	change := Change{ResourceVersion: a.read.GetResourceVersion(), Object: content(marksOf(a.read) + name), Pending: pending}
	step(id+" acts", func(c *world) { c.update(i, change) })
	if name == "a" {
		change.Pending = slices.Concat([]string{"x"}, pending)
		step(id+" adds x", func(c *world) { c.update(i, change) })
	}
	step(id+" refuses", func(c *world) {
		c.update(i, Change{ResourceVersion: a.read.GetResourceVersion(), Result: &admissionv1.Status{Status: failure, Message: name}})
	})
}

// update is an update of a controller.
func (w *world) update(i int, change Change) {
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

// wrong returns the invariant that the state breaks: empty if all is well.
func (w *world) wrong() string {
	acted := func(name string) bool { return strings.Contains(w.acted, name) }
	over := func(name string) bool { return strings.Contains(w.gaveUp, name) }
	ended := w.holder == done || w.holder == crashed
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
	case w.holder == done && w.ours():
		return "the object is staged after the end of its hold"
	case ended && w.answer == "":
		return "the creator has no answer"
	case w.answer == "ok" && w.refused != "" && !over(w.refused) && (w.refused != "x" || !over("a")):
		return w.refused + " has refused the object, and the creator is not told"
	case w.answer == "refused" && w.refused == "":
		return "nobody has refused the object"
	case w.foreign && w.object.GetUid() == "foreign" && w.object.GetResourceVersion() == w.seen.GetResourceVersion():
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
