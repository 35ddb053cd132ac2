package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// eight are 8 validating hooks on hosts of their own.
func eight() scenario.Scenario {
	return scenario.Scenario{Stage: scenario.Validate, Hooks: 8, Hosts: 8, Bytes: scenario.Small}
}

// sample is one whose figures are all multiples of one cost.
func sample(cost float64) measure.Sample {
	return measure.Sample{Reviews: 100, Callers: 4, Throughput: 1000 / cost, P50: cost, P99: 2 * cost, CPU: cost, Allocs: 10 * cost}
}

// run is one with a load and a scenario.
func run(commit string, costs map[Contender]float64) *Run {
	r := &Run{Commit: commit, Go: "go1.26", CPUs: 2, Duration: 2, Rounds: 1}
	for _, who := range Contenders() {
		if cost, ok := costs[who]; ok {
			r.Results = append(r.Results, Result{Cell{eight(), who, Full}, []measure.Sample{sample(cost)}})
		}
	}
	return r
}

// inLanguage are the cells of a language with 64 reviews in flight.
func inLanguage(policy scenario.Scenario, costs map[Contender]float64) []Result {
	var all []Result
	for _, who := range Contenders() {
		if cost, ok := costs[who]; ok {
			s := sample(3)
			s.ProcessCPU = cost
			all = append(all, Result{Cell{policy, who, InFlight(64)}, []measure.Sample{s}})
		}
	}
	return all
}

// usual is a run in which every ratio is a round number.
func usual() *Run {
	return run("abc", map[Contender]float64{Native: 80, Bridge: 8, Dispatcher: 4, Bare: 2.2, Streams: 2})
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
	trip := eight()
	trip.Hooks, trip.Hosts = 1, 1
	measured := usual()
	measured.Results = append(measured.Results, Result{Cell{trip, RoundTrip, Full}, []measure.Sample{sample(2)}})
	mutate := eight()
	mutate.Stage = scenario.Mutate
	tests := map[string]struct {
		cell Cell
		run  *Run
		want float64 // cost; 0 is no limit
	}{
		"the dispatcher is held to the streams":               {cell: Cell{eight(), Dispatcher, Full}, run: measured, want: 2},
		"bare hosts are held to the streams":                  {cell: Cell{eight(), Bare, Full}, run: measured, want: 2},
		"mutating hooks are held to the same streams":         {cell: Cell{mutate, Dispatcher, Full}, run: measured, want: 2},
		"the bridge is held to a round trip and the streams":  {cell: Cell{eight(), Bridge, Full}, run: measured, want: 4},
		"kube-apiserver is held to nothing":                   {cell: Cell{eight(), Native, Full}, run: measured},
		"the limits themselves are held to nothing":           {cell: Cell{eight(), Streams, Full}, run: measured},
		"the limit of the JSON edge is held to nothing":       {cell: Cell{trip, RoundTrip, Full}, run: measured},
		"what was not measured is no limit of the dispatcher": {cell: Cell{eight(), Dispatcher, Full}, run: &Run{}},
		"what was not measured is no limit of the bridge":     {cell: Cell{eight(), Bridge, Full}, run: usual()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.run.index().limitOf(tt.cell)
			if (len(got) > 0) != (tt.want > 0) {
				t.Fatalf("limit %v", got)
			}
			if len(got) > 0 && (got[0].P50 != tt.want || math.Abs(got[0].Throughput-1000/tt.want) > 1e-9 || got[0].Allocs != 10*tt.want) {
				t.Errorf("got %+v, want a cost of %v", got, tt.want)
			}
		})
	}
}

