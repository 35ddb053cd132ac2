package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/languages"
	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/suite"
)

const (
	// shortRounds and shortDuration are the settings of a short run.
	shortRounds   = 3
	shortDuration = 450 * time.Millisecond
	// harnessDuration is how long the harness measures itself.
	harnessDuration = 200 * time.Millisecond
	// crowdDuration is the ratio between the loads of a crowd and of a cell: there are few crowds.
	crowdDuration = 2
	// profiledBytes is how many bytes are allocated between two that the profile of memory shows.
	profiledBytes = 8 << 10
)

// config has the values of the flags.
type config struct {
	short                   bool
	pattern                 *regexp.Regexp // nil is everything
	duration                time.Duration
	rounds                  int
	out, json, commit, note string
	root                    string
	profiles                suite.Profiles
}

// parse reads the flags.
func parse(args []string, errs io.Writer) (config, error) {
	var c config
	var pattern string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.BoolVar(&c.short, "short", false, "only the targets, with Pods of 2 kB and fewer rounds; about a minute")
	flags.StringVar(&pattern, "run", "", "measure only the cells whose names match this regular expression, for example\n"+
		"'^validate/2kB/8 hooks/8 hosts/(dispatcher|stream limit)/full'; crowds are called 'crowd/10000 sessions/10000 hooks',\n"+
		"and a cluster beside one that floods 'tenancy/webhook/slow webhook'")
	flags.DurationVar(&c.duration, "duration", 0, "how long each cell is measured at least, in all its rounds (default 1.25s, 450ms with -short)")
	flags.IntVar(&c.rounds, "rounds", 0, "how often each cell is measured, in turns with the others (default 5, 3 with -short)")
	flags.StringVar(&c.out, "out", "", "directory for benchmarks.md, .svg and .json; empty writes none")
	flags.StringVar(&c.json, "json", "", "file for the results alone, to be compared; empty writes none")
	flags.StringVar(&c.commit, "commit", "unknown", "the measured commit, for the report")
	flags.StringVar(&c.note, "note", "", "a note for readers of the report")
	flags.StringVar(&c.root, "root", "../..", "the repository, in which make benchprograms has built hosts and webhooks of some languages")
	flags.StringVar(&c.profiles.CPU, "cpuprofile", "", "beginning of the names of files with a profile of each cell")
	flags.StringVar(&c.profiles.Memory, "memprofile", "", "the same of allocations; see `go tool pprof -base`")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 || c.duration < 0 || c.rounds < 0 {
		return c, errors.New("usage: bench [flags], or bench compare A.json B.json; see bench -help")
	}
	if c.rounds == 0 {
		c.rounds = pick(c.short, shortRounds, suite.DefaultRounds)
	}
	if c.duration == 0 {
		c.duration = pick(c.short, shortDuration, suite.DefaultDuration)
	}
	var err error
	if pattern != "" {
		c.pattern, err = regexp.Compile(pattern)
	}
	return c, err
}

// pick is a value for a short run, or one for a whole run.
func pick[T any](short bool, if1, if2 T) T {
	if short {
		return if1
	}
	return if2
}

// run measures, and writes the report.
func (c config) run(ctx context.Context, out, errs io.Writer) error {
	built, missing := languages.Built(c.root)
	for _, m := range missing {
		fmt.Fprintln(errs, m)
	}
	groups := pick(c.short, suite.Short, suite.All)(built...)
	if c.pattern != nil {
		groups = suite.Select(groups, c.pattern)
	}
	run := &report.Run{
		Commit: c.commit, Go: runtime.Version(), CPUs: runtime.NumCPU(), Processor: processor(), Note: c.note,
		Duration: c.duration.Seconds(), Rounds: c.rounds, LoadAverage: measure.LoadAverage(),
	}
	runtime.MemProfileRate = pick(c.profiles.Memory != "", profiledBytes, 0)
	machine := measure.NewMachine()
	var err error
	if run.Harness, err = suite.Harness(ctx, harnessDuration); err != nil {
		return err
	}
	run.Results, run.Failures, err = suite.Run(ctx, suite.Options{
		Groups: groups, Duration: c.duration, Rounds: c.rounds, Root: c.root, Progress: errs, Profiles: c.profiles,
	})
	if err != nil {
		return err
	}
	c.tenancies(ctx, run, errs)
	c.crowds(ctx, run, errs)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	run.Others = machine.Others()
	if len(run.Results)+len(run.Tenancies)+len(run.Crowds)+len(run.Failures) == 0 {
		return fmt.Errorf("no cell matches %v", c.pattern)
	}
	return errors.Join(c.deliver(run, out), failed(run))
}

// failed is an error if anything could not be measured. The report is there all the same.
func failed(run *report.Run) error {
	if len(run.Failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d measurements failed, %s the first of them", len(run.Failures), run.Failures[0].Name)
}

// deliver shows how the targets were met, and writes the files.
func (c config) deliver(run *report.Run, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, j := range run.Judge() {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\tbare hosts: %s\t%s\n", j.Title, j.Pod, j.Bound, j.Measured, j.Bare, j.Verdict)
	}
	if !run.Idle() {
		fmt.Fprintf(table, "The machine was not idle: other programs kept %.2f processors busy.\n", run.Others)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if c.json != "" {
		file, err := os.Create(c.json)
		if err != nil {
			return err
		}
		if err := errors.Join(run.Write(file), file.Close()); err != nil {
			return err
		}
	}
	if c.out == "" {
		return nil
	}
	return write(c.out, run)
}

// processor is the name of the processors; empty where the system does not say.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
