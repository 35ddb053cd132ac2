// Package tenancy measures how the flood of a cluster slows another: the reviews of one are sent at a fixed rate, first in
// quiet, and then while the other one has thousands under way that are not answered. Both share one dispatcher with its default
// limits, and everything is on loopback. A flood is built up before the measurement, and then costs next to nothing: the
// measurement is not about the share of the processors.
package tenancy

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/pki"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
)

const (
	// rate is how many reviews the measured cluster sends in a second.
	rate = 200
	// DefaultReviews is how many reviews are in a flood: more than one target has slots for, under way and waiting.
	DefaultReviews = 4000
)

// Options are the settings of a measurement.
type Options struct {
	// Rounds is how often each cell is measured, in turns with the others.
	Rounds int
	// Reviews is how many the measured cluster sends in a round.
	Reviews int
	// FloodReviews is how many the other cluster sends before; 0 is DefaultReviews.
	FloodReviews int
	// Wanted says which cells are measured; nil is all.
	Wanted func(c report.TenancyCell) bool
	// Progress gets a line for each cell.
	Progress io.Writer
}

// Measure measures all wanted cells. A failed cell has its reason alone. Measure returns an error only at the end of ctx, and if
// it cannot start.
func Measure(ctx context.Context, o Options) ([]report.Tenancy, []report.Failure, error) {
	keys, err := pki.New()
	if err != nil {
		return nil, nil, err
	}
	a, err := start(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	m := &measurement{options: o, arena: a, cells: make(map[report.TenancyCell]*cell)}
	for range o.Rounds {
		for _, f := range append([]report.Flood{report.Quiet}, report.Floods()...) {
			m.flood(ctx, f)
		}
	}
	shown, failed := m.results()
	return shown, failed, errors.Join(ctx.Err(), a.close(ctx))
}

// measurement is a measurement under way.
type measurement struct {
	options Options
	arena   *arena
	cells   map[report.TenancyCell]*cell
}

// cell has the results of the rounds of a cell so far.
type cell struct {
	rounds   []measure.Sample
	flooding []float64
	err      error // nothing more of it is measured
}

// flood measures all roads during one flood.
func (m *measurement) flood(ctx context.Context, f report.Flood) {
	var roads []report.Road
	for _, r := range report.Roads() {
		if c := (report.TenancyCell{Road: r, Flood: f}); m.options.Wanted == nil || m.options.Wanted(c) {
			roads = append(roads, r)
		}
	}
	if len(roads) == 0 {
		return
	}
	rising, err := m.arena.flood(ctx, f, m.options.FloodReviews)
	for _, r := range roads {
		c := m.cell(report.TenancyCell{Road: r, Flood: f})
		if c.err = errors.Join(c.err, err); c.err == nil {
			c.flooding = append(c.flooding, float64(rising.here()))
			var s measure.Sample
			s, c.err = m.arena.measure(ctx, r, m.options.Reviews)
			c.rounds = append(c.rounds, s)
		}
	}
	rising.end()
}

func (m *measurement) cell(at report.TenancyCell) *cell {
	c := m.cells[at]
	if c == nil {
		c = &cell{}
		m.cells[at] = c
	}
	return c
}

// measure sends the reviews of the measured cluster.
func (a *arena) measure(ctx context.Context, r report.Road, reviews int) (measure.Sample, error) {
	to := webhooks
	if r == report.Stream {
		to = streams
	}
	return measure.Run(ctx, func(ctx context.Context) error { return a.review(ctx, measured, to) }, measure.Load{Rate: rate, Least: reviews})
}

// results returns the results of all cells, in order.
func (m *measurement) results() (shown []report.Tenancy, failed []report.Failure) {
	for _, r := range report.Roads() {
		for _, f := range append([]report.Flood{report.Quiet}, report.Floods()...) {
			at := report.TenancyCell{Road: r, Flood: f}
			c := m.cells[at]
			switch {
			case c == nil:
			case c.err != nil:
				fmt.Fprintf(m.options.Progress, "%s: FAILED: %v\n", at, c.err)
				failed = append(failed, report.Failure{Name: at.String(), Why: c.err.Error()})
			default:
				t := report.Tenancy{TenancyCell: at, Rounds: c.rounds, Flooding: report.NewFigure(c.flooding)}
				fmt.Fprintln(m.options.Progress, t.Line())
				shown = append(shown, t)
			}
		}
	}
	return shown, failed
}
