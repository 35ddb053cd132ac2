package chain_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// Calls ahead of their turn lead to the same result as calls in series. Random stories are told with calls ahead of their turns, and once more in
// series, where each hook answers at the time of the answer that counted. Then everything has to be the same: the answer, the outcomes, the calls
// that count, the calls of hooks in shadow, and the end time.
//
//	PORTCULLIS_CASES=1000000 PORTCULLIS_SEED=7 go test ./dispatcher/chain -run TestSpeculation
//
// A failure names the seed of its story, and prints the smallest story that still fails.

// enoughStories is from how many on everything that can happen has to have been seen.
const enoughStories = 10_000

func TestSpeculationLeadsToWhatTheSeriesLeadsTo(t *testing.T) {
	seen := map[string]int{}
	stories := citest.Cases(enoughStories, 2*enoughStories, 20*enoughStories)
	for i := range uint64(stories) {
		s := tell(citest.Seed() + i)
		ahead, difference := s.compare()
		if difference != "" {
			small := s.shrink()
			_, difference = small.compare()
			t.Fatalf("seed %d\n%s\n%s", s.seed, small, difference)
		}
		ahead.tally(seen)
	}
	t.Log(seen)
	if stories < enoughStories {
		return
	}
	for _, what := range []string{
		"counted", "counted denial", "counted patch", "counted in another version", "counted in the second round", "counted in a dry run only",
		"discarded", "discarded in the second round", "cancelled", "failed", "timed out", "asked again and answered", "asked again and failed", "in shadow", "refused unmatched",
	} {
		if seen[what] == 0 {
			t.Errorf("no call was %q: the test does not see enough", what)
		}
	}
}

// compare tells a story both ways, and returns the difference of the results.
func (s *story) compare() (ahead *play, difference string) {
	ahead = s.perform(nil)
	ahead.audit()
	calls, came := ahead.counted()
	series := s.perform(came)
	series.audit()
	if wrong := slices.Concat(ahead.wrong, series.wrong); len(wrong) > 0 {
		return ahead, fmt.Sprintf("wrong: %q", wrong)
	}
	if slices.Equal(series.outcomes(), ahead.outcomes()) && slices.Equal(series.asked(), calls) && slices.Equal(series.shadows, ahead.shadows) &&
		series.now.Equal(ahead.now) && sameAnswer(series.answer, ahead.answer) {
		return ahead, ""
	}
	return ahead, "(-series +ahead)\n" + cmp.Diff(series.answer, ahead.answer, protocmp.Transform()) +
		cmp.Diff(series.outcomes(), ahead.outcomes()) + cmp.Diff(series.now, ahead.now) +
		cmp.Diff(series.asked(), calls, cmp.AllowUnexported(asked{}, turn{})) +
		cmp.Diff(series.shadows, ahead.shadows, cmp.AllowUnexported(asked{}, turn{}))
}

func sameAnswer(a, b review.Answer) bool {
	return proto.Equal(a.Response, b.Response) && bytes.Equal(a.Object, b.Object) && a.Revision == b.Revision &&
		slices.EqualFunc(a.Outcomes, b.Outcomes, func(a, b *admissionv1.HookOutcome) bool { return proto.Equal(a, b) })
}

// outcomes are the outcomes of the hooks in their turns.
func (p *play) outcomes() []string {
	var all []string
	for o := range p.machine.Outcomes().All {
		if o.Effect != chain.Discarded {
			all = append(all, fmt.Sprintf("%s round %d: %s %q %d", o.Hook.ID.Name, o.Round, o.Effect, o.Reason, o.Code))
		}
	}
	return all
}

// asked are all calls.
func (p *play) asked() []asked {
	var all []asked
	for _, f := range p.calls {
		all = append(all, f.asked)
	}
	return all
}

