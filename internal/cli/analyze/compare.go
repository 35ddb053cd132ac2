package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	"github.com/portcullis-mesh/portcullis/internal/cli/printer"
)

// HookChange is a hook at two times.
type HookChange struct {
	// Before and After are the hook at the two times; zero but for its name at a time without a call.
	Before Hook `json:"before"`
	After  Hook `json:"after"`
	// Added is how much longer the mean review of the stage waits for the hook and no other.
	Added Duration `json:"added"`
	// Phase is the one of a call that grew most, and Grown by how much; empty if none grew.
	Phase string   `json:"phase,omitempty"`
	Grown Duration `json:"grown"`
}

// Comparison is the difference between two times.
type Comparison struct {
	// Before and After are the clusters at the two times.
	Before []Cluster `json:"clustersBefore"`
	After  []Cluster `json:"clustersAfter"`
	// Hooks are those of either time, what got worse first: a larger share of failures, then more time that reviews wait.
	Hooks []HookChange `json:"hooks"`
}

// Compared compares the report of a time with that of an earlier one.
func Compared(before, after *Report) *Comparison {
	c := &Comparison{Before: before.Clusters, After: after.Clusters, Hooks: []HookChange{}}
	was := map[key]Hook{}
	for _, h := range before.Hooks {
		was[h.key()] = h
	}
	for _, h := range after.Hooks {
		c.Hooks = append(c.Hooks, changeOf(cmp.Or(was[h.key()], named(h.key())), h))
		delete(was, h.key())
	}
	for k, h := range was {
		c.Hooks = append(c.Hooks, changeOf(h, named(k)))
	}
	slices.SortFunc(c.Hooks, func(a, b HookChange) int {
		return cmp.Or(cmp.Compare(b.moreFailures(), a.moreFailures()), cmp.Compare(b.Added, a.Added), compareKeys(a.After.key(), b.After.key()))
	})
	return c
}

func (h *Hook) key() key { return key{h.Cluster, h.Stage, h.Configuration, h.Name} }

func named(k key) Hook {
	return Hook{Cluster: k.cluster, Stage: k.stage, Configuration: k.configuration, Name: k.name}
}

func changeOf(before, after Hook) HookChange {
	c := HookChange{Before: before, After: after, Added: after.Added - before.Added}
	was, is := before.Phases, after.Phases
	c.Phase, c.Grown = grown(was, is)
	return c
}

// grown is the phase that is longer by most.
func grown(was, is Phases) (name string, d Duration) {
	if before, after := was, is; before != after {
		name, d = Phases{
			Queued: max(0, after.Queued-before.Queued), Wire: max(0, after.Wire-before.Wire), Host: max(0, after.Host-before.Host),
			Webhook: max(0, after.Webhook-before.Webhook), Applied: max(0, after.Applied-before.Applied),
		}.Largest()
	}
	return name, d
}

// moreFailures is by how many whole percent of all calls more calls fail.
func (c *HookChange) moreFailures() int { return c.After.failedPercent() - c.Before.failedPercent() }

func (h *Hook) failedPercent() int {
	if h.Calls == 0 {
		return 0
	}
	return int(100 * h.Failed / h.Calls)
}

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

// comparison compares the time of --since with that of --compare.
func (c *command) comparison() (func(context.Context, meshOf, io.Writer) error, error) {
	earlier, err := parseWindow(c.compare)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m meshOf, out io.Writer) error {
		now := time.Now()
		var reports [2]*Report
		for i, w := range []window{earlier, {from: c.since}} {
			all, err := latencies(ctx, m, &analysisv1.ListLatenciesRequest{
				Cluster: c.cluster, Hook: c.hook, Since: timestamppb.New(now.Add(-w.from)), Until: timestamppb.New(now.Add(-w.until)),
			})
			if err != nil {
				return err
			}
			reports[i] = Reported(all)
			if m.Notes = io.Discard; len(reports[i].Clusters) == 0 { // the first time wrote them
				if err := c.known(ctx, m); err != nil {
					return err
				}
				return fmt.Errorf("no review was judged from %s to %s ago: there is nothing to compare with", w.from, w.until)
			}
		}
		found := Compared(reports[0], reports[1])
		return printer.Print(out, c.output, found, func() error { return c.printComparison(found, earlier, now, out) })
	}, nil
}

func (c *command) printComparison(found *Comparison, earlier window, now time.Time, out io.Writer) error {
	was, is := earlier.span(now), window{from: c.since}.span(now)
	columns := printer.Heads("CLUSTER", "HOOK", "RATE", "P50", "P99", "FAILED", "ADDED", "GREW MOST").Wide("STAGE", "CONFIGURATION")
	var rows [][]string
	for i := range found.Hooks {
		h := &found.Hooks[i]
		more := "-"
		if h.Phase != "" {
			more = fmt.Sprintf("%s +%s", h.Phase, round(h.Grown))
		}
		rows = append(rows, []string{
			h.After.Cluster, h.After.Name, became(rate(h.Before.Calls, was), rate(h.After.Calls, is)),
			became(cell(h.Before.P50), cell(h.After.P50)), became(cell(h.Before.P99), cell(h.After.P99)),
			became(fmt.Sprintf("%d%%", h.Before.failedPercent()), fmt.Sprintf("%d%%", h.After.failedPercent())),
			became(cell(h.Before.Added), cell(h.After.Added)), more, h.After.Stage, h.After.Configuration,
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
