package serve

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/internal/cluster"
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

// builtinKinds are the kinds that are built into kube-apiserver, for clusters.
type builtinKinds struct{ codec *builtin.Codec }

var _ cluster.Builtin = builtinKinds{}

// Discovered implements cluster.Builtin.
func (builtinKinds) Discovered(lists []*metav1.APIResourceList) cluster.Equivalents {
	return equivalents.Discovered(lists)
}

// Served implements cluster.Builtin.
func (builtinKinds) Served(versions []schema.GroupVersion) cluster.Equivalents {
	return equivalents.Served(versions)
}

// Known implements cluster.Builtin.
func (builtinKinds) Known() cluster.Equivalents { return equivalents.Known() }

// Knows implements cluster.Builtin.
func (k builtinKinds) Knows(kind schema.GroupVersionKind) bool { return k.codec.Knows(kind) }

// Convert implements cluster.Builtin.
func (k builtinKinds) Convert(object []byte, to schema.GroupVersionKind) ([]byte, error) {
	converted, err := k.codec.Convert(object, to)
	if errors.Is(err, builtin.ErrUnknownKind) {
		return nil, fmt.Errorf("%w: %w", cluster.ErrUnknownKind, err)
	}
	return converted, err
}
