package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
)

func newCodec(metrics prometheus.Registerer) (*builtin.Codec, error) {
	unknown := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portcullis_objects_not_known_total",
		Help: "Objects of built-in groups that were patched or converted and that our types do not wholly know, by reason: " +
			"unknown_fields are kept; ambiguous, unknown_kind and undecodable ones stay JSON, and get no defaults.",
	}, []string{"reason"})
	for _, reason := range []string{
		builtin.ReasonUnknownFields, builtin.ReasonAmbiguous, builtin.ReasonUnknownKind, builtin.ReasonUndecodable,
	} {
		unknown.WithLabelValues(reason)
	}
	if err := metrics.Register(unknown); err != nil {
		return nil, err
	}
	return builtin.New(builtin.Options{
		NotKnown: func(reason string) { unknown.WithLabelValues(reason).Inc() },
	}), nil
}
