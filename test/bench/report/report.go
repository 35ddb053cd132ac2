// Package report makes documents of a measurement: a table in Markdown, a plot in SVG, JSON for machines, and the
// comparison of two runs. It is pure: samples in, text out.
package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
	"github.com/portcullis-mesh/portcullis/test/bench/scenario"
)

// Contender is who is compared.
type Contender string

// Who is compared, in the order of tables.
const (
	// Native is kube-apiserver's own webhook admission.
	Native Contender = "kube-apiserver"
	// Bridge is Portcullis, asked in JSON over HTTPS by HTTP/1.1.
	Bridge Contender = "bridge"
	// BridgeHTTP2 is the same, over one connection of HTTP/2.
	BridgeHTTP2 Contender = "bridge, HTTP/2"
	// BridgeNoRecords is Bridge without the records that analyze reads, and BridgeTraced is Bridge with one review in a hundred traced.
	BridgeNoRecords Contender = "bridge, no records"
	BridgeTraced    Contender = "bridge, 1 % traced"
	// Dispatcher is Portcullis, asked by its Go API.
	Dispatcher Contender = "dispatcher"
	// Bare is Portcullis, asked by its Go API, with hosts that look into nothing.
	Bare Contender = "bare hosts"
	// Webhooks is Portcullis, asked by its Go API, with hooks that it calls over HTTPS, and Adapted has hosts before the same webhooks,
	// which forward the calls over unix sockets.
	Webhooks Contender = "webhooks"
	Adapted  Contender = "webhooks, adapted"
	// Streams is the limit of the fan-out.
	Streams Contender = "stream limit"
	// RoundTrip is the limit of the JSON edge.
	RoundTrip Contender = "HTTPS limit"
	// Policies is Portcullis, asked by its Go API, that judges by a ValidatingAdmissionPolicy in the place of each hook. NativePolicies is
	// kube-apiserver's plugin with the same policies.
	Policies       Contender = "policies"
	NativePolicies Contender = "kube-apiserver's policies"
	// Host is the example of a language in a process of its own, made with its SDK, and asked by the dispatcher's Go API. Framework is the
	// same policy as a webhook in the framework that is usual in the language, asked by a client over HTTPS.
	Host      Contender = "SDK"
	Framework Contender = "framework"
)

// Contenders are all, in the order of tables.
func Contenders() []Contender {
	return []Contender{
		Native, Bridge, BridgeHTTP2, BridgeNoRecords, BridgeTraced, Dispatcher, Bare, Webhooks, Adapted, Streams, RoundTrip, Policies, NativePolicies,
		Host, Framework,
	}
}

// Load is how reviews were sent.
type Load string

// The loads.
const (
	// Full is a closed load: as many reviews as there can be.
	Full Load = "full"
	// Tenth is an open load: a tenth of the contender's own full throughput.
	Tenth Load = "tenth"
	// Alone is one caller, who sends the next review when the last is answered.
	Alone Load = "alone"
	// Steady is an open load of a rate that is far from full, the same for everybody. Slow is a load of the rate that most clusters have.
	Steady Load = "steady"
	Slow   Load = "200 a second"
)

// InFlight is a closed load with as many reviews under way all the time.
func InFlight(callers int) Load { return Load(fmt.Sprintf(inFlight, callers)) }

const inFlight = "%d in flight"

// Callers is how many callers a load of InFlight has; 0 of the others.
func (l Load) Callers() int {
	var n int
	_, _ = fmt.Sscanf(string(l), inFlight, &n) // of another load nothing is scanned
	return n
}

// InFlights are the loads that languages are compared at.
func InFlights() []Load { return []Load{InFlight(1), InFlight(8), InFlight(64)} }

// Loads are all, in the order in which they are measured: a tenth is known when the full load is.
func Loads() []Load { return append([]Load{Full, Tenth, Alone, Steady, Slow}, InFlights()...) }

// Cell is one measured combination. It is comparable.
type Cell struct {
	scenario.Scenario

	Contender Contender `json:"contender"`
	Load      Load      `json:"load"`
}

// String names the cell, as "validate/2kB/8 hooks/1 host/dispatcher/full".
func (c Cell) String() string { return fmt.Sprintf("%s/%s/%s", c.Scenario, c.Contender, c.Load) }

// Result has the figures of the rounds of one cell.
type Result struct {
	Cell

	Rounds []measure.Sample `json:"rounds"`
}

// Line is the result for people who wait for it.
func (r Result) Line() string {
	of := func(f func(measure.Sample) float64) Figure { return figureOf(r.Rounds, f) }
	callers := 0
	if len(r.Rounds) > 0 {
		callers = r.Rounds[0].Callers
	}
	line := fmt.Sprintf("%-60s %9.0f/s %-6s callers %2d  p50 %7.0f us  p99 %7.0f us  cpu %7.1f us %-6s %6.0f allocs",
		r.Cell, of(throughput).Median, of(throughput).spread(), callers, of(p50).Median, of(p99).Median,
		of(cpu).Median, of(cpu).spread(), of(allocs).Median)
	if apart := of(processCPU); apart.Median > 0 {
		line += fmt.Sprintf("  its process %7.1f us %s", apart.Median, apart.spread())
	}
	return line
}

// Run is everything that one run showed.
type Run struct {
	// Commit is the measured commit.
	Commit string `json:"commit"`
	// Go is the version of the compiler, CPUs the number of processors, Processor their name.
	Go        string `json:"go"`
	CPUs      int    `json:"cpus"`
	Processor string `json:"processor,omitempty"`
	// Note is a note for readers.
	Note string `json:"note,omitempty"`
	// LoadAverage is the machine's before the run, and Others how many processors other programs kept busy during it.
	LoadAverage float64 `json:"loadAverage"`
	Others      float64 `json:"others"`
	// Duration is how long each cell was measured at least, in seconds, and Rounds in how many turns.
	Duration float64 `json:"duration"`
	Rounds   int     `json:"rounds"`
	// Harness is the cost of a review that does nothing.
	Harness measure.Sample `json:"harness"`
	// Results are all measurements.
	Results []Result `json:"results"`
	// Crowds are dispatchers with many sessions.
	Crowds []Crowd `json:"crowds,omitempty"`
	// Tenancies are clusters whose neighbour floods.
	Tenancies []Tenancy `json:"tenancies,omitempty"`
	// Failures are the measurements that failed.
	Failures []Failure `json:"failures,omitempty"`
}

// Write writes the run as JSON.
func (r *Run) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Read reads the output of Write.
func Read(from io.Reader) (*Run, error) {
	r := &Run{}
	if err := json.NewDecoder(from).Decode(r); err != nil {
		return nil, fmt.Errorf("report: reading a run: %w", err)
	}
	return r, nil
}

// index are the rounds of the cells of a run.
type index map[Cell][]measure.Sample

func (r *Run) index() index {
	all := make(index, len(r.Results))
	for _, x := range r.Results {
		all[x.Cell] = x.Rounds
	}
	return all
}

// scenarios are the scenarios of the run, in order.
func (r *Run) scenarios() []scenario.Scenario {
	var all []scenario.Scenario
	seen := map[scenario.Scenario]bool{}
	for _, x := range r.Results {
		if !seen[x.Scenario] {
			seen[x.Scenario] = true
			all = append(all, x.Scenario)
		}
	}
	return all
}

// isUsual reports whether a scenario compares all contenders: its hooks allow at once, and there are no others.
func isUsual(s scenario.Scenario) bool {
	return s == scenario.Scenario{Stage: s.Stage, Hooks: s.Hooks, Hosts: s.Hosts, Bytes: s.Bytes}
}
