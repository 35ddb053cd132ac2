package telemetry

import (
	"encoding/hex"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// withTraceIDs returns a gatherer whose exemplars have the bytes of trace ids, as the bridge to OpenTelemetry (v0.66.0) passes them on. It
// does not decode their hexadecimal form, and a collector refuses the whole export for it.
func withTraceIDs(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather()
		for _, family := range families {
			for _, m := range family.GetMetric() {
				decodeExemplars(m)
			}
		}
		return families, err
	})
}

func decodeExemplars(m *dto.Metric) {
	if c := m.GetCounter(); c.GetExemplar() != nil {
		c.Exemplar = decoded(c.GetExemplar())
	}
	for _, b := range m.GetHistogram().GetBucket() {
		if b.GetExemplar() != nil {
			b.Exemplar = decoded(b.GetExemplar())
		}
	}
	for i, e := range m.GetHistogram().GetExemplars() {
		m.GetHistogram().Exemplars[i] = decoded(e)
	}
}

// decoded returns a copy, since the metric goes on to use its exemplar.
func decoded(e *dto.Exemplar) *dto.Exemplar {
	e = proto.CloneOf(e)
	for _, label := range e.GetLabel() {
		if id, err := hex.DecodeString(label.GetValue()); err == nil && label.GetName() == "trace_id" {
			label.Value = proto.String(string(id))
		}
	}
	return e
}
