// Package suite runs scenarios against everyone who is compared, one after the other in one process, so that all of them
// are measured on the same machine under the same load of others.
package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/portcullis-mesh/portcullis/bench/limits"
	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/mesh"
	"github.com/portcullis-mesh/portcullis/bench/native"
	"github.com/portcullis-mesh/portcullis/bench/pki"
	"github.com/portcullis-mesh/portcullis/bench/report"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

const (
	// partOfProbe is the part of a measurement's time that each number of callers is tried for before it. Connections are
	// open and caches are filled then.
	partOfProbe = 4
	// partOfFull is the part of the full throughput at which the open load is.
	partOfFull = 10
	// DefaultLeast is how many reviews an open load has at least: fewer have no percentiles.
	DefaultLeast = 20
	// largeCallers is the most callers that send reviews of 1 MB: each of them holds several copies for each hook.
	largeCallers = 4
)

// Options say what is run.
type Options struct {
	// Scenarios are run in order.
	Scenarios []scenario.Scenario
	// Duration is how long each measurement takes at least.
	Duration time.Duration
	// Callers are the numbers of callers of which everyone gets the one with which its throughput is best; none means
	// DefaultCallers. With Pods of 1 MB there are at most four.
	Callers []int
	// Least is how many reviews an open load has at least, however long they take; 0 is DefaultLeast.
	Least int
	// Progress gets a line for each measurement.
	Progress io.Writer
}

// DefaultCallers are the numbers of callers that are tried: kube-apiserver's connections to one server, for example, are few,
// and it makes new ones all the time when there are many callers.
func DefaultCallers() []int { return []int{2, 8, 32} }

// Run runs all scenarios. What fails ends it.
func Run(ctx context.Context, o Options) ([]report.Result, error) {
	if len(o.Callers) == 0 {
		o.Callers = DefaultCallers()
	}
	keys, err := pki.New()
	if err != nil {
		return nil, err
	}
	var all []report.Result
	for _, s := range o.Scenarios {
		r := &run{options: o, scenario: s, keys: keys}
		if err := r.everyone(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		all = append(all, r.results...)
	}
	return all, nil
}

// run is one scenario.
type run struct {
	options  Options
	scenario scenario.Scenario
	keys     *pki.PKI
	results  []report.Result
}

// everyone measures all who are compared. Each is alone while it is measured: the others are not started, or have ended.
func (r *run) everyone(ctx context.Context) error {
	return errors.Join(r.native(ctx), r.mesh(ctx), r.streams(ctx), r.roundTrip(ctx))
}

func (r *run) native(ctx context.Context) error {
	n, err := native.Start(ctx, r.scenario, r.keys)
	if err != nil {
		return err
	}
	return errors.Join(r.measure(ctx, report.Native, n.Review), n.Close())
}

func (r *run) mesh(ctx context.Context) error {
	m, err := mesh.Start(ctx, r.scenario, r.keys)
	if err != nil {
		return err
	}
	return errors.Join(r.measure(ctx, report.Dispatcher, m.Review), r.measure(ctx, report.Bridge, m.ReviewJSON), m.Close())
}

func (r *run) streams(ctx context.Context) error {
	s, err := limits.StartStreams(ctx, r.scenario, r.keys)
	if err != nil {
		return err
	}
	return errors.Join(r.measure(ctx, report.Streams, s.Review), s.Close())
}

func (r *run) roundTrip(ctx context.Context) error {
	t, err := limits.StartRoundTrip(ctx, r.scenario, r.keys)
	if err != nil {
		return err
	}
	return errors.Join(r.measure(ctx, report.RoundTrip, t.Review), t.Close())
}

// measure puts both loads on one of them. Pods of 1 MB are sent at full throughput alone.
func (r *run) measure(ctx context.Context, who report.Contender, review measure.Review) error {
	callers, err := r.probe(ctx, review)
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	full, err := r.sample(ctx, who, report.Full, review, r.closed(callers, r.options.Duration))
	if err != nil || r.scenario.Bytes >= scenario.Large {
		return err
	}
	tenth := measure.Load{Rate: full.Throughput / partOfFull, Duration: r.options.Duration, Least: cmp.Or(r.options.Least, DefaultLeast)}
	_, err = r.sample(ctx, who, report.Tenth, review, tenth)
	return err
}

// closed is a closed load.
func (r *run) closed(callers int, duration time.Duration) measure.Load {
	if r.scenario.Bytes >= scenario.Large {
		callers = min(callers, largeCallers)
	}
	return measure.Load{Callers: callers, Duration: duration, Least: 1}
}

// probe finds the number of callers with which the throughput is best.
func (r *run) probe(ctx context.Context, review measure.Review) (int, error) {
	best, most := 0, 0.0
	for _, n := range r.options.Callers {
		s, err := measure.Run(ctx, review, r.closed(n, r.options.Duration/partOfProbe))
		if err != nil {
			return 0, err
		}
		if s.Throughput > most {
			best, most = n, s.Throughput
		}
	}
	return best, nil
}

// sample measures one load.
func (r *run) sample(
	ctx context.Context, who report.Contender, load report.Load, review measure.Review, how measure.Load,
) (measure.Sample, error) {
	s, err := measure.Run(ctx, review, how)
	if err != nil {
		return s, fmt.Errorf("%s, %s: %w", who, load, err)
	}
	r.results = append(r.results, report.Result{Scenario: r.scenario, Contender: who, Load: load, Sample: s})
	fmt.Fprintf(r.options.Progress, "%-34s %-16s %-7s %9.0f reviews/s  callers %2d  p50 %8.0f us  p99 %8.0f us  cpu %8.1f us  %7.0f allocs\n",
		r.scenario, who, load, s.Throughput, s.Callers, s.P50, s.P99, s.CPU, s.Allocs)
	return s, nil
}
