// Circles runs one circle of tests: test, which is `make test`; gate, the rest of `.ci/run`; soak, everything.
//
//	go run ./internal/circles test|gate|soak [STEP]...   (names of steps: these alone)
//	go run ./internal/circles table                      (prints docs/circles.md)
//
// It prints a line for each package or test that has ended, and writes .tmp/CIRCLE/report.md and a log for each step. steps.go is the
// table of the steps. A test names its circle itself, by package citest.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/archtest"
)

const usage = `usage: go run ./internal/circles test|gate|soak [STEP]...
       go run ./internal/circles table`

var errFailed = errors.New("something failed")

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

// run runs the command of the arguments, from the root of the repository.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 1 && args[0] == "table" {
		return writeTable(out, ".")
	}
	if len(args) == 0 {
		return errors.New(usage)
	}
	graph, err := archtest.Load(ctx, ".")
	if err != nil {
		return err
	}
	concurrent, err := archtest.Concurrent(graph)
	if err != nil {
		return err
	}
	stages := stagesOf(args[0], packagesOf(graph, concurrent))
	if stages == nil {
		return errors.New(usage)
	}
	if stages, err = only(stages, args[1:]); err != nil {
		return err
	}
	return runCircle(ctx, args[0], stages, out)
}

// only keeps the steps with these names; all of them where there is no name.
func only(stages []stage, names []string) ([]stage, error) {
	if len(names) == 0 {
		return stages, nil
	}
	var kept []stage
	for _, s := range stages {
		if s = slices.DeleteFunc(s, func(s step) bool { return !slices.Contains(names, s.Name) }); len(s) > 0 {
			kept = append(kept, s)
			for _, step := range s {
				names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == step.Name })
			}
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("no step of this circle is called %q", names)
	}
	return kept, nil
}

// runCircle runs one stage after the other, also after a failure, and writes the report. The error is errFailed if anything failed.
func runCircle(ctx context.Context, circle string, stages []stage, out io.Writer) error {
	dir := filepath.Join(".tmp", circle)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	begun := time.Now()
	runner := &runner{out: out, dir: dir, circle: circle}
	var results []*result
	for _, s := range stages {
		results = append(results, runner.stage(ctx, s)...)
	}
	report := newReport(circle, results, time.Since(begun))
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(report.markdown()), 0o644); err != nil { //nolint:gosec // a report for people
		return err
	}
	fmt.Fprint(out, report.summary(filepath.Join(dir, "report.md")))
	if report.failed > 0 || ctx.Err() != nil {
		return errFailed
	}
	return nil
}
