package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/google/pprof/profile"

	"github.com/portcullis-mesh/portcullis/test/bench/budget"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/suite"
)

const (
	// budgetDuration is how long each road is measured without and again with a profile.
	budgetDuration = 4 * time.Second
	// budgetBytes is how many bytes are allocated between two that the profile of memory shows: each of them takes processor time, also of the figures.
	budgetBytes = 128 << 10
)

// makeBudget prints where the time and the allocations of a review go, on each road.
func makeBudget(ctx context.Context, args []string, out, errs io.Writer) (err error) {
	flags := flag.NewFlagSet("bench budget", flag.ContinueOnError)
	flags.SetOutput(errs)
	pattern := flags.String("run", "", "only the roads whose names match this regular expression, as '8 hooks/8 hosts/(dispatcher|bridge)/full'")
	duration := flags.Duration("duration", budgetDuration, "how long each road is measured, and then profiled")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	groups := suite.Select(suite.Budget(), wanted)
	if len(groups) == 0 {
		return fmt.Errorf("no road matches %s", wanted)
	}
	dir, err := os.MkdirTemp("", "budget-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	runtime.MemProfileRate = budgetBytes
	machine := measure.NewMachine()
	profiles := suite.Profiles{CPU: filepath.Join(dir, "cpu"), Memory: filepath.Join(dir, "memory")}
	results, failures, err := suite.Run(ctx, suite.Options{Groups: groups, Duration: *duration, Rounds: 1, Progress: errs, Profiles: profiles})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, %d processors (%s), %.2f of them kept busy by other programs.\n", runtime.Version(), runtime.NumCPU(), processor(), machine.Others())
	for _, load := range report.Loads() {
		of := slices.DeleteFunc(slices.Clone(results), func(r report.Result) bool { return r.Load != load })
		if len(of) == 0 {
			continue
		}
		if err := budgetOf(out, load, of, profiles); err != nil {
			return err
		}
	}
	return failed(&report.Run{Failures: failures})
}

// budgetOf prints the tables of one load.
func budgetOf(out io.Writer, load report.Load, results []report.Result, profiles suite.Profiles) error {
	var times, objects []budget.Column
	for _, r := range results {
		cpu, memory, err := profiles.Read(r.Cell)
		if err != nil {
			return err
		}
		time, err := column(r, r.Rounds[0].CPU, cpu, "cpu")
		if err != nil {
			return err
		}
		object, err := column(r, r.Rounds[0].Allocs, memory, "alloc_objects")
		if err != nil {
			return err
		}
		times, objects = append(times, time), append(objects, object)
	}
	fmt.Fprintf(out, "\n## Load: %s\n\n", load)
	if err := budget.Markdown(out, "µs of processor a review", times); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := counts(out, results); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return budget.Markdown(out, "allocations a review", objects)
}

// column is a road in a table.
func column(r report.Result, total float64, p *profile.Profile, kind string) (budget.Column, error) {
	shares, err := budget.Of(p, kind)
	if err != nil {
		return budget.Column{}, fmt.Errorf("%s: %w", r.Cell, err)
	}
	return budget.Column{Title: title(r.Cell), Total: total, Shares: shares}, nil
}

// title names a road without its load.
func title(c report.Cell) string { return fmt.Sprintf("%s, %s", c.Contender, c.Scenario) }

// counts prints the events of a review.
func counts(out io.Writer, results []report.Result) error {
	rows := []struct {
		title string
		of    func(measure.Sample) float64
	}{
		{"reads", func(s measure.Sample) float64 { return s.Reads }},
		{"writes", func(s measure.Sample) float64 { return s.Writes }},
		{"waits of threads", func(s measure.Sample) float64 { return s.Waits }},
		{"runs of goroutines", func(s measure.Sample) float64 { return s.Runs }},
		{"kB allocated", func(s measure.Sample) float64 { return s.AllocBytes / 1000 }},
		{"p50, µs", func(s measure.Sample) float64 { return s.P50 }},
		{"p99, µs", func(s measure.Sample) float64 { return s.P99 }},
		{"reviews a second", func(s measure.Sample) float64 { return s.Throughput }},
	}
	head, rule := "| counted a review |", "|---|"
	for _, r := range results {
		head, rule = head+" "+title(r.Cell)+" |", rule+"---|"
	}
	fmt.Fprintf(out, "%s\n%s\n", head, rule)
	for _, row := range rows {
		fmt.Fprintf(out, "| %s |", row.title)
		for _, r := range results {
			fmt.Fprintf(out, " %.1f |", row.of(r.Rounds[0]))
		}
		fmt.Fprintln(out)
	}
	return nil
}
