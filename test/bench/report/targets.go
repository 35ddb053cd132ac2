package report

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

const (
	// idleSessions is how many sessions the target for the memory of one is measured with.
	idleSessions = 2_000
	// manySessions is how many sessions and hooks one dispatcher has to hold.
	manySessions = 10_000
)

// target is a ratio of one run that Portcullis is held to.
type target struct {
	// title names the target.
	title string
	// bound is the ratio; least tells that it is the least, else the most.
	bound float64
	least bool
	// sizes are the sizes of the Pods that it is measured with.
	sizes []int
	// of returns the run's figure for a size. who is the dispatcher whose target it is, or the same one with bare hosts,
	// which stands beside it. The error says why there is nothing to show.
	of func(r *Run, bytes int, who Contender) (Figure, error)
}

// sized makes a cell out of a size and a contender.
type sized func(bytes int, who Contender) Cell

// at is the cell of validating hooks at full throughput.
func at(hooks, hosts int) sized {
	return func(bytes int, who Contender) Cell {
		return Cell{scenario.Scenario{Stage: scenario.Validate, Hooks: hooks, Hosts: hosts, Bytes: bytes}, who, Full}
	}
}

// of is a cell of one contender, whoever is asked for.
func (s sized) of(who Contender) sized {
	return func(bytes int, _ Contender) Cell { return s(bytes, who) }
}

// fixed is one scenario of the dispatcher.
func fixed(s scenario.Scenario, load Load) sized {
	return func(_ int, who Contender) Cell { return Cell{s, who, load} }
}

// compared is the ratio of a metric of two cells.
func compared(of, against sized, metric func(measure.Sample) float64) func(*Run, int, Contender) (Figure, error) {
	return func(r *Run, bytes int, who Contender) (Figure, error) {
		a, err := r.rounds(of(bytes, who))
		b, err2 := r.rounds(against(bytes, who))
		return ratioOf(a, b, metric), worse(err, err2)
	}
}

// timed is the ratio of the times per review at full throughput, which are the inverse of it.
func timed(of, against sized) func(*Run, int, Contender) (Figure, error) {
	ratio := compared(of, against, throughput)
	return func(r *Run, bytes int, who Contender) (Figure, error) {
		f, err := ratio(r, bytes, who)
		return f.inverse(), err
	}
}

// targets are all.
func targets() []target {
	both, small := []int{scenario.Small, scenario.Medium}, []int{scenario.Small}
	return slices.Concat([]target{
		{
			title: "dispatcher, 8 hooks on 8 hosts: time per review, times the stream limit", bound: 1.3, sizes: both,
			of: timed(at(8, 8), at(8, 8).of(Streams)),
		},
		{
			title: "dispatcher, 8 hooks on 8 hosts: throughput, times kube-apiserver's", bound: 12, least: true, sizes: both,
			of: compared(at(8, 8), at(8, 8).of(Native), throughput),
		},
		{
			title: "bridge, 8 hooks: throughput, times kube-apiserver's", bound: 8, least: true, sizes: both,
			of: onlyDispatcher(compared(at(8, 8).of(Bridge), at(8, 8).of(Native), throughput)),
		},
		{
			title: "bridge, 32 hooks: throughput, times kube-apiserver's", bound: 15, least: true, sizes: both,
			of: onlyDispatcher(compared(at(32, 32).of(Bridge), at(32, 32).of(Native), throughput)),
		},
		{
			title: "webhook behind adapt: CPU per review, times that of the same webhook called by the dispatcher", bound: 1.5, sizes: both,
			of: onlyDispatcher(compared(at(1, 1).of(Adapted), at(1, 1).of(Webhooks), cpu)),
		},
		{
			title: "dispatcher, 8 hooks on one host: time per review, times the stream limit of 1 hook", bound: 1.5, sizes: both,
			of: timed(at(8, 1), at(1, 1).of(Streams)),
		},
		{
			title: "10,000 hooks configured, of which 8 match: time per review, times that of 8 configured", bound: 1.05, sizes: small,
			of: timed(fixed(scenario.Among(), Full), at(8, 8)),
		},
		{
			title: "8 mutating hooks of 5 ms that patch nothing, with speculation: median time, times that of one such hook",
			bound: 1.3, sizes: small,
			of: compared(fixed(scenario.Taking(8, true), Alone), fixed(scenario.Taking(1, false), Alone), p50),
		},
		{
			title: "one of three replicas ten times slower, hedged: p99, times that of three healthy ones", bound: 1.5, sizes: small,
			of: compared(fixed(scenario.Replicas(true, true), Steady), fixed(scenario.Replicas(false, false), Steady), p99),
		},
		{title: "the same: calls of hosts, for each review", bound: 1.05, sizes: small, of: callsOf(scenario.Replicas(true, true))},
		{
			title: "8 policies that check images: CPU per review, times that of one call of a Go host with the same check", bound: 1, sizes: small,
			of: onlyDispatcher(compared(fixed(scenario.Checking(8), Full).of(Policies), fixed(scenario.Checking(1), Full), cpu)),
		},
		{
			title: "a policy with 1,024 bindings: throughput, times that of kube-apiserver's plugin", bound: 20, least: true, sizes: small,
			of: onlyDispatcher(compared(
				fixed(scenario.Bound(scenario.ManyBindings), Full).of(Policies), fixed(scenario.Bound(scenario.ManyBindings), Full).of(NativePolicies), throughput)),
		},
		{title: "memory of an idle session in the dispatcher, in kB", bound: 40, sizes: small, of: onlyDispatcher(idleMemory)},
		{
			title: "sessions and hooks in one process, of which every session was in rotation", bound: manySessions, least: true,
			sizes: small, of: onlyDispatcher(most),
		},
	}, observedTargets(small), languageTargets(both), tenancyTargets(small))
}

