// Package suite runs scenarios against everyone who is compared, in one process and in turns, so that all of them are
// measured on the same machine under the same load of others.
package suite

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// Options are the settings of a run.
type Options struct {
	// Groups are run in order.
	Groups []Group
	// Duration is how long each cell is measured at least, in all its rounds together; 0 is DefaultDuration.
	Duration time.Duration
	// Rounds is how often each cell is measured; 0 is DefaultRounds.
	Rounds int
	// Callers is the most callers of a full load; 0 is 128. With Pods of 1 MB there are at most four.
	Callers int
	// Least is how many reviews a round of an open load has at least, however long they take; 0 is DefaultLeast.
	Least int
	// Progress gets a line for each group and for each cell.
	Progress io.Writer
	// Root is the root of the repository, below which programs of other languages are.
	Root string
	// Profiles are taken of each cell; zero is none.
	Profiles Profiles
}

func (o *Options) defaults() {
	o.Duration = cmp.Or(o.Duration, DefaultDuration)
	o.Rounds = cmp.Or(o.Rounds, DefaultRounds)
	o.Callers = cmp.Or(o.Callers, maxCallers)
	o.Least = cmp.Or(o.Least, DefaultLeast)
}

// Run runs all groups. Of a cell that fails nothing is told but why, and the others are measured; only the end of ctx ends
// the run.
func Run(ctx context.Context, o Options) ([]report.Result, []report.Failure, error) {
	o.defaults()
	keys, err := pki.New()
	if err != nil {
		return nil, nil, err
	}
	var all []report.Result
	var failed []report.Failure
	begun := time.Now()
	for i, cells := range o.Groups {
		fmt.Fprintf(o.Progress, "%s group %d of %d\n", time.Since(begun).Truncate(time.Second), i+1, len(o.Groups))
		g := &group{options: o, keys: keys, subjects: map[subjectKey]*subject{}}
		g.run(ctx, cells)
		if err := g.close(); err != nil {
			fmt.Fprintln(o.Progress, "ending a group:", err)
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		all, failed = append(all, g.results...), append(failed, g.failures...)
	}
	return all, failed, nil
}

// Harness is the cost of a review that does nothing: the measurement itself adds it to each.
func Harness(ctx context.Context, duration time.Duration) (measure.Sample, error) {
	return measure.Run(ctx, func(context.Context) error { return nil }, measure.Load{Duration: duration, Least: 1})
}

// group is a group under measurement. All subjects are there from the beginning to the end; one works at a time.
type group struct {
	options  Options
	keys     *pki.PKI
	subjects map[subjectKey]*subject
	results  []report.Result
	failures []report.Failure
}

// fail takes note of a cell that could not be measured.
func (g *group) fail(c report.Cell, err error) {
	fmt.Fprintf(g.options.Progress, "%s: FAILED: %v\n", c, err)
	g.failures = append(g.failures, report.Failure{Name: c.String(), Why: err.Error()})
}

// run measures the loads one after the other: a part of the full load is known when that is.
func (g *group) run(ctx context.Context, cells Group) {
	var some Group
	for _, c := range cells {
		if err := g.start(ctx, c); err != nil {
			g.fail(c, err)
			continue
		}
		some = append(some, c)
	}
	for _, load := range report.Loads() {
		g.rounds(ctx, load, some)
	}
}

// running is a cell that is being measured.
type running struct {
	report.Result

	load measure.Load
	err  error // nothing more of it is measured
}

// rounds measures the cells of one load in turns.
func (g *group) rounds(ctx context.Context, load report.Load, cells Group) {
	var some []*running
	for _, c := range cells {
		if c.Load == load {
			r := &running{Result: report.Result{Cell: c}}
			r.load, r.err = g.load(ctx, c)
			some = append(some, r)
		}
	}
	for range g.options.Rounds {
		for _, r := range some {
			g.round(ctx, r)
		}
	}
	for _, r := range some {
		if r.err == nil {
			fmt.Fprintln(g.options.Progress, r.Line())
			r.err = g.options.Profiles.take(r.Cell, func() error {
				_, err := g.measure(ctx, r.Cell, r.load)
				return err
			})
		}
		if r.err != nil {
			g.fail(r.Cell, r.err)
			continue
		}
		g.results = append(g.results, r.Result)
	}
}

// round measures one round of a cell, unless one has failed before.
func (g *group) round(ctx context.Context, r *running) {
	if r.err != nil {
		return
	}
	var s measure.Sample
	s, r.err = g.measure(ctx, r.Cell, r.load)
	r.Rounds = append(r.Rounds, s)
}

// load is how a cell is measured in each round.
func (g *group) load(ctx context.Context, c report.Cell) (measure.Load, error) {
	duration := g.options.Duration / time.Duration(g.options.Rounds)
	switch c.Load {
	case report.Full, report.Tenth: // as many callers as suit them best
	case report.Alone:
		return measure.Load{Callers: 1, Duration: slowly * duration, Least: 1}, g.warm(ctx, c)
	case report.Steady:
		return measure.Load{Rate: steadyRate, Duration: slowly * duration, Least: g.options.Least}, g.warm(ctx, c)
	case report.Slow:
		return measure.Load{Rate: slowRate, Duration: slowest * duration, Least: g.options.Least}, g.warm(ctx, c)
	}
	if n := c.Load.Callers(); n > 0 {
		return measure.Load{Callers: min(n, g.options.Callers), Duration: duration, Least: 1}, g.compile(ctx, c)
	}
	callers, throughput, err := g.search(ctx, c)
	if c.Load == report.Full {
		return measure.Load{Callers: callers, Duration: duration, Least: 1}, err
	}
	return measure.Load{Rate: throughput / partOfFull, Duration: duration, Least: g.options.Least}, err
}

// warm sends reviews that do not count: how long hooks take and how often they patch is learnt from them, as it is in a
// dispatcher that has run for some seconds.
func (g *group) warm(ctx context.Context, c report.Cell) error {
	_, err := measure.Run(ctx, g.subject(c).review, measure.Load{
		Callers: min(warmCallers, g.options.Callers), Least: max(1, int(g.options.Duration/warmEach)),
	})
	return err
}

// compile sends reviews that do not count to a program in a process of its own, before its first load.
func (g *group) compile(ctx context.Context, c report.Cell) error {
	s := g.subject(c)
	if s.compiled {
		return nil
	}
	s.compiled = true
	enough := timesToWarm * g.options.Duration
	if c.Language == "java" {
		enough = timesToWarmJava * g.options.Duration
	}
	load := measure.Load{Callers: min(languageCallers, g.options.Callers), Duration: g.options.Duration, Least: 1}
	for begun := time.Now(); time.Since(begun) < patience*enough; {
		if _, err := measure.Run(ctx, s.review, load); err != nil {
			return err
		}
		if spent, err := s.spent(); err != nil || spent >= enough {
			return err
		}
	}
	return nil
}

// search finds the callers of a full load, and the throughput; once for each subject.
func (g *group) search(ctx context.Context, c report.Cell) (callers int, throughput float64, err error) {
	s := g.subject(c)
	if s.like != nil {
		s.callers, s.throughput = s.like.callers, s.like.throughput
	}
	if s.callers > 0 {
		return s.callers, s.throughput, nil
	}
	most := g.options.Callers
	if c.Bytes >= scenario.Large {
		most = min(most, largeCallers)
	}
	s.callers, s.throughput, err = measure.Search(ctx, s.review, most, g.options.Duration/partOfSearch)
	return s.callers, s.throughput, err
}

// measure measures one round of a cell. A round in which some hooks were not asked is no result.
func (g *group) measure(ctx context.Context, c report.Cell, load measure.Load) (measure.Sample, error) {
	s := g.subject(c)
	before := s.called()
	spent, err := s.spent()
	if err != nil {
		return measure.Sample{}, err
	}
	sample, err := measure.Run(ctx, s.review, load)
	if err != nil {
		return sample, err
	}
	after, err := s.spent()
	if err != nil {
		return sample, err
	}
	sample.ProcessCPU = (after - spent).Seconds() * 1e6 / float64(sample.Reviews)
	sample.Calls = float64(s.called()-before) / float64(sample.Reviews)
	if c.Load == report.Full {
		s.throughput = max(s.throughput, sample.Throughput)
	}
	exactly := s.calls != nil && !c.Speculate && !c.Hedge
	if exactly && sample.Calls != float64(c.Hooks) {
		return sample, fmt.Errorf("%d hooks had %g calls a review", c.Hooks, sample.Calls)
	}
	return sample, nil
}
