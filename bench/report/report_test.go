package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

// eight are 8 validating hooks on hosts of their own.
func eight() scenario.Scenario {
	return scenario.Scenario{Stage: scenario.Validate, Hooks: 8, Hosts: 8, Bytes: scenario.Small}
}

// sample is one whose figures are all multiples of one cost.
func sample(cost float64) measure.Sample {
	return measure.Sample{Reviews: 100, Throughput: 1000 / cost, P50: cost, P99: 2 * cost, CPU: cost, Allocs: 10 * cost}
}

// run is one with a load and a scenario.
func run(commit string, costs map[Contender]float64) *Run {
	r := &Run{Commit: commit, Go: "go1.26", CPUs: 2, Duration: 2}
	for _, who := range Contenders() {
		if cost, ok := costs[who]; ok {
			r.Results = append(r.Results, Result{Scenario: eight(), Contender: who, Load: Full, Sample: sample(cost)})
		}
	}
	return r
}

// usual is a run in which every ratio is a round number.
func usual() *Run {
	return run("abc", map[Contender]float64{Native: 80, Bridge: 8, Dispatcher: 4, Streams: 2, RoundTrip: 2})
}

func TestARunSurvivesItsJSON(t *testing.T) {
	var text bytes.Buffer
	if err := usual().Write(&text); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(usual(), got); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
	if _, err := Read(strings.NewReader("{")); err == nil {
		t.Error("half a run was read")
	}
}

func TestLimit(t *testing.T) {
	index := usual().index()
	at := func(who Contender) (measure.Sample, bool) {
		s, ok := index[key{eight(), who, Full}]
		return s, ok
	}
	nobody := func(Contender) (measure.Sample, bool) { return measure.Sample{}, false }
	tests := map[string]struct {
		who  Contender
		at   func(Contender) (measure.Sample, bool)
		want float64 // cost; 0 is no limit
	}{
		"the dispatcher is held to the streams":               {who: Dispatcher, at: at, want: 2},
		"the bridge is held to a round trip and the streams":  {who: Bridge, at: at, want: 4},
		"kube-apiserver is held to nothing":                   {who: Native, at: at},
		"the limits themselves are held to nothing":           {who: Streams, at: at},
		"the limit of the JSON edge is held to nothing":       {who: RoundTrip, at: at},
		"what was not measured is no limit of the dispatcher": {who: Dispatcher, at: nobody},
		"what was not measured is no limit of the bridge":     {who: Bridge, at: nobody},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := limit(tt.who, tt.at)
			if ok != (tt.want > 0) {
				t.Fatalf("has a limit: %t", ok)
			}
			if ok && (got.P50 != tt.want || math.Abs(got.Throughput-1000/tt.want) > 1e-9 || got.Allocs != 10*tt.want) {
				t.Errorf("got %+v, want a cost of %v", got, tt.want)
			}
		})
	}
}

func TestMarkdown(t *testing.T) {
	var text strings.Builder
	if err := usual().Markdown(&text, "plot.svg"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"![Reviews per second](plot.svg)",
		"### validate, Pod of 2kB, each hook on a host of its own",
		"| 8 | kube-apiserver | 12.5 | 80.0 | 160 | 80.0 | 800 |",
		"| 8 | bridge | 125 (10.0, 0.50) | 8.00 (0.10, 2.00) | 16.0 (0.10, 2.00) | 8.00 (0.10, 2.00) | 80.0 (0.10, 2.00) |",
		"| 8 | stream limit | 500 (40.0) |",
		"times the stream limit | at most 1.3 | 2kB | 2.00 | missed |",
		"dispatcher, 8 hooks on 8 hosts: throughput, times kube-apiserver's | at least 12 | 2kB | 20.0 | met |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	for _, not := range []string{"One tenth of", "20kB", "NaN", "%!"} {
		if strings.Contains(text.String(), not) {
			t.Errorf("%q, which was not measured, in:\n%s", not, text.String())
		}
	}
}

func TestAPlotIsAnSVG(t *testing.T) {
	for name, r := range map[string]*Run{"usual": usual(), "empty": {}} {
		var text bytes.Buffer
		if err := r.Plot(&text); err != nil {
			t.Fatal(err)
		}
		bars := 0
		for d := xml.NewDecoder(&text); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				bars++
			}
		}
		if want := 1 + len(Contenders()) + len(r.Results); bars != want { // background, legend, bars
			t.Errorf("%s: %d rectangles, want %d", name, bars, want)
		}
	}
}

func TestCompare(t *testing.T) {
	slower := run("def", map[Contender]float64{Native: 160, Bridge: 16, Dispatcher: 12, Streams: 2, RoundTrip: 2})
	var text strings.Builder
	if err := Compare(&text, usual(), slower); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if !strings.HasPrefix(lines[0], "abc -> def") {
		t.Errorf("head %q", lines[0])
	}
	var rows [][]string
	for _, line := range lines[3:] {
		rows = append(rows, strings.Fields(line))
	}
	want := [][]string{
		strings.Fields("validate/2kB/8 hooks/8 hosts bridge full 1.00 1.00 1.00 1.00 1.00"), // on a machine half as fast
		strings.Fields("validate/2kB/8 hooks/8 hosts dispatcher full 0.67! 1.50! 1.50! 1.50! 1.50!"),
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s\n%s", diff, text.String())
	}
}

func TestRunsWithoutAnythingInCommonAreNotCompared(t *testing.T) {
	if err := Compare(io.Discard, usual(), &Run{Commit: "empty"}); err == nil {
		t.Error("no error")
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{0.123: "0.12", 1.5: "1.50", 12.34: "12.3", 123.4: "123", math.NaN(): "–"} {
		if got := number(x); got != want {
			t.Errorf("%v: got %q, want %q", x, got, want)
		}
	}
	if !math.IsNaN(ratio(1, 0)) {
		t.Error("a ratio to nothing is a number")
	}
}
