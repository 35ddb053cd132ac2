package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/report"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

func TestWhatIsWrittenCanBeCompared(t *testing.T) {
	s := scenario.Scenario{Stage: scenario.Validate, Hooks: 1, Hosts: 1, Bytes: scenario.Small}
	run := &report.Run{Commit: "abc"}
	for _, who := range report.Contenders() {
		run.Results = append(run.Results, report.Result{
			Scenario: s, Contender: who, Load: report.Full, Sample: measure.Sample{Throughput: 1, P50: 1, P99: 1, CPU: 1, Allocs: 1},
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
}

func TestWrongUsageIsAnError(t *testing.T) {
	for _, args := range [][]string{{"compare", "one.json"}, {"compare", "no", "such"}, {"surplus"}, {"-duration=0s"}, {"-unknown"}} {
		if err := bench(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is no error", args)
		}
	}
}

func TestAnEndedContextEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bench(ctx, []string{"-short", "-duration=1ms"}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
