package observe

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/portcullis-mesh/portcullis/internal/telemetry/series"
)

// Names of the metrics of matchConditions, upstream and here.
const (
	conditionsUpstream = "apiserver_admission_match_condition_"
	conditionsHere     = "portcullis_hook_match_condition_"
)

// conditionMetrics exports the metrics of matchConditions under names of Portcullis. kube-apiserver's code, which evaluates the conditions, counts
// them in a registry of the process; so several dispatchers in one process export the same values. Hooks without series of their own are left out.
type conditionMetrics struct{ hooks *series.Set[hookLabels] }

// Describe implements [prometheus.Collector]. It is empty since the metrics depend on the conditions in use.
func (conditionMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c conditionMetrics) Collect(out chan<- prometheus.Metric) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
	}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), conditionsUpstream)
		for _, m := range f.GetMetric() {
			if ok && c.hooks.Own(hookLabels{labelOf(m, "name"), labelOf(m, "type")}) {
				out <- gathered{describe(conditionsHere+name, f.GetHelp(), m), m}
			}
		}
	}
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func describe(name, help string, m *dto.Metric) *prometheus.Desc {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, l.GetName())
	}
	return prometheus.NewDesc(name, help, labels, nil)
}

// gathered is a metric from another registry.
type gathered struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

// Desc implements [prometheus.Metric].
func (g gathered) Desc() *prometheus.Desc { return g.desc }

// Write implements [prometheus.Metric].
func (g gathered) Write(to *dto.Metric) error {
	proto.Merge(to, g.metric)
	return nil
}
