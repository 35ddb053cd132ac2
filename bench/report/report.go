// Package report makes documents of what was measured: a table in Markdown, a plot in SVG, JSON for machines, and the
// comparison of two runs. It is pure: samples in, text out.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/portcullis-mesh/portcullis/bench/measure"
	"github.com/portcullis-mesh/portcullis/bench/scenario"
)

// Contender is who is compared.
type Contender string

// Who is compared, in the order of tables.
const (
	// Native is kube-apiserver's own webhook admission.
	Native Contender = "kube-apiserver"
	// Bridge is Portcullis, asked in JSON over HTTPS.
	Bridge Contender = "bridge"
	// Dispatcher is Portcullis, asked by its Go API.
	Dispatcher Contender = "dispatcher"
	// Streams is the limit of the fan-out.
	Streams Contender = "stream limit"
	// RoundTrip is the limit of the JSON edge.
	RoundTrip Contender = "HTTPS limit"
)

// Contenders are all, in the order of tables.
func Contenders() []Contender { return []Contender{Native, Bridge, Dispatcher, Streams, RoundTrip} }

// Load is how reviews were sent.
type Load string

// The loads.
const (
	// Full is a closed load: as many reviews as there can be.
	Full Load = "full"
	// Tenth is an open load: a tenth of the contender's own full throughput.
	Tenth Load = "tenth"
)

// Result is one measurement.
type Result struct {
	scenario.Scenario

	Contender Contender `json:"contender"`
	Load      Load      `json:"load"`

	measure.Sample
}

// key is what one measurement of a run is known by.
type key struct {
	scenario.Scenario

	contender Contender
	load      Load
}

// Run is everything that one run showed.
type Run struct {
	// Commit is what was measured.
	Commit string `json:"commit"`
	// Go is the version of the compiler, CPUs the number of processors, Processor their name.
	Go        string `json:"go"`
	CPUs      int    `json:"cpus"`
	Processor string `json:"processor,omitempty"`
	// Note says what a reader has to know, for example that the machine was not quiet.
	Note string `json:"note,omitempty"`
	// Duration is how long each measurement took at least, in seconds.
	Duration float64 `json:"duration"`
	// Results are all measurements.
	Results []Result `json:"results"`
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

// Read reads what Write wrote.
func Read(from io.Reader) (*Run, error) {
	r := &Run{}
	if err := json.NewDecoder(from).Decode(r); err != nil {
		return nil, fmt.Errorf("report: reading a run: %w", err)
	}
	return r, nil
}

// index finds the measurements of a run.
func (r *Run) index() map[key]measure.Sample {
	all := make(map[key]measure.Sample, len(r.Results))
	for _, x := range r.Results {
		all[key{x.Scenario, x.Contender, x.Load}] = x.Sample
	}
	return all
}

// Metric is a number of a sample.
type Metric struct {
	// Name is its name with the unit, Short a name without.
	Name, Short string
	// Of takes it out of a sample.
	Of func(measure.Sample) float64
	// More is true when more is better.
	More bool
}

// Metrics are all, in the order of tables.
func Metrics() []Metric {
	return []Metric{
		{Name: "reviews/s", Short: "throughput", More: true, Of: func(s measure.Sample) float64 { return s.Throughput }},
		{Name: "p50 µs", Short: "p50", Of: func(s measure.Sample) float64 { return s.P50 }},
		{Name: "p99 µs", Short: "p99", Of: func(s measure.Sample) float64 { return s.P99 }},
		{Name: "CPU µs", Short: "CPU", Of: func(s measure.Sample) float64 { return s.CPU }},
		{Name: "allocations", Short: "allocations", Of: func(s measure.Sample) float64 { return s.Allocs }},
	}
}

// limit is what a contender is held to: the dispatcher to the streams, the bridge to one round trip and the streams, one
// after the other; nobody else to anything.
func limit(who Contender, at func(Contender) (measure.Sample, bool)) (measure.Sample, bool) {
	streams, ok := at(Streams)
	if who == Dispatcher || !ok {
		return streams, ok && who == Dispatcher
	}
	roundTrip, ok := at(RoundTrip)
	return sum(streams, roundTrip), ok && who == Bridge
}

// sum is what two things cost that are done one after the other.
func sum(a, b measure.Sample) measure.Sample {
	return measure.Sample{
		Throughput: 1 / (1/a.Throughput + 1/b.Throughput),
		P50:        a.P50 + b.P50, P99: a.P99 + b.P99, CPU: a.CPU + b.CPU, Allocs: a.Allocs + b.Allocs, AllocBytes: a.AllocBytes + b.AllocBytes,
	}
}

// ratio is a divided by b; NaN without b.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// number writes a number with three digits that count.
func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}
