package cluster

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// madeName precedes the name of a key in metrics. No capability of a document has such a name.
const madeName = "key:"

// made counts the reviews of one cluster that came by capabilities which the mesh makes. A nil one accepts none.
type made struct {
	mu     sync.Mutex
	counts map[string]uint64 // by key
	last   identity.MadeCapability
}

// newMade returns the counts for a document with spec.rotateCapability, or nil. It keeps the counts from before the update.
func newMade(c *kinds.Cluster, before *registered) *made {
	if c.Spec.RotatesCapability() == 0 {
		return nil
	}
	if before != nil && before.made != nil {
		return before.made
	}
	return &made{counts: map[string]uint64{}}
}

// note counts a review.
func (m *made) note(shown identity.MadeCapability) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[shown.Key]++
	m.last = shown
}

// collect writes the metrics of the keys in use.
func (m *made) collect(metrics chan<- prometheus.Metric, cluster string, keys []string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	expiry, reviews := capabilityDescriptions()
	for _, key := range keys {
		metrics <- prometheus.MustNewConstMetric(reviews, prometheus.CounterValue, float64(m.counts[key]), cluster, madeName+key)
		if m.last.Key == key {
			metrics <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, float64(m.last.End.Unix()), cluster, madeName+key)
		}
	}
}
