// Bench measures Portcullis against kube-apiserver's own webhook admission and against the limits of the wire, in one run,
// and compares two runs.
//
//	bench [-short] [-duration 2s] [-out ../docs]    measure, and write benchmarks.md, .svg and .json
//	bench compare before.json after.json            what changed from one run to another
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/bench/report"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
	"github.com/portcullis-mesh/portcullis/bench/suite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is the program.
func bench(ctx context.Context, args []string, out, errs io.Writer) error {
	if len(args) > 0 && args[0] == "compare" {
		return compare(args[1:], out)
	}
	var c config
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.BoolVar(&c.short, "short", false, "only 1 and 8 hooks and Pods of 2 kB")
	flags.DurationVar(&c.duration, "duration", 2*time.Second, "how long each measurement takes at least")
	flags.StringVar(&c.out, "out", "", "directory for benchmarks.md, .svg and .json; empty writes none")
	flags.StringVar(&c.commit, "commit", "unknown", "what is measured, for the report")
	flags.StringVar(&c.note, "note", "", "what a reader of the report has to know, for example that the machine was not quiet")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || c.duration <= 0 {
		return errors.New("usage: bench [-short] [-duration 2s] [-out DIRECTORY] or bench compare A.json B.json")
	}
	return c.run(ctx, out)
}

// config is what the flags say.
type config struct {
	short             bool
	duration          time.Duration
	out, commit, note string
}

// run measures, and writes the report.
func (c config) run(ctx context.Context, out io.Writer) error {
	scenarios := scenario.All()
	if c.short {
		scenarios = scenario.Short()
	}
	results, err := suite.Run(ctx, suite.Options{Scenarios: scenarios, Duration: c.duration, Progress: out})
	if err != nil {
		return err
	}
	run := &report.Run{
		Commit: c.commit, Go: runtime.Version(), CPUs: runtime.NumCPU(), Processor: processor(), Note: c.note,
		Duration: c.duration.Seconds(), Results: results,
	}
	if c.out == "" {
		return nil
	}
	return write(c.out, run)
}

// write writes the three documents.
func write(directory string, run *report.Run) error {
	for name, to := range map[string]func(io.Writer) error{
		"benchmarks.json": run.Write,
		"benchmarks.svg":  run.Plot,
		"benchmarks.md":   func(w io.Writer) error { return run.Markdown(w, "benchmarks.svg") },
	} {
		file, err := os.Create(filepath.Join(directory, name))
		if err != nil {
			return err
		}
		if err := errors.Join(to(file), file.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// compare compares two files.
func compare(files []string, out io.Writer) error {
	if len(files) != 2 {
		return errors.New("usage: bench compare before.json after.json")
	}
	var runs [2]*report.Run
	for i, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		runs[i], err = report.Read(file)
		file.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return report.Compare(out, runs[0], runs[1])
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
