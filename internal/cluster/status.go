package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The parts of the information about a cluster.
const (
	// PartNamespaces are the labels of namespaces.
	PartNamespaces = "namespaces"
	// PartResources are the resources that the cluster serves, but for custom ones.
	PartResources = "resources"
	// PartCustomResources are the CustomResourceDefinitions.
	PartCustomResources = "custom-resources"
)

// Where a part comes from.
const (
	// SourceKubeconfig: it is read from the cluster.
	SourceKubeconfig = "kubeconfig"
	// SourceBridge: it is read from the cluster, through its bridges.
	SourceBridge = "bridge"
	// SourceStatic: the document lists it.
	SourceStatic = "static"
	// SourceUnknown: neither.
	SourceUnknown = "unknown"
)

// Status describes the information about a cluster, for operators.
type Status struct {
	// Cluster is its name.
	Cluster string
	// Parts are the parts, in the order of the constants.
	Parts []Part
}

// Part is one part of the information about a cluster.
type Part struct {
	// Name is a Part constant.
	Name string
	// Source is a Source constant.
	Source string
	// Fresh is true while reviews are answered from memory.
	Fresh bool
	// Confirmed is when the cluster last confirmed the data; zero before the first time, and for other sources.
	Confirmed time.Time
	// Err is why they are not, for SourceKubeconfig and SourceBridge; nil while they are.
	Err error
}

// Status returns the clusters by name.
func (r *Registry) Status() []Status {
	var all []Status
	for name, e := range *r.current.Load() {
		all = append(all, Status{Cluster: name, Parts: e.parts()})
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

func (e *registered) parts() []Part {
	if e.remote == nil {
		return e.static
	}
	parts := e.remote.parts()
	return append(parts, e.static[min(len(parts), len(e.static)):]...)
}

// Stale returns a sentence for each part that cannot be read from its cluster, in the order of Status. Reviews that need it are
// refused.
func (r *Registry) Stale() []string {
	var stale []string
	for _, s := range r.Status() {
		for _, p := range s.Parts {
			if p.Err != nil {
				stale = append(stale, fmt.Sprintf("cluster %q: %s: %v", s.Cluster, p.Name, p.Err))
			}
		}
	}
	return stale
}

// Metrics of the information about clusters. Their labels are bounded by the Cluster documents.
const (
	freshMetric     = "portcullis_cluster_context_fresh"
	confirmedMetric = "portcullis_cluster_context_confirmed_timestamp_seconds"
)

// Describe implements [prometheus.Collector].
func (r *Registry) Describe(descriptions chan<- *prometheus.Desc) {
	expiry, reviews := capabilityDescriptions()
	fresh, confirmed := contextDescriptions()
	descriptions <- fresh
	descriptions <- confirmed
	descriptions <- expiry
	descriptions <- reviews
	r.refused.Describe(descriptions)
}

// Collect implements [prometheus.Collector].
func (r *Registry) Collect(metrics chan<- prometheus.Metric) {
	r.collectCapabilities(metrics)
	freshDesc, confirmedDesc := contextDescriptions()
	for _, s := range r.Status() {
		for _, p := range s.Parts {
			if p.Source != SourceKubeconfig && p.Source != SourceBridge {
				continue
			}
			fresh := 0.0
			if p.Fresh {
				fresh = 1
			}
			metrics <- prometheus.MustNewConstMetric(freshDesc, prometheus.GaugeValue, fresh, s.Cluster, p.Name)
			if !p.Confirmed.IsZero() {
				at := float64(p.Confirmed.UnixMilli()) / 1e3
				metrics <- prometheus.MustNewConstMetric(confirmedDesc, prometheus.GaugeValue, at, s.Cluster, p.Name)
			}
		}
	}
}

func contextDescriptions() (fresh, confirmed *prometheus.Desc) {
	labels := []string{"cluster", "part"}
	return prometheus.NewDesc(freshMetric,
			"1 while a part of the data of a cluster is known and current, by cluster and part; reviews that need a part at 0 are refused.",
			labels, nil),
		prometheus.NewDesc(confirmedMetric,
			"When a cluster last confirmed its data, in seconds since 1970, by cluster and part; none before the first time.", labels, nil)
}
