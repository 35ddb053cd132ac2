package chain_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// story is a random review: data, so that it can be told again, and made smaller. Chance while it is told depends on its seed and on names alone,
// never on earlier events.
type story struct {
	seed     uint64
	object   string // empty is none
	dryRun   bool
	reinvoke bool // the API server asks once more
	budget   time.Duration
	actors   []actor
}

// actor is a hook of a story.
type actor struct {
	name             string
	ignore, ifNeeded bool
	shadow           bool
	effects          admissionregistrationv1.SideEffectClass
	timeout          time.Duration
	as               string // the version that it takes; empty is the version of the request
	when             condition
	broken           condition // of matching: never is the rule
	first            act       // if the object has the field
	field            string
	then             act // else
	eager            int // in so many of 100 cases it may be asked ahead of its turn
	flaky            int // so many of 100 calls ahead of its turn end otherwise than in its turn
}

// condition is on a field of the object: "a" has it, "!a" has it not, "" always, "never" never.
type condition string

func (c condition) holds(object []byte) bool {
	field, not := strings.CutPrefix(string(c), "!")
	switch {
	case c == "never":
		return false
	case c == "":
		return true
	}
	return has(object, field) != not
}

// has reports whether an object has a field, in whichever version.
func has(object []byte, field string) bool {
	return bytes.Contains(object, []byte(`"`+field+`"`)) || (field == "name" && bytes.Contains(object, []byte(`"title"`)))
}

// act is the behaviour of a hook.
type act string

// The acts of the stories.
const (
	allows    act = "allows"
	denies    act = "denies"
	adds      act = "adds" // + field: the value is the length of the object
	sets      act = "sets" // + field: to the same value each time
	removes   act = "removes"
	nothing   act = "patches nothing"
	mistyped  act = "mistyped"
	untyped   act = "untyped"
	scribbles act = "scribbles"
	breaks    act = "breaks"
	hangs     act = "hangs"
)

// tell makes a story.
func tell(seed uint64) *story {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &story{
		seed: seed, object: pick(r, `{"a":1}`, `{"b":1,"name":2}`, `{}`, `{"a":1,"b":2,"name":3}`),
		dryRun: r.IntN(4) == 0, reinvoke: r.IntN(6) == 0, budget: time.Duration(pick(r, 4, 8, 20, 60)) * time.Second,
	}
	if r.IntN(20) == 0 {
		s.object = ""
	}
	for i := range 2 + r.IntN(6) {
		s.actors = append(s.actors, cast(r, fmt.Sprintf("h%d", i)))
	}
	return s
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// cast makes an actor. Most let most objects pass.
func cast(r *rand.Rand, name string) actor {
	field := func() string { return pick(r, "a", "b", "c", "name") }
	do := func() act {
		switch n := r.IntN(40); {
		case n < 14:
			return allows
		case n < 29:
			return pick(r, adds, sets, removes) + act(" "+field())
		default:
			return pick(r, allows, nothing, nothing, denies, breaks, hangs, scribbles, mistyped, untyped)
		}
	}
	a := actor{
		name: name, ignore: r.IntN(2) == 0, ifNeeded: r.IntN(2) == 0, shadow: r.IntN(10) == 0,
		effects: pick(r, "None", "None", "None", "None", "NoneOnDryRun", admissionregistrationv1.SideEffectClass(pick(r, "Some", "", "NoneOnDryRun", "None"))),
		timeout: time.Duration(pick(r, 1, 2, 5, 10)) * time.Second, broken: "never",
		first: do(), field: field(), then: do(), eager: pick(r, 0, 50, 100, 100, 100), flaky: pick(r, 0, 0, 0, 30, 100),
	}
	if r.IntN(3) == 0 {
		a.when = condition(pick(r, "", "!") + field())
	}
	if r.IntN(12) == 0 {
		a.broken = condition(pick(r, "", "!") + field())
	}
	if r.IntN(5) == 0 {
		a.as = pick(r, "v2", "v2", "v2", "broken")
	}
	return a
}

// String is the story for a person.
func (s *story) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "object %s, dry run %t, reinvoke %t, budget %s\n", s.object, s.dryRun, s.reinvoke, s.budget)
	for _, a := range s.actors {
		fmt.Fprintf(&out, "%s: ignore %t, ifneeded %t, shadow %t, effects %q, timeout %s, as %q, when %q, broken %q, if %q: %s, else %s, eager %d, flaky %d\n",
			a.name, a.ignore, a.ifNeeded, a.shadow, a.effects, a.timeout, a.as, a.when, a.broken, a.field, a.first, a.then, a.eager, a.flaky)
	}
	return out.String()
}