// observedTargets bound the cost of records and traces.
func observedTargets(sizes []int) []target {
	var all []target
	for _, n := range []int{1, 8} {
		traced, without := at(n, n).of(BridgeTraced), at(n, n).of(BridgeNoRecords)
		title := fmt.Sprintf("bridge, records and 1 %% of traces, hooks: %d: ", n)
		all = append(all,
			target{title: title + "throughput, times that without", bound: 0.97, least: true, sizes: sizes, of: onlyDispatcher(compared(traced, without, throughput))},
			target{title: title + "CPU per review, times that without", bound: 1.03, sizes: sizes, of: onlyDispatcher(compared(traced, without, cpu))})
	}
	return all
}

// onlyDispatcher is a target that bare hosts have no figure for.
func onlyDispatcher(of func(*Run, int, Contender) (Figure, error)) func(*Run, int, Contender) (Figure, error) {
	return func(r *Run, bytes int, who Contender) (Figure, error) {
		if who != Dispatcher {
			return Figure{}, errNotMeasured
		}
		return of(r, bytes, who)
	}
}

// callsOf is how many calls a review cost.
func callsOf(s scenario.Scenario) func(*Run, int, Contender) (Figure, error) {
	return func(r *Run, _ int, who Contender) (Figure, error) {
		rounds, err := r.rounds(Cell{s, who, Steady})
		return figureOf(rounds, calls), err
	}
}

// idleMemory is the memory of a session, in kB.
func idleMemory(r *Run, _ int, _ Contender) (Figure, error) {
	c, err := r.crowd(func(c CrowdSize) bool { return c.Sessions == idleSessions })
	return NewFigure([]float64{c.PerSession() / 1000}), err
}

// most is how many sessions and hooks the largest crowd had.
func most(r *Run, _ int, _ Contender) (Figure, error) {
	c, err := r.crowd(func(c CrowdSize) bool { return min(c.Sessions, c.Hooks) >= manySessions })
	return NewFigure([]float64{float64(min(c.Sessions, c.Hooks))}), err
}

// verdict says whether a figure reaches the target, and how far it is from it. That some rounds say otherwise is said too.
func (t target) verdict(f Figure) string {
	far := ratio(f.Median, t.bound)
	if t.least {
		far = ratio(t.bound, f.Median)
	}
	text := "PASS"
	if far > 1 {
		text = fmt.Sprintf("MISSED, %s times the bound", number(ratio(f.Median, t.bound)))
	}
	if f.Least < t.bound && f.Most > t.bound {
		text += "; some rounds say otherwise"
	}
	return text
}

// bounds is the bound in words.
func (t target) bounds() string {
	if t.least {
		return fmt.Sprintf("at least %g", t.bound)
	}
	return fmt.Sprintf("at most %g", t.bound)
}

// Judgement is how one target was met.
type Judgement struct {
	// Title names the target, Bound its bound, and Pod the size of its Pods.
	Title, Bound, Pod string
	// Measured is the run's figure; Bare is the same with bare hosts.
	Measured, Bare Figure
	// Verdict begins with PASS, MISSED or, when a cell that is needed could not be measured, FAILED.
	Verdict string
}

// Judge holds a run to its targets. It leaves out the targets that were not measured, and keeps failures.
func (r *Run) Judge() []Judgement {
	none := Figure{math.NaN(), math.NaN(), math.NaN()}
	var all []Judgement
	for _, t := range targets() {
		for _, bytes := range t.sizes {
			got, err := t.of(r, bytes, Dispatcher)
			if errors.Is(err, errNotMeasured) {
				continue
			}
			j := Judgement{Title: t.title, Bound: t.bounds(), Pod: scenario.Scenario{Bytes: bytes}.Size(), Measured: got, Bare: none}
			if err != nil {
				j.Measured, j.Verdict = none, "FAILED: "+err.Error()
			} else {
				j.Verdict = t.verdict(got)
			}
			if bare, err := t.of(r, bytes, Bare); err == nil {
				j.Bare = bare
			}
			all = append(all, j)
		}
	}
	return all
}