func TestFigure(t *testing.T) {
	tests := map[string]struct {
		values []float64
		want   Figure
		text   string
		spread string
	}{
		"one value is all of it":            {[]float64{3}, Figure{3, 3, 3}, "3.00", ""},
		"the median of three is the middle": {[]float64{9, 1, 4}, Figure{4, 1, 9}, "4.00 (1.00 to 9.00)", "±125%"},
		"the median of two is between them": {[]float64{2, 1}, Figure{1.5, 1, 2}, "1.50 (1.00 to 2.00)", "±33%"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := NewFigure(tt.values)
			if got != tt.want || got.String() != tt.text || got.spread() != tt.spread {
				t.Errorf("got %+v, %q, %q", got, got, got.spread())
			}
		})
	}
	if none := NewFigure(nil); !math.IsNaN(none.Median) || none.String() != "–" || none.spread() != "" {
		t.Errorf("got %+v, %q, %q of nothing", none, none, none.spread())
	}
}

func TestARatioIsOfTheSameRound(t *testing.T) {
	// The machine was half as fast in the second round: for both.
	a := []measure.Sample{{Throughput: 100}, {Throughput: 50}, {Throughput: 100}}
	b := []measure.Sample{{Throughput: 10}, {Throughput: 5}, {Throughput: 8}}
	if got, want := ratioOf(a, b, throughput), (Figure{10, 10, 12.5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := ratioOf(a, b[:1], throughput); got.Median != 10 || got.Least != got.Most {
		t.Errorf("got %+v of unlike rounds", got)
	}
}

func TestJudge(t *testing.T) {
	slow := usual()
	for i := range slow.Results {
		if slow.Results[i].Contender == Dispatcher {
			slow.Results[i].Rounds = []measure.Sample{sample(2.4), sample(3), sample(2.8)}
			continue
		}
		slow.Results[i].Rounds = append(slow.Results[i].Rounds, slow.Results[i].Rounds[0], slow.Results[i].Rounds[0])
	}
	slow.Crowds = []Crowd{{CrowdSize: CrowdSize{idleSessions, 100}, Heap: 30_000, Stacks: 5_000}}
	var got []string
	for _, j := range slow.Judge() {
		got = append(got, j.Bound+": "+j.Measured.String()+", bare "+j.Bare.String()+": "+j.Verdict)
	}
	want := []string{
		"at most 1.3: 1.40 (1.20 to 1.50), bare 1.10: MISSED, 1.08 times the bound; some rounds say otherwise",
		"at least 12: 28.6 (26.7 to 33.3), bare 36.4: PASS",
		"at least 8: 10.0, bare –: PASS",
		"at most 40: 35.0, bare –: PASS",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("judgements (-want +got):\n%s", diff)
	}
}

func TestWhatFailedIsSaidOfItsTargets(t *testing.T) {
	r := usual()
	r.Results = slices.DeleteFunc(r.Results, func(x Result) bool { return x.Contender == Native })
	cell := Cell{scenario.Scenario{Stage: scenario.Validate, Hooks: 8, Hosts: 8, Bytes: scenario.Small}, Native, Full}
	r.Failures = []Failure{
		{cell.String(), "no port\nis free"},
		{CrowdSize{manySessions, manySessions}.String(), "too many sessions were lost"},
	}
	var got []string
	for _, j := range r.Judge() {
		if !strings.HasPrefix(j.Verdict, "PASS") && !strings.HasPrefix(j.Verdict, "MISSED") {
			got = append(got, j.Bound+": "+j.Measured.String()+": "+j.Verdict)
		}
	}
	want := []string{
		"at least 12: –: FAILED: validate/2kB/8 hooks/8 hosts/kube-apiserver/full: no port\nis free",
		"at least 8: –: FAILED: validate/2kB/8 hooks/8 hosts/kube-apiserver/full: no port\nis free",
		"at least 10000: –: FAILED: crowd/10000 sessions/10000 hooks: too many sessions were lost",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("judgements (-want +got):\n%s", diff)
	}
	var text strings.Builder
	if err := r.Markdown(&text, "plot.svg"); err != nil {
		t.Fatal(err)
	}
	if line := "- `validate/2kB/8 hooks/8 hosts/kube-apiserver/full`: no port is free"; !strings.Contains(text.String(), line) {
		t.Errorf("no %q in:\n%s", line, text.String())
	}
}

func TestEveryTargetCanBeMeasured(t *testing.T) {
	r := &Run{Crowds: []Crowd{{CrowdSize: CrowdSize{idleSessions, 100}}, {CrowdSize: CrowdSize{manySessions, manySessions}}}}
	for _, stage := range []scenario.Stage{scenario.Validate, scenario.Mutate} {
		for _, x := range [][2]int{{1, 1}, {8, 8}, {8, 1}, {32, 32}} {
			for _, bytes := range []int{scenario.Small, scenario.Medium} {
				for _, who := range Contenders() {
					s := scenario.Scenario{Stage: stage, Hooks: x[0], Hosts: x[1], Bytes: bytes}
					r.Results = append(r.Results, Result{Cell{s, who, Full}, []measure.Sample{sample(1)}})
				}
			}
		}
	}
	for s, load := range map[scenario.Scenario]Load{
		scenario.Among(): Full, scenario.Taking(8, true): Alone, scenario.Taking(1, false): Alone,
		scenario.Replicas(true, true): Steady, scenario.Replicas(false, false): Steady,
	} {
		r.Results = append(r.Results, Result{Cell{s, Dispatcher, load}, []measure.Sample{sample(1)}})
	}
	for _, cell := range []Cell{
		{scenario.Checking(1), Dispatcher, Full}, {scenario.Checking(8), Policies, Full},
		{scenario.Bound(scenario.ManyBindings), Policies, Full}, {scenario.Bound(scenario.ManyBindings), NativePolicies, Full},
	} {
		r.Results = append(r.Results, Result{cell, []measure.Sample{sample(1)}})
	}
	for _, l := range scenario.Languages() {
		for _, bytes := range []int{scenario.Small, scenario.Medium} {
			for _, deleting := range []bool{false, true} {
				r.Results = append(r.Results, inLanguage(scenario.Policy(l, bytes, deleting), map[Contender]float64{Host: 1, Framework: 1, Bare: 1})...)
			}
		}
	}
	for _, road := range Roads() {
		for _, flood := range append(Floods(), Quiet) {
			r.Tenancies = append(r.Tenancies, Tenancy{TenancyCell: TenancyCell{road, flood}, Rounds: []measure.Sample{sample(1)}})
		}
	}
	want := 0
	for _, x := range targets() {
		want += len(x.sizes)
	}
	if got := len(r.Judge()); got != want {
		t.Errorf("%d of %d targets were judged", got, want)
	}
}

func TestMarkdownAndTables(t *testing.T) {
	var text strings.Builder
	r := usual()
	r.Others = 0.5
	r.Results = append(r.Results, Result{
		Cell{scenario.Patching(1), Dispatcher, Full}, []measure.Sample{sample(1), sample(2), sample(4)},
	})
	r.Crowds = []Crowd{{
		CrowdSize: CrowdSize{2000, 100}, Connect: 1500 * time.Millisecond, Heap: 30_000, Live: 25_000, Stacks: 5_000, Goroutines: 4, Rest: 0.2, Lost: 3,
		Still: NewFigure([]float64{90}), Updated: NewFigure([]float64{100, 70, 80}), Compiling: 3 * time.Millisecond, Spreading: 2 * time.Millisecond,
	}}
	r.Results = append(r.Results, Result{Cell{eight(), Bridge, Tenth}, []measure.Sample{sample(1)}})
	r.Results = append(r.Results, inLanguage(scenario.Policy("go", scenario.Small, true), map[Contender]float64{Host: 2, Framework: 12, Bare: 1})...)
	r.Results = append(r.Results, inLanguage(scenario.Policy("rust", scenario.Small, false), map[Contender]float64{Host: 2, Framework: 8})...)
	if err := r.Markdown(&text, "plot.svg"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"[the plot](plot.svg)",
		"times the stream limit | at most 1.3 | 2.00 MISSED, 1.54 times the bound |  |",
		"dispatcher, 8 hooks on 8 hosts: throughput, times kube-apiserver's | at least 12 | 20.0 PASS |  |",
		"| 8 | kube-apiserver | 12.5 | 80.0 | 800 | – | – |",
		"| 8 | bridge | 125 | 8.00 | 80.0 | 1.00 | 2.00 |",
		"host in rust that parses the Pod, 64 in flight: reviews per CPU second of its process, times those of a webhook with axum, rustls | at least 5 | 4.00 MISSED, 0.80 times",
		"CPU of its process, times that of a bare host | at most 1.3 | 2.00 MISSED, 1.54 times the bound |  |",
		"### go: controller-runtime",
		"| 2kB deleted | 64 | 333 | 333 | 2.00 | 12.0 | 6.00 | 3.00 | 1.00 |",
		"### rust: axum, rustls",
		"| 2kB created | 64 | 333 | 333 | 2.00 | 8.00 | 4.00 | 3.00 |\n",
		"0.50 processors kept busy by other programs",
		"**The machine was not idle",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	holdsOnlyMeasured(t, text.String())
	if lines := strings.Count(text.String(), "\n"); lines > 80 {
		t.Errorf("the page has %d lines, which is too long", lines)
	}
	text.Reset()
	if err := r.Tables(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### validate, Pod of 2kB, each hook on a host of its own",
		"| 8 | kube-apiserver | 4 | 12.5 | 80.0 | 160 | 80.0 | 800 |",
		"| 8 | bridge | 4 | 125 (10.0) | 8.00 | 16.0 | 8.00 (0.10) | 80.0 (0.10) |",
		"| 8 | dispatcher | 4 | 250 (20.0, 0.50) | 4.00 | 8.00 | 4.00 (0.05, 2.00) | 40.0 (0.05, 2.00) |",
		"| 8 | stream limit | 4 | 500 (40.0) |",
		"| mutate/2kB/8 hooks/8 hosts/1 patching | dispatcher | full | 500 ±100% | 2.00 ±100% |",
		"| 2000 | 100 | 1.5s | 35.0 kB: 30.0 (25.0), 5.00 | 4.00 | 0.20 | 3 | 90.0 | 80.0 (70.0 to 100) | 3ms, 2ms |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	holdsOnlyMeasured(t, text.String())
}

// holdsOnlyMeasured fails the test if text names a scenario that usual lacks, or has a number that is none.
func holdsOnlyMeasured(t *testing.T, text string) {
	t.Helper()
	for _, not := range []string{"Pod of 20kB", "NaN", "%!"} {
		if strings.Contains(text, not) {
			t.Errorf("%q, which was not measured, in:\n%s", not, text)
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
		if want := 1 + len(plotted()) + len(r.Results); bars != want { // background, legend, bars
			t.Errorf("%s: %d rectangles, want %d", name, bars, want)
		}
	}
}

func TestCompare(t *testing.T) {
	slower := run("def", map[Contender]float64{Native: 160, Bridge: 16, Dispatcher: 12, Bare: 2.2, Streams: 2})
	noisy := func(r *Run) *Run {
		for i := range r.Results {
			x := &r.Results[i]
			x.Rounds = []measure.Sample{x.Rounds[0], x.Rounds[0], x.Rounds[0]}
			if x.Contender == Bare {
				x.Rounds[1].CPU *= 1.6
			}
		}
		return r
	}
	var text strings.Builder
	if err := Compare(&text, noisy(usual()), noisy(slower)); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for _, line := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		if strings.HasPrefix(line, "validate") {
			rows = append(rows, strings.Fields(line))
		}
	}
	want := [][]string{
		// On a machine half as fast.
		strings.Fields("validate/2kB/8 hooks/8 hosts/bridge/full 1.00 ±0.00= 1.00 ±0.00= 1.00 ±0.00="),
		strings.Fields("validate/2kB/8 hooks/8 hosts/dispatcher/full 0.67 ±0.00! 1.50 ±0.00! 1.50 ±0.00!"),
		strings.Fields("validate/2kB/8 hooks/8 hosts/bare hosts/full 2.00 ±0.00+ 0.50 ±1.20= 0.50 ±0.00+"),
	}
	if diff := cmp.Diff(want, rows); diff != "" || !strings.HasPrefix(text.String(), "abc -> def") {
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