// chance is a number below n that depends on the story and on its purpose.
func (s *story) chance(n int, purpose ...any) int {
	h := fnv.New64a()
	fmt.Fprintln(h, append(purpose, s.seed)...)
	return rand.New(rand.NewPCG(h.Sum64(), s.seed)).IntN(n)
}

// options are the options of a machine that plays the story. speculate is nil for a machine that asks in series.
func (s *story) options(speculate func(h *match.Hook, behind []*match.Hook) bool) chain.Options {
	r := &review.Request{
		Stage: admissionv1.Stage_STAGE_MUTATE, Explain: true,
		Admission: &admissionv1.AdmissionRequest{Uid: "u1", DryRun: &s.dryRun, Object: &admissionv1.Object{Raw: []byte(s.object)}},
	}
	if s.reinvoke {
		r.Stage = admissionv1.Stage_STAGE_REINVOKE
	}
	if s.object == "" {
		r.Admission.Object = nil
	}
	o := chain.Options{
		Request: r, Revision: "r1", Subject: subject{matches: s.match}, Codec: conversion.Raw{}, Speculate: speculate,
		Deadline: epoch.Add(s.budget),
	}
	for _, a := range s.actors {
		o.Hooks = append(o.Hooks, a.hook())
	}
	return o
}

func (a *actor) hook() *match.Hook {
	h := &match.Hook{
		ID:            match.HookID{Stage: admissionv1.Stage_STAGE_MUTATE, Configuration: "c", Name: a.name},
		FailurePolicy: admissionregistrationv1.Fail, Reinvocation: admissionregistrationv1.NeverReinvocationPolicy,
		Timeout: a.timeout, SideEffects: a.effects, Route: match.Route{Shadow: a.shadow},
	}
	if a.ignore {
		h.FailurePolicy = admissionregistrationv1.Ignore
	}
	if a.ifNeeded {
		h.Reinvocation = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	return h
}

// actor is who plays a hook.
func (s *story) actor(name string) *actor {
	return &s.actors[slices.IndexFunc(s.actors, func(a actor) bool { return a.name == name })]
}

func (s *story) match(h *match.Hook, o chain.Object) match.Decision {
	a := s.actor(h.ID.Name)
	switch {
	case a.broken.holds(o.Raw):
		return match.Decision{Err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "gone")}
	case !a.when.holds(o.Raw):
		return match.Decision{Skip: match.SkipObjectSelector}
	case a.as != "":
		return match.Decision{Match: true, As: &conversion.ResourceKind{Kind: schema.GroupVersionKind{Version: a.as, Kind: "Thing"}}}
	}
	return match.Decision{Match: true}
}

// answer is the answer of a hook to an object; hung is true without an answer. All texts of the answer show the object.
func (a *actor) answer(seen []byte) (result review.Result, hung bool) {
	does := a.then
	if has(seen, a.field) {
		does = a.first
	}
	saw := fmt.Sprintf("%s saw %s", a.name, seen)
	v := &admissionv1.AdmissionResponse{
		Allowed: true, Warnings: []string{saw}, AuditAnnotations: map[string]string{"saw": saw}, PatchType: "JSONPatch",
	}
	verb, field, _ := strings.Cut(string(does), " ")
	if field == "name" && a.as != "" {
		field = "title"
	}
	switch act(verb) {
	case adds:
		v.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/%s","value":%d}]`, field, len(seen))
	case sets:
		v.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/%s","value":1}]`, field)
	case removes:
		v.Patch = fmt.Appendf(nil, `[{"op":"remove","path":"/%s"}]`, field)
	case "patches":
		v.Patch = []byte(`[]`)
	case scribbles:
		v.Patch = []byte(`scribble`)
	case mistyped:
		v.Patch, v.PatchType = []byte(`[{"op":"add","path":"/c","value":1}]`), "Merge"
	case untyped:
		v.Patch, v.PatchType = []byte(`[]`), ""
	case breaks:
		return review.Fail(review.FailureHandler, "broken"), false
	case hangs:
		return review.Result{}, true
	case denies:
		v.Allowed, v.PatchType = false, ""
		v.Status = &admissionv1.Status{Code: 422, Message: saw}
	default:
		v.PatchType = ""
	}
	return review.Result{Verdict: v}, false
}
