package main

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// storageOfTest has series in memory for the engine of Prometheus.
type storageOfTest struct {
	storage.LabelQuerier

	t        *testing.T
	interval time.Duration
	series   []storage.Series
	engine   *promql.Engine
}

func newStorage(t *testing.T, interval time.Duration) *storageOfTest {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 100_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	t.Cleanup(func() { _ = engine.Close() })
	return &storageOfTest{LabelQuerier: storage.NoopQuerier(), t: t, interval: interval, engine: engine}
}

// add adds a series, as promtool writes it: up{job="x"} 1 0 _ 1+2x10.
func (s *storageOfTest) add(text string) {
	s.t.Helper()
	of, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(text)
	if err != nil {
		s.t.Fatal(err)
	}
	var samples []chunks.Sample
	for i, v := range values {
		if !v.Omitted {
			samples = append(samples, point{(time.Duration(i) * s.interval).Milliseconds(), v.Value})
		}
	}
	s.series = append(s.series, storage.NewListSeries(of, samples))
}

// query evaluates an expression at a time.
func (s *storageOfTest) query(expr string, at time.Duration) promql.Vector {
	s.t.Helper()
	q, err := s.engine.NewInstantQuery(s.t.Context(), s, nil, expr, time.UnixMilli(at.Milliseconds()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer q.Close()
	v, err := q.Exec(s.t.Context()).Vector()
	if err != nil {
		s.t.Fatalf("%s: %v", expr, err)
	}
	return append(promql.Vector(nil), v...)
}

// Querier implements [storage.Queryable].
func (s *storageOfTest) Querier(_, _ int64) (storage.Querier, error) { return s, nil }

// Select implements [storage.Querier].
func (s *storageOfTest) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, x := range s.series {
		matches := true
		for _, m := range matchers {
			matches = matches && m.Matches(x.Labels().Get(m.Name))
		}
		if matches {
			set.series = append(set.series, x)
		}
	}
	return set
}

type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series              { return s.series[s.at] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// point is a sample of a number.
type point struct {
	at    int64
	value float64
}

func (p point) T() int64                    { return p.at }
func (point) ST() int64                     { return 0 }
func (p point) F() float64                  { return p.value }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }
