package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/languages"
	"github.com/portcullis-mesh/portcullis/test/bench/limits"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/mesh"
	"github.com/portcullis-mesh/portcullis/test/bench/native"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// subject is one contender in one scenario, started.
type subject struct {
	review measure.Review
	calls  func() int64 // of hooks, so far; nil when there are no hooks
	close  func() error // nil when another subject closes the shared parts

	// cpu is the processor time of a program in a process of its own; nil in this one. compiled tells that it has had reviews before.
	cpu      func() (time.Duration, error)
	compiled bool

	// like is another subject with the same number of callers; nil for the best one. How many calls share a frame depends on it.
	like *subject

	// The result of the search for the best number of callers; 0 before it.
	callers    int
	throughput float64
}

// called is how many calls hooks have had.
func (s *subject) called() int64 {
	if s.calls == nil {
		return 0
	}
	return s.calls()
}

// spent is the processor time of the program in a process of its own; 0 without.
func (s *subject) spent() (time.Duration, error) {
	if s.cpu == nil {
		return 0, nil
	}
	return s.cpu()
}

// subjectKey identifies a subject.
type subjectKey struct {
	scenario.Scenario

	contender report.Contender
}

// subject is the subject of a cell.
func (g *group) subject(c report.Cell) *subject {
	return g.subjects[subjectKey{c.Scenario, c.Contender}]
}

// start starts the subject of a cell, unless it runs. One mesh serves both roads.
func (g *group) start(ctx context.Context, c report.Cell) error {
	if g.subject(c) != nil {
		return nil
	}
	if c.Language != "" {
		return g.startProgram(ctx, c)
	}
	add := func(who report.Contender, s *subject) { g.subjects[subjectKey{c.Scenario, who}] = s }
	switch c.Contender {
	case report.Native:
		n, err := native.Start(ctx, c.Scenario, g.keys)
		if err != nil {
			return err
		}
		add(report.Native, &subject{review: n.Review, calls: n.Calls, close: n.Close})
	case report.Dispatcher, report.Bridge, report.BridgeHTTP2:
		m, err := mesh.Start(ctx, mesh.Options{Scenario: c.Scenario, Keys: g.keys})
		if err != nil {
			return err
		}
		add(report.Dispatcher, &subject{review: m.Review, calls: m.Calls, close: m.Close})
		add(report.Bridge, &subject{review: m.ReviewJSON, calls: m.Calls})
		add(report.BridgeHTTP2, &subject{review: m.ReviewJSONByHTTP2, calls: m.Calls})
	case report.BridgeNoRecords, report.BridgeTraced:
		kept := mesh.NoRecords
		if c.Contender == report.BridgeTraced {
			kept = mesh.RecordsAndTraces
		}
		m, err := mesh.Start(ctx, mesh.Options{Scenario: c.Scenario, Keys: g.keys, Observation: kept})
		if err != nil {
			return err
		}
		like := g.subjects[subjectKey{c.Scenario, report.BridgeNoRecords}]
		add(c.Contender, &subject{review: m.ReviewJSON, calls: m.Calls, close: m.Close, like: like})
	case report.Bare, report.Webhooks, report.Adapted:
		kinds := map[report.Contender]mesh.Hosts{report.Bare: mesh.Bare, report.Webhooks: mesh.Webhooks, report.Adapted: mesh.Adapted}
		m, err := mesh.Start(ctx, mesh.Options{Scenario: c.Scenario, Keys: g.keys, Hosts: kinds[c.Contender]})
		if err != nil {
			return err
		}
		s := &subject{review: m.Review, calls: m.Calls, close: m.Close}
		if c.Contender == report.Adapted {
			s.like = g.subjects[subjectKey{c.Scenario, report.Webhooks}]
		}
		add(c.Contender, s)
	case report.Policies, report.NativePolicies:
		return g.startPolicies(ctx, c)
	case report.Streams, report.RoundTrip:
		return g.startLimit(ctx, c)
	default:
		return fmt.Errorf("nobody is called %q", c.Contender)
	}
	return nil
}

// startLimit starts a limit of the wire.
func (g *group) startLimit(ctx context.Context, c report.Cell) error {
	s := &subject{}
	if c.Contender == report.Streams {
		streams, err := limits.StartStreams(ctx, c.Scenario, g.keys)
		if err != nil {
			return err
		}
		s.review, s.close = streams.Review, streams.Close
	} else {
		trip, err := limits.StartRoundTrip(ctx, c.Scenario, g.keys)
		if err != nil {
			return err
		}
		s.review, s.close = trip.Review, trip.Close
	}
	g.subjects[subjectKey{c.Scenario, c.Contender}] = s
	return nil
}

// startPolicies starts policies in the place of hooks.
func (g *group) startPolicies(ctx context.Context, c report.Cell) error {
	s := &subject{}
	if c.Contender == report.NativePolicies {
		n, err := native.StartPolicies(c.Scenario)
		if err != nil {
			return err
		}
		s.review, s.close = n.Review, n.Close
	} else {
		m, err := mesh.Start(ctx, mesh.Options{Scenario: c.Scenario, Keys: g.keys, Hosts: mesh.Policies})
		if err != nil {
			return err
		}
		s.review, s.close = m.Review, m.Close
	}
	g.subjects[subjectKey{c.Scenario, c.Contender}] = s
	return nil
}

// startProgram starts a program in a process of its own.
func (g *group) startProgram(ctx context.Context, c report.Cell) error {
	p, err := languages.Start(ctx, languages.Options{Root: g.options.Root, Scenario: c.Scenario, Contender: c.Contender, Keys: g.keys})
	if err != nil {
		return err
	}
	g.subjects[subjectKey{c.Scenario, c.Contender}] = &subject{review: p.Review, close: p.Close, cpu: p.CPU}
	return nil
}

// close ends all subjects.
func (g *group) close() error {
	var err error
	for _, s := range g.subjects {
		if s.close != nil {
			err = errors.Join(err, s.close())
		}
	}
	return err
}
