package chain_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// turn identifies a call of a hook in a review: there is at most one in each round.
type turn struct {
	hook  string
	round uint32
}

// asked is a call of a hook.
type asked struct {
	turn

	object string
	as     string // the version
}

// played is a call in a story that is being told.
type played struct {
	asked

	id       int
	mode     review.Mode
	deadline time.Time
	result   review.Result
	arrival  time.Time // of the result; zero for a hook that hangs
	over     bool      // delivered or cancelled
}

// play is a story told once.
type play struct {
	*story

	machine *chain.Mutate
	series  map[turn]time.Time // when results come, if it is told in series; nil asks ahead
	calls   []*played
	shadows []asked
	order   []*match.Hook
	now     time.Time
	answer  review.Answer
	wrong   []string // violations of the machine
}

// perform tells the story from begin to end. series has the time of each hook's answer in its turn, to repeat in series a story with calls ahead of
// turn; nil makes the hooks answer when they like, and asks ahead.
func (s *story) perform(series map[turn]time.Time) *play {
	p := &play{story: s, series: series, now: epoch}
	var speculate func(h *match.Hook, behind []*match.Hook) bool
	if series == nil {
		speculate = p.speculate
	}
	options := s.options(speculate)
	p.order, p.machine = options.Hooks, chain.NewMutate(options)
	for range 10_000 {
		p.step()
		if answer, ok := p.machine.Answer(); ok {
			p.answer = answer
			return p
		}
		p.pass()
	}
	p.complainf("the story has no end")
	return p
}

func (p *play) complainf(format string, args ...any) {
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

// speculate allows calls ahead as often as the actor likes, and checks its arguments.
func (p *play) speculate(h *match.Hook, behind []*match.Hook) bool {
	a, last := p.actor(h.ID.Name), -1
	for _, b := range append(slices.Clone(behind), h) {
		at := slices.Index(p.order, b)
		if at <= last || b.Route.Shadow {
			p.complainf("%s is behind %v", h.ID.Name, behind)
		}
		last = at
	}
	if len(behind) == 0 {
		p.complainf("%s is behind nobody", h.ID.Name)
	}
	return p.chance(100, "eager", a.name, len(p.calls)) < a.eager
}

// step takes the next step of the machine.
func (p *play) step() {
	start, cancel := p.machine.Next(p.now)
	for _, id := range cancel {
		f := p.calls[slices.IndexFunc(p.calls, func(f *played) bool { return f.id == id })]
		if f.over {
			p.complainf("call %d is cancelled when it is over", id)
		}
		f.over = true
		p.machine.Deliver(id, f.result) // is ignored
	}
	for _, c := range start {
		p.begin(c)
	}
	open := 0
	for _, f := range p.calls {
		if !f.over {
			open++
		}
	}
	if open > len(p.actors) {
		p.complainf("%d calls are under way", open)
	}
}

// begin has a hook asked.
func (p *play) begin(c chain.Start) {
	a := p.actor(c.Hook.ID.Name)
	seen, q := c.Object.Raw, asked{turn: turn{a.name, c.Round}}
	if c.View != nil {
		seen, q.as = c.View.Object, c.View.As.Kind.Version
	}
	q.object = string(seen)
	if c.Mode == review.Shadow {
		p.shadows = append(p.shadows, q)
		return
	}
	if _, done := p.machine.Answer(); done {
		p.complainf("call %d begins when the story is over", c.ID)
	}
	f := &played{asked: q, id: c.ID, mode: c.Mode, deadline: c.Deadline}
	if c.Deadline.After(epoch.Add(p.budget)) || !c.Deadline.After(p.now) {
		p.complainf("call %d has until %s", c.ID, c.Deadline.Sub(epoch))
	}
	var hung bool
	f.result, hung = a.answer(seen)
	p.calls = append(p.calls, f)
	n := len(p.calls)
	ahead := c.Mode == review.Speculative
	if ahead && p.chance(100, "flaky", a.name, n) < a.flaky {
		does := [...]act{breaks, hangs, scribbles, untyped}[p.chance(4, "flake", a.name, n)]
		f.result, hung = (&actor{name: a.name, first: does, then: does}).answer(seen)
	}
	switch at, comes := p.series[q.turn]; {
	case p.series != nil && comes:
		f.arrival = at
	case p.series == nil && !hung:
		f.arrival = p.now.Add(latencies[p.chance(len(latencies), "latency", a.name, n)])
	}
}

// latencies are the possible times of hooks.
var latencies = [...]time.Duration{
	0, 0, 0, time.Millisecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 1500 * time.Millisecond, 3 * time.Second,
}

// pass lets time pass until a result comes, and delivers the results of that time in any order.
func (p *play) pass() {
	wake := p.machine.Wake()
	if wake.IsZero() {
		p.complainf("nobody waits for anything")
	}
	for _, f := range p.calls {
		if !f.over && !f.arrival.IsZero() && f.arrival.Before(wake) {
			wake = f.arrival
		}
	}
	if wake.After(p.now) {
		p.now = wake
	}
	var came []*played
	for _, f := range p.calls {
		if !f.over && !f.arrival.IsZero() && !f.arrival.After(p.now) {
			came = append(came, f)
		}
	}
	slices.SortFunc(came, func(a, b *played) int {
		return p.chance(1000, "order", a.hook, a.id) - p.chance(1000, "order", b.hook, b.id)
	})
	for i, f := range came {
		// A verdict counts that is there when the time is over: where that matters, the machine gets all results before it gets the time.
		if i > 0 && p.chance(2, "between", f.id) == 0 && !slices.ContainsFunc(came[i:], func(f *played) bool { return !f.deadline.After(p.now) || f.over }) {
			p.step()
		}
		if _, done := p.machine.Answer(); done {
			return
		}
		if !f.over {
			f.over = true
			p.machine.Deliver(f.id, f.result)
		}
	}
}

// counted are the calls that count, in their order, and when their results came. A hook that was asked ahead of its turn and
// has had all of its time is not asked again: the call that it has had counts as the one in its turn.
func (p *play) counted() (calls []asked, came map[turn]time.Time) {
	came = map[turn]time.Time{}
	last := map[turn]*played{}
	for _, f := range p.calls {
		last[f.turn] = f
	}
	for o := range p.machine.Outcomes().All {
		f := last[turn{o.Hook.ID.Name, o.Round}]
		switch {
		case o.Effect == chain.Discarded || f == nil:
		case f.id == o.ID:
			calls = append(calls, f.asked)
			if !f.arrival.IsZero() {
				came[f.turn] = f.arrival
			}
		case strings.HasPrefix(o.Reason, "no verdict"):
			calls = append(calls, f.asked)
		}
	}
	return calls, came
}
