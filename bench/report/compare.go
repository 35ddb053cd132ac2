package report

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// noise is how far a ratio may be from 1 before a comparison marks it: two runs of one commit differ by as much.
const noise = 0.10

// Compare writes what changed from one run to another: of Portcullis every figure, as the ratio of the new one to the old.
// Machines and their other load differ between runs, so that each figure is first divided by kube-apiserver's own of its
// run: what is left is the change of Portcullis.
func Compare(w io.Writer, before, after *Run) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s -> %s: new figure / old figure, both relative to kube-apiserver in their own run; ! is more than %.0f %% worse\n\n",
		before.Commit, after.Commit, noise*100)
	fmt.Fprintf(&text, "%-32s %-12s %-6s", "", "", "")
	for _, m := range Metrics() {
		fmt.Fprintf(&text, " %14s", m.Short)
	}
	text.WriteString("\n")
	old, now, rows := before.index(), after.index(), 0
	for _, x := range after.Results {
		k := key{x.Scenario, x.Contender, x.Load}
		was, ok := old[k]
		base := key{x.Scenario, Native, x.Load}
		oldBase, hasOld := old[base]
		nowBase, hasNow := now[base]
		if !ok || !hasOld || !hasNow || (x.Contender != Bridge && x.Contender != Dispatcher) {
			continue
		}
		rows++
		fmt.Fprintf(&text, "%-32s %-12s %-6s", x.Scenario, x.Contender, x.Load)
		for _, m := range Metrics() {
			change := ratio(ratio(m.Of(x.Sample), m.Of(nowBase)), ratio(m.Of(was), m.Of(oldBase)))
			fmt.Fprintf(&text, " %13s%s", number(change), mark(m, change))
		}
		text.WriteString("\n")
	}
	if rows == 0 {
		return fmt.Errorf("report: the runs of %s and %s have no measurement in common", before.Commit, after.Commit)
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// mark marks a change for the worse.
func mark(m Metric, change float64) string {
	worse := change > 1+noise
	if m.More {
		worse = change < 1-noise
	}
	if worse && !math.IsNaN(change) {
		return "!"
	}
	return " "
}