// audit checks the machine's actions, whatever the result.
func (p *play) audit() {
	told := map[int]chain.Outcome{}
	for o := range p.machine.Outcomes().All {
		if _, twice := told[o.ID]; twice {
			p.complainf("call %d has two outcomes", o.ID)
		}
		told[o.ID] = o
	}
	ids := map[int]bool{}
	for _, f := range p.calls {
		o, known := told[f.id]
		switch a := p.actor(f.hook); {
		case ids[f.id]:
			p.complainf("call %d is made twice", f.id)
		case !known || o.Hook.ID.Name != f.hook || o.Round != f.round || o.Mode != f.mode:
			p.complainf("call %d of %v ends as %v", f.id, f.turn, o)
		case o.Effect == chain.Discarded && f.mode != review.Speculative:
			p.complainf("call %d of %v was made in its turn, and does not count", f.id, f.turn)
		case f.mode == review.Speculative && (p.series != nil || a.eager == 0 || a.shadow || !a.harmless(p.dryRun)):
			p.complainf("call %d of %v is made ahead of its turn", f.id, f.turn)
		case !f.over:
			p.complainf("call %d of %v is still under way", f.id, f.turn)
		}
		ids[f.id] = true
	}
}

func (a *actor) harmless(dryRun bool) bool {
	return a.effects == admissionregistrationv1.SideEffectClassNone ||
		(dryRun && a.effects == admissionregistrationv1.SideEffectClassNoneOnDryRun)
}

// tally counts the events of the story.
func (p *play) tally(seen map[string]int) {
	ahead := map[turn]bool{} // failed
	for o := range p.machine.Outcomes().All {
		if o.Effect == chain.Discarded && o.Failure != nil {
			ahead[turn{o.Hook.ID.Name, o.Round}] = true
		}
	}
	for o := range p.machine.Outcomes().All {
		a := p.actor(o.Hook.ID.Name)
		counted, discarded := o.Mode == review.Speculative && o.Effect != chain.Discarded, o.Effect == chain.Discarded
		again := o.Mode == review.Decide && ahead[turn{a.name, o.Round}] && o.Effect != chain.Skipped
		for what, is := range map[string]bool{
			"counted": counted, "counted denial": counted && o.Effect == chain.Denied, "counted patch": counted && o.Effect == chain.Patched,
			"counted in another version":  counted && a.as != "",
			"counted in the second round": counted && o.Round == 1, "counted in a dry run only": counted && !a.harmless(false),
			"discarded": discarded && o.Failure == nil, "discarded in the second round": discarded && o.Round == 1,
			"failed":                   discarded && o.Failure != nil,
			"timed out":                discarded && o.Failure != nil && o.Failure.Kind == review.FailureTimeout,
			"asked again and answered": again && o.Failure == nil, "asked again and failed": again && o.Failure != nil,
			"in shadow": o.Effect == chain.Shadowed, "refused unmatched": o.Effect == chain.Refused && a.broken.holds([]byte(p.object)),
		} {
			if is {
				seen[what]++
			}
		}
	}
	for _, f := range p.calls {
		if f.over && f.arrival.After(p.now) {
			seen["cancelled"]++
		}
	}
}

// shrink makes a story that fails as small as it can be.
func (s *story) shrink() *story {
	small := s
	for again := true; again; {
		again = false
		for _, less := range small.smaller() {
			if _, difference := less.compare(); difference != "" {
				small, again = less, true
				break
			}
		}
	}
	return small
}

// smaller are the stories that are one step smaller.
func (s *story) smaller() []*story {
	var all []*story
	with := func(change func(*story)) {
		c := *s
		c.actors = slices.Clone(s.actors)
		change(&c)
		if c.String() != s.String() {
			all = append(all, &c)
		}
	}
	for i := range s.actors {
		with(func(c *story) { c.actors = slices.Delete(c.actors, i, i+1) })
	}
	with(func(c *story) { c.dryRun = false })
	with(func(c *story) { c.reinvoke = false })
	for i := range s.actors {
		for _, change := range []func(*actor){
			func(a *actor) { a.shadow = false }, func(a *actor) { a.ifNeeded = false }, func(a *actor) { a.as = "" },
			func(a *actor) { a.when = "" }, func(a *actor) { a.broken = "never" }, func(a *actor) { a.effects = "None" },
			func(a *actor) { a.first = allows }, func(a *actor) { a.then = allows }, func(a *actor) { a.flaky = 0 }, func(a *actor) { a.eager = 0 },
		} {
			with(func(c *story) { change(&c.actors[i]) })
		}
	}
	return all
}
