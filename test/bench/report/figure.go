package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/portcullis-mesh/portcullis/test/bench/measure"
)

// Figure sums up the rounds of a measurement.
type Figure struct {
	// Median is the median of the rounds, Least and Most are the ends.
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// NewFigure is the figure of the values of rounds; all of it is NaN without any.
func NewFigure(values []float64) Figure {
	if len(values) == 0 {
		return Figure{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Figure{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[0], Most: sorted[n-1]}
}

// figureOf is a figure of samples.
func figureOf(rounds []measure.Sample, of func(measure.Sample) float64) Figure {
	values := make([]float64, len(rounds))
	for i, s := range rounds {
		values[i] = of(s)
	}
	return NewFigure(values)
}

// ratioOf is the figure of ratios: of each round to the same round of the other, since these ran one after the other. Cells
// that had not as many rounds are compared by their medians.
func ratioOf(a, b []measure.Sample, of func(measure.Sample) float64) Figure {
	if len(a) != len(b) {
		return NewFigure([]float64{ratio(figureOf(a, of).Median, figureOf(b, of).Median)})
	}
	values := make([]float64, len(a))
	for i := range a {
		values[i] = ratio(of(a[i]), of(b[i]))
	}
	return NewFigure(values)
}

// inverse is the figure of one divided by the values.
func (f Figure) inverse() Figure {
	return Figure{Median: ratio(1, f.Median), Least: ratio(1, f.Most), Most: ratio(1, f.Least)}
}

// spread is how far the rounds are from the median, as "±3 %"; empty with one round.
func (f Figure) spread() string {
	if f.Least == f.Most || math.IsNaN(f.Median) || f.Median == 0 {
		return ""
	}
	return fmt.Sprintf("±%.0f%%", 100*f.width())
}

// width is how far the farther end is from the median, as a part of it.
func (f Figure) width() float64 {
	return ratio(max(f.Most-f.Median, f.Median-f.Least), f.Median)
}

// String is the median with its ends.
func (f Figure) String() string {
	if f.Least == f.Most || math.IsNaN(f.Median) {
		return number(f.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", number(f.Median), number(f.Least), number(f.Most))
}

// Metric is a number of a sample.
type Metric struct {
	// Name is its name with the unit, Short a name without.
	Name, Short string
	// Of takes it out of a sample.
	Of func(measure.Sample) float64
	// More is true when more is better.
	More bool
	// Time is true for times that a review takes.
	Time bool
}

// compares reports whether the metric says something about who was measured, and not only about how.
func (m Metric) compares(load Load) bool {
	return !(m.Time && load == Full) && !(m.More && load != Full)
}

// Metrics are all, in the order of tables.
func Metrics() []Metric {
	return []Metric{
		{Name: "reviews/s", Short: "throughput", More: true, Of: throughput},
		{Name: "p50 µs", Short: "p50", Of: p50, Time: true},
		{Name: "p99 µs", Short: "p99", Of: p99, Time: true},
		{Name: "CPU µs", Short: "CPU", Of: cpu},
		{Name: "allocations", Short: "allocations", Of: allocs},
	}
}

func throughput(s measure.Sample) float64 { return s.Throughput }
func p50(s measure.Sample) float64        { return s.P50 }
func p99(s measure.Sample) float64        { return s.P99 }
func cpu(s measure.Sample) float64        { return s.CPU }
func allocs(s measure.Sample) float64     { return s.Allocs }
func calls(s measure.Sample) float64      { return s.Calls }
func processCPU(s measure.Sample) float64 { return s.ProcessCPU }

// limitOf returns the rounds of a contender's limit: the streams for the dispatcher, one round trip and then the streams
// for the bridge; nothing for the others. Mutating hooks have the same limit as validating ones, asked all at once.
func (x index) limitOf(c Cell) []measure.Sample {
	c.Stage = "validate"
	streams, trip := c, c
	streams.Contender, trip.Contender = Streams, RoundTrip
	trip.Hooks, trip.Hosts = 1, 1
	if c.Contender == Dispatcher || c.Contender == Bare {
		return x[streams]
	}
	if c.Contender == Bridge {
		return sums(x[streams], x[trip])
	}
	return nil
}

// sums adds the costs of two tasks that are done one after the other, in each round; nil when either was not measured.
func sums(a, b []measure.Sample) []measure.Sample {
	var all []measure.Sample
	for i := range min(len(a), len(b)) {
		all = append(all, sum(a[i], b[i]))
	}
	return all
}

// sum adds the costs of two tasks that are done one after the other.
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
