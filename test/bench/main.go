// Bench measures Portcullis against kube-apiserver's own webhook admission and against the limits of the wire, in one run,
// and compares two runs.
//
//	bench [-short] [-run REGEX] [-rounds 5] [-out ../../docs] measure, and write benchmarks.md, .svg and .json
//	bench tables benchmarks.json                              print all figures of a run
//	bench compare before.json after.json                      changes from one run to another
//	bench budget [-run REGEX] [-duration 4s]                  where the time and the allocations of a review go
//
// A run starts itself for the parts that need a process of their own, as `bench crowd` and `bench hosts`.
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
	"syscall"

	"github.com/portcullis-mesh/portcullis/test/bench/crowd"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // programs of other languages end with it
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
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "tables":
		return tables(args[1:], out)
	case "compare":
		return compare(args[1:], out)
	case "budget":
		return makeBudget(ctx, args[1:], out, errs)
	case "crowd":
		return measureCrowd(ctx, args[1:], out, errs)
	case "hosts":
		return crowd.ServeHosts(ctx, os.Stdin, out)
	}
	c, err := parse(args, errs)
	if err != nil {
		return err
	}
	return c.run(ctx, out, errs)
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

// tables prints all figures of a run.
func tables(files []string, out io.Writer) error {
	if len(files) != 1 {
		return errors.New("usage: bench tables benchmarks.json")
	}
	run, err := read(files[0])
	if err != nil {
		return err
	}
	return run.Tables(out)
}

// compare compares two files.
func compare(files []string, out io.Writer) error {
	if len(files) != 2 {
		return errors.New("usage: bench compare before.json after.json")
	}
	before, err := read(files[0])
	if err != nil {
		return err
	}
	after, err := read(files[1])
	if err != nil {
		return err
	}
	return report.Compare(out, before, after)
}

// read reads the run that a file holds.
func read(name string) (*report.Run, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	run, err := report.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return run, nil
}
