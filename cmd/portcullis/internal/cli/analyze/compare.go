package analyze

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/analysis"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/printer"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// window is a time that a report is about.
type window struct{ from, until time.Duration } // both ago

// parseWindow reads "60m..50m".
func parseWindow(text string) (w window, err error) {
	from, until, ok := strings.Cut(text, "..")
	if w.from, err = time.ParseDuration(from); err == nil {
		w.until, err = time.ParseDuration(until)
	}
	if !ok || err != nil || w.until < 0 || w.from <= w.until || w.from > time.Hour {
		return w, errors.New("--compare: write from how long to how long ago, at most 1h, for example 60m..50m")
	}
	return w, nil
}

// span is how much time the minutes of a window take together: dispatchers count by whole minutes.
func (w window) span(now time.Time) time.Duration {
	from, until := now.Add(-w.from).Truncate(time.Minute), now.Add(-w.until)
	if end := until.Truncate(time.Minute); end.Before(until) {
		until = end.Add(time.Minute)
	}
	if until.After(now) {
		until = now
	}
	return until.Sub(from)
}

// comparison compares the period of --since with the period of --compare.
func (c *command) comparison() (func(context.Context, mesh.Mesh, io.Writer) error, error) {
	earlier, err := parseWindow(c.compare)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m mesh.Mesh, out io.Writer) error {
		now := time.Now()
		var reports [2]*analysis.Report
		for i, w := range []window{earlier, {from: c.since}} {
			all, err := latencies(ctx, m, &analysisv1.ListLatenciesRequest{
				Cluster: c.cluster, Hook: c.hook, Since: timestamppb.New(now.Add(-w.from)), Until: timestamppb.New(now.Add(-w.until)),
			})
			if err != nil {
				return err
			}
			reports[i] = analysis.Reported(all)
			if m.Notes = io.Discard; len(reports[i].Clusters) == 0 { // the first time wrote them
				if err := c.known(ctx, m); err != nil {
					return err
				}
				return fmt.Errorf("no review was judged from %s to %s ago: there is nothing to compare with", w.from, w.until)
			}
		}
		found := analysis.Compared(reports[0], reports[1])
		return printer.Print(out, c.output, found, func() error { return c.printComparison(found, earlier, now, out) })
	}, nil
}

func (c *command) printComparison(found *analysis.Comparison, earlier window, now time.Time, out io.Writer) error {
	was, is := earlier.span(now), window{from: c.since}.span(now)
	columns := printer.Heads("CLUSTER", "HOOK", "RATE", "P50", "P99", "FAILED", "ADDED", "GREW MOST").Wide("STAGE", "CONFIGURATION")
	var rows [][]string
	for i := range found.Hooks {
		h := &found.Hooks[i]
		more := "-"
		if h.Phase != "" {
			more = fmt.Sprintf("%s +%s", h.Phase, h.Grown.Rounded())
		}
		rows = append(rows, []string{
			h.After.Cluster, h.After.Name, became(rate(h.Before.Calls, was), rate(h.After.Calls, is)),
			became(h.Before.P50.Cell(), h.After.P50.Cell()), became(h.Before.P99.Cell(), h.After.P99.Cell()),
			became(fmt.Sprintf("%d%%", h.Before.FailedPercent()), fmt.Sprintf("%d%%", h.After.FailedPercent())),
			became(h.Before.Added.Cell(), h.After.Added.Cell()), more, h.After.Stage, h.After.Configuration,
		})
	}
	return printer.NewTable(out, c.output, columns).Write(rows...)
}

// became is a figure at two times.
func became(before, after string) string {
	if before == after {
		return after
	}
	return before + " -> " + after
}

// rate is how many calls a second there are.
func rate(calls uint64, in time.Duration) string {
	n := perSecond(calls, in)
	if n >= 10 {
		return fmt.Sprintf("%.0f/s", n)
	}
	return fmt.Sprintf("%.2g/s", n)
}

func perSecond(calls uint64, in time.Duration) float64 { return float64(calls) / max(1, in.Seconds()) }
