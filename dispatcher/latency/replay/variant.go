package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// Variant is a change of hooks that is tried on recorded reviews. The zero value changes nothing. Hooks are named as in webhooks[].name; all
// hooks of a name change.
type Variant struct {
	// Without are hooks that do not exist.
	Without []string
	// Deadlines are the timeouts of hooks.
	Deadlines map[string]time.Duration
	// Validating are mutating hooks that are validating hooks instead.
	Validating []string
	// Parallel are mutating hooks whose routes let them be called before their turn (spec.speculate), and initializers of hosts whose
	// routes let them act at the same time as others (spec.parallel).
	Parallel []string
	// Replicas is how many more replicas hooks have.
	Replicas map[string]int

	hooks     []*match.Hook // in the order of the configuration, as they are without the change
	changed   []*match.Hook // of the mutating stages and of the validating one, with the change
	moved     []*match.Hook // that validate instead of mutating
	originals map[*match.Hook]match.HookID
}

// Parse adds the change of one flag of analyze: "without=HOOK,...", "deadline=HOOK:TIME", "validate=HOOK,...", "parallel=HOOK,..." or
// "replicas=HOOK:+N".
func (c *Variant) Parse(text string) error {
	verb, rest, _ := strings.Cut(text, "=")
	hook, value, _ := cutLast(rest)
	names := strings.FieldsFunc(rest, func(r rune) bool { return r == ',' })
	switch {
	case len(names) == 0:
	case verb == "without":
		c.Without = append(c.Without, names...)
		return nil
	case verb == "validate":
		c.Validating = append(c.Validating, names...)
		return nil
	case verb == "parallel":
		c.Parallel = append(c.Parallel, names...)
		return nil
	case verb == "deadline":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q: write deadline=HOOK:TIME, for example deadline=%s:500ms", text, cmp.Or(hook, rest))
		}
		c.Deadlines = with(c.Deadlines, hook, d)
		return nil
	case verb == "replicas":
		var n int
		if _, err := fmt.Sscanf(value, "+%d", &n); err != nil || n < 1 || value != fmt.Sprintf("+%d", n) {
			return fmt.Errorf("%q: write replicas=HOOK:+N, for example replicas=%s:+1", text, cmp.Or(hook, rest))
		}
		c.Replicas = with(c.Replicas, hook, n)
		return nil
	}
	return fmt.Errorf("%q: use without=HOOK, deadline=HOOK:TIME, validate=HOOK, parallel=HOOK or replicas=HOOK:+N", text)
}

// cutLast cuts at the last colon.
func cutLast(text string) (before, after string, found bool) {
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return "", "", false
}

func with[V any](m map[string]V, key string, value V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// Speculates reports whether the change lets a hook be called before its turn.
func (c *Variant) Speculates(hook string) bool { return slices.Contains(c.Parallel, hook) }

func (c *Variant) speculates() bool { return len(c.Parallel) > 0 }

// named is a hook that a change names, with the word that names it.
type named struct{ verb, hook string }

func (c *Variant) names() (all []named) {
	add := func(verb string, hooks []string) {
		for _, h := range hooks {
			all = append(all, named{verb, h})
		}
	}
	add("without", c.Without)
	add("validate", c.Validating)
	add("parallel", c.Parallel)
	add("deadline", slices.Sorted(maps.Keys(c.Deadlines)))
	add("replicas", slices.Sorted(maps.Keys(c.Replicas)))
	return all
}

// on binds the change to these hooks, in the order of the configuration.
func (c *Variant) on(hooks []*match.Hook, all *reviews) (*Variant, error) {
	out := *c
	out.hooks, out.originals = hooks, map[*match.Hook]match.HookID{}
	for _, n := range c.names() {
		if err := check(n, hooks, all); err != nil {
			return nil, err
		}
	}
	for _, h := range hooks {
		if slices.Contains(c.Without, h.ID.Name) {
			continue
		}
		changed := *h
		if d, ok := c.Deadlines[h.ID.Name]; ok {
			changed.Timeout = d
		}
		if c.Speculates(h.ID.Name) && !h.Initializes() {
			changed.Route.Speculate = true
		}
		if h.ID.Stage == admissionv1.Stage_STAGE_MUTATE && slices.Contains(c.Validating, h.ID.Name) {
			changed.ID.Stage = admissionv1.Stage_STAGE_VALIDATE
			out.moved = append(out.moved, &changed)
		} else {
			out.changed = append(out.changed, &changed)
		}
		out.originals[&changed] = h.ID
	}
	out.batch()
	return &out, nil
}

// batch numbers the initializers that act at the same time with the change: those next to each other that may. Two that stand next to each other
// without the change, and do not act at the same time, have an order.
func (c *Variant) batch() {
	number := 0
	var last *match.Hook // the one before, if it may
	lastBatch := 0       // that it had
	for _, h := range c.changed {
		had := h.Batch
		if !h.Initializes() || !h.Route.Stream || had == 0 && !c.Speculates(h.ID.Name) {
			last = nil
			continue
		}
		ordered := last != nil && had != lastBatch && had != 0 && lastBatch != 0 && c.place(c.original(h)) == c.place(c.original(last))+1
		if last == nil || ordered {
			number++
		}
		h.Batch, last, lastBatch = number, h, had
	}
}

// check returns an error if a hook cannot be changed so.
func check(n named, hooks []*match.Hook, all *reviews) error {
	verb, name := n.verb, n.hook
	var found, mutates, initializes, hosted bool // hosted: an initializer of hosts
	for _, h := range hooks {
		if h.ID.Name != name {
			continue
		}
		found = true
		mutates, hosted = mutates || h.ID.Stage == admissionv1.Stage_STAGE_MUTATE, hosted || h.Initializes() && h.Route.Stream
		initializes = initializes || h.Initializes()
		if verb == "validate" && all.mutates[h.ID] {
			return fmt.Errorf("validate=%s: the hook changes objects, so it cannot be a validating hook", name)
		}
	}
	switch {
	case !found:
		return fmt.Errorf("%s=%s: no such hook is in force: `portcullis get hooks` lists them", verb, name)
	case !mutates && initializes && verb == "validate":
		return fmt.Errorf("validate=%s: an initializer does not validate", name)
	case !mutates && hosted && verb == "parallel":
	case !mutates && initializes && verb == "parallel":
		return fmt.Errorf("parallel=%s: a controller acts when its name is the first of those that are pending", name)
	case !mutates && (verb == "validate" || verb == "parallel"):
		return fmt.Errorf("%s=%s: validating hooks are called at the same time already", verb, name)
	}
	return nil
}

// hooksOf returns the hooks that reviews of a stage call, and those that are called together behind them.
func (c *Variant) hooksOf(stage admissionv1.Stage) (first, second []*match.Hook) {
	validates := stage == admissionv1.Stage_STAGE_VALIDATE
	for _, h := range c.changed {
		if (h.ID.Stage == admissionv1.Stage_STAGE_VALIDATE) == validates {
			first = append(first, h)
		}
	}
	if stage == admissionv1.Stage_STAGE_MUTATE {
		second = c.moved
	}
	return first, second
}

// original is the id that a hook has in records.
func (c *Variant) original(h *match.Hook) match.HookID { return c.originals[h] }

// place is the place of a hook in the order of the configuration; -1 without one.
func (c *Variant) place(hook match.HookID) int {
	return slices.IndexFunc(c.hooks, func(h *match.Hook) bool { return h.ID == hook })
}
