package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
)

// Compare writes the changes from one run to another: for every figure of Portcullis, the ratio of the new median to the
// old one. Machines and their other load differ between runs, so that each round is first divided by kube-apiserver's
// round in the same scenario, where there is one. The rest is the change of Portcullis.
func Compare(w io.Writer, before, after *Run) error {
	c := &comparison{before: before.index(), after: after.index()}
	fmt.Fprintf(&c.text, `%s -> %s: new median / old median, both relative to kube-apiserver in their own run where it was measured.
Behind it how far the rounds of the two runs are from their medians: a change that is no larger is noise, and marked =;
of the others + is better and ! is worse. Times of full throughput and the throughput of other loads are left out: they are
what the number of callers and the rate make them.

`, before.Commit, after.Commit)
	fmt.Fprintf(&c.text, "%-64s", "")
	for _, m := range Metrics() {
		fmt.Fprintf(&c.text, " %14s", m.Short)
	}
	c.text.WriteString("\n")
	rows := 0
	for _, x := range after.Results {
		if c.row(x.Cell) {
			rows++
		}
	}
	if rows == 0 {
		return fmt.Errorf("report: the runs of %s and %s have no measurement in common", before.Commit, after.Commit)
	}
	if _, err := io.WriteString(w, c.text.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// comparison is a comparison that is being written.
type comparison struct {
	before, after index
	text          strings.Builder
}

// row writes one cell, if it is Portcullis' and in both runs.
func (c *comparison) row(cell Cell) bool {
	ours := cell.Contender == Bridge || cell.Contender == Dispatcher || cell.Contender == Bare
	if !ours || len(c.before[cell]) == 0 || len(c.after[cell]) == 0 {
		return false
	}
	fmt.Fprintf(&c.text, "%-64s", cell)
	for _, m := range Metrics() {
		text := ""
		if m.compares(cell.Load) {
			text = c.change(cell, m)
		}
		fmt.Fprintf(&c.text, " %14s", text)
	}
	c.text.WriteString("\n")
	return true
}

// change describes the change of a metric, with its noise and its meaning.
func (c *comparison) change(cell Cell, m Metric) string {
	base := cell
	base.Contender = Native
	of := func(x index, relative bool) Figure {
		if relative {
			return ratioOf(x[cell], x[base], m.Of)
		}
		return figureOf(x[cell], m.Of)
	}
	relative := len(c.before[base]) > 0 && len(c.after[base]) > 0 && divisible(m, c.before[base], c.after[base])
	was, is := of(c.before, relative), of(c.after, relative)
	change, noise := ratio(is.Median, was.Median), was.width()+is.width()
	return fmt.Sprintf("%s ±%.2f%s", number(change), noise, mark(m, change, noise))
}

// divisible reports whether kube-apiserver's own figures can be divided by.
func divisible(m Metric, rounds ...[]measure.Sample) bool {
	for _, r := range rounds {
		if figureOf(r, m.Of).Least <= 0 {
			return false
		}
	}
	return true
}

// mark names the meaning of a change.
func mark(m Metric, change, noise float64) string {
	switch {
	case math.IsNaN(change):
		return " "
	case math.Abs(change-1) <= noise:
		return "="
	case (change > 1) == m.More:
		return "+"
	}
	return "!"
}
