// Package suite runs scenarios against everyone who is compared, in one process and in turns, so that all of them are
// measured on the same machine under the same load of others.
package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/pki"
	"github.com/portcullis-mesh/portcullis/bench/report"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

// Options say what is run.
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
	// Profiles are taken of each cell; zero is none.
	Profiles Profiles
}

func (o *Options) defaults() {
	o.Duration = cmp.Or(o.Duration, DefaultDuration)
	o.Rounds = cmp.Or(o.Rounds, DefaultRounds)
	o.Callers = cmp.Or(o.Callers, maxCallers)
	o.Least = cmp.Or(o.Least, DefaultLeast)
}

// Run runs all groups. What fails ends it.
func Run(ctx context.Context, o Options) ([]report.Result, error) {
	o.defaults()
	keys, err := pki.New()
	if err != nil {
		return nil, err
	}
	var all []report.Result
	begun := time.Now()
	for i, cells := range o.Groups {
		fmt.Fprintf(o.Progress, "%s group %d of %d\n", time.Since(begun).Truncate(time.Second), i+1, len(o.Groups))
		g := &group{options: o, keys: keys, subjects: map[subjectKey]*subject{}}
		err := errors.Join(g.run(ctx, cells), g.close())
		if err != nil {
			return nil, err
		}
		all = append(all, g.results...)
	}
	return all, nil
}

// Harness is what a review costs that does nothing: what the measuring itself adds to each.
func Harness(ctx context.Context, duration time.Duration) (measure.Sample, error) {
	return measure.Run(ctx, func(context.Context) error { return nil }, measure.Load{Duration: duration, Least: 1})
}

// group is one that is measured. All subjects are there from the beginning to the end; one works at a time.
type group struct {
	options  Options
	keys     *pki.PKI
	subjects map[subjectKey]*subject
	results  []report.Result
}

// run measures the loads one after the other: a part of the full load is known when that is.
func (g *group) run(ctx context.Context, cells Group) error {
	for _, c := range cells {
		if err := g.start(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	for _, load := range report.Loads() {
		var some []*report.Result
		for _, c := range cells {
			if c.Load == load {
				some = append(some, &report.Result{Cell: c})
			}
		}
		if err := g.rounds(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// rounds measures cells of one load in turns.
func (g *group) rounds(ctx context.Context, cells []*report.Result) error {
	loads := make([]measure.Load, len(cells))
	for i, c := range cells {
		var err error
		if loads[i], err = g.load(ctx, c.Cell); err != nil {
			return fmt.Errorf("%s: %w", c.Cell, err)
		}
	}
	for range g.options.Rounds {
		for i, c := range cells {
			s, err := g.measure(ctx, c.Cell, loads[i])
			if err != nil {
				return fmt.Errorf("%s: %w", c.Cell, err)
			}
			c.Rounds = append(c.Rounds, s)
		}
	}
	for i, c := range cells {
		g.results = append(g.results, *c)
		fmt.Fprintln(g.options.Progress, c.Line())
		err := g.options.Profiles.take(c.Cell, func() error {
			_, err := g.measure(ctx, c.Cell, loads[i])
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Cell, err)
		}
	}
	return nil
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

// search finds the callers of a full load, and the throughput; once for each subject.
func (g *group) search(ctx context.Context, c report.Cell) (callers int, throughput float64, err error) {
	s := g.subject(c)
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
	sample, err := measure.Run(ctx, s.review, load)
	if err != nil {
		return sample, err
	}
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
