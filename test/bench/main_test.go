package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/report"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// TestMain makes the test binary a program that cannot measure crowds: a run starts itself for them.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "crowd" {
		_, _ = os.Stderr.WriteString("no place for so many\n")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestWhatIsWrittenCanBeCompared(t *testing.T) {
	s := scenario.Scenario{Stage: scenario.Validate, Hooks: 1, Hosts: 1, Bytes: scenario.Small}
	run := &report.Run{Commit: "abc"}
	for _, who := range report.Contenders() {
		run.Results = append(run.Results, report.Result{
			Cell:   report.Cell{Scenario: s, Contender: who, Load: report.Full},
			Rounds: []measure.Sample{{Throughput: 1, P50: 1, P99: 1, CPU: 1, Allocs: 1}},
		})
	}
	dir := t.TempDir()
	if err := write(dir, run); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"benchmarks.md", "benchmarks.svg"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	file := filepath.Join(dir, "benchmarks.json")
	var out bytes.Buffer
	if err := bench(t.Context(), []string{"compare", file, file}, &out, io.Discard); err != nil || out.Len() == 0 {
		t.Errorf("%v: %q", err, out.String())
	}
	out.Reset()
	if err := bench(t.Context(), []string{"tables", file}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "Full throughput") {
		t.Errorf("%v: %q", err, out.String())
	}
}

func TestWrongUsageIsAnError(t *testing.T) {
	for _, args := range [][]string{{"compare", "one.json"}, {"compare", "no", "such"}, {"tables"}, {"tables", "no"}, {"surplus"}, {"-duration=-1s"}, {"-rounds=-1"}, {"-unknown"}, {"-run=("}, {"-run=no such cell"}} {
		if err := bench(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}

func TestASubsetIsMeasuredAndProfiled(t *testing.T) {
	dir := t.TempDir()
	var out, errs bytes.Buffer
	args := []string{
		"-run=^validate/2kB/1 hook/1 host/(dispatcher|stream limit)/full", "-rounds=2", "-duration=10ms",
		"-out=" + dir, "-json=" + filepath.Join(dir, "results.json"), "-cpuprofile=" + filepath.Join(dir, "cpu"),
	}
	if err := bench(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	for _, name := range []string{
		"benchmarks.md", "benchmarks.svg", "benchmarks.json", "results.json",
		"cpu-validate-2kB-1hook-1host-dispatcher-full", "cpu-validate-2kB-1hook-1host-streamlimit-full",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	file, err := os.Open(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	run, err := report.Read(file)
	if err != nil || len(run.Results) != 2 || len(run.Results[0].Rounds) != 2 {
		t.Errorf("got %+v, %v", run, err)
	}
}

func TestAFailureIsReportedWithEverythingElse(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	args := []string{
		"-run=^validate/2kB/1 hook/1 host/stream limit/full|^crowd/10000", "-rounds=1", "-duration=10ms", "-json=" + filepath.Join(dir, "results.json"),
	}
	err := bench(t.Context(), args, &out, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "crowd/10000 sessions/10000 hooks") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(out.String(), "FAILED: crowd/10000 sessions/10000 hooks: exit status 1: no place for so many") {
		t.Errorf("the targets are:\n%s", out.String())
	}
	file, err := os.Open(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	run, err := report.Read(file)
	if err != nil || len(run.Results) != 1 || len(run.Failures) != 1 {
		t.Errorf("got %+v, %v", run, err)
	}
}

func TestAnEndedContextEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bench(ctx, []string{"-short", "-duration=1ms"}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestABudgetAddsUp has the tables of one road.
func TestABudgetAddsUp(t *testing.T) {
	var out, errs bytes.Buffer
	if err := bench(t.Context(), []string{"budget", "-run=^validate/2kB/1 hook/1 host/dispatcher/full", "-duration=300ms"}, &out, &errs); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	for _, want := range []string{"## Load: full", "| µs of processor a review |", "| dispatcher |", "| **all** |", "| runs of goroutines |", "| allocations a review |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	for _, args := range [][]string{{"budget", "-run=no such road"}, {"budget", "-run=("}, {"budget", "-unknown"}} {
		if err := bench(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}
