package cluster

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Why a capability is not accepted. They are for logs; the caller does not learn which one applies.
var (
	// ErrUnknownCapability: the cluster exists and does not have the capability.
	ErrUnknownCapability = errors.New("the capability is not one of the cluster's")
	// ErrCapabilityExpired: the cluster has the capability, which has expired.
	ErrCapabilityExpired = errors.New("the capability has expired")
)

// capabilities are the capabilities that one cluster accepts. They are immutable, but for the counts.
type capabilities struct {
	sums [kinds.MaxCapabilities][sha256.Size]byte // all zero where there is none, which is the hash of no known text
	all  []*capability
}

// capability is a capability of a Cluster document.
type capability struct {
	name    string
	expires time.Time      // zero if it does not
	used    *atomic.Uint64 // reviews that it was accepted for
}

// newCapabilities reads the capabilities of a document. A capability that was there before keeps its count.
func newCapabilities(documents []kinds.Capability, before *registered) (c capabilities) {
	for i := range documents[:min(len(documents), kinds.MaxCapabilities)] {
		d := &documents[i]
		c.sums[i] = d.Sum()
		c.all = append(c.all, &capability{d.Name, d.Expires(), before.uses(d.Name, c.sums[i])})
	}
	return c
}

// uses returns the counter of a capability: the counter from before the update, or a new one.
func (e *registered) uses(name string, sum [sha256.Size]byte) *atomic.Uint64 {
	if e != nil {
		for i, one := range e.capabilities.all {
			if one.name == name && e.capabilities.sums[i] == sum {
				return one.used
			}
		}
	}
	return new(atomic.Uint64)
}

// find compares a hash with all of them, in a time that does not depend on any.
func (c *capabilities) find(sum [sha256.Size]byte) (*capability, bool) {
	at := -1
	for i := range c.sums {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(c.sums[i][:], sum[:]), i, at)
	}
	if at < 0 || at >= len(c.all) {
		return nil, false
	}
	return c.all[at], true
}

// AuthorizeCapability returns nil if the bearer of the capability may send reviews of the cluster, else an *AuthorizationError, or
// review.ErrNoConfiguration before the first update. Its duration reveals neither a part of a capability nor whether the cluster exists.
func (r *Registry) AuthorizeCapability(shown identity.Capability, cluster string) error {
	clusters := *r.current.Load()
	if clusters == nil {
		return review.ErrNoConfiguration
	}
	e, known := clusters[cluster]
	if !known {
		e = &registered{}
	}
	found, ok := e.capabilities.find(shown.Sum())
	made, isMade := r.keys().Find(shown, cluster) // in any case, as it takes time
	now := time.Now()
	var reason error
	var label string
	switch {
	case !known:
		reason, label = ErrUnknownCluster, refusedUnknownCluster
	case isMade && e.made != nil && !now.After(made.End):
		e.made.note(made)
		return nil
	case isMade && e.made != nil:
		reason, label = ErrCapabilityExpired, refusedExpired
	case !ok:
		reason, label = ErrUnknownCapability, refusedUnknown
	case !found.expires.IsZero() && now.After(found.expires):
		reason, label = ErrCapabilityExpired, refusedExpired
	default:
		found.used.Add(1)
		return nil
	}
	r.refused.WithLabelValues(label).Inc()
	return &AuthorizationError{Cluster: cluster, reason: reason}
}

// Metrics of capabilities. Their labels are bounded by the Cluster documents.
const (
	capabilityExpiryMetric  = "portcullis_capability_expiration_timestamp_seconds"
	capabilityReviewsMetric = "portcullis_capability_reviews_total"
)

// Values of the label reason of portcullis_capability_refused_total.
const (
	refusedUnknownCluster = "unknown_cluster"
	refusedUnknown        = "unknown"
	refusedExpired        = "expired"
)

// newRefused counts the capabilities that were not accepted. The cluster is no label: a caller that has proved nothing chooses it.
func newRefused() *prometheus.CounterVec {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portcullis_capability_refused_total",
		Help: "Requests with a capability that was not accepted, by reason.",
	}, []string{"reason"})
	for _, reason := range []string{refusedUnknownCluster, refusedUnknown, refusedExpired} {
		refused.WithLabelValues(reason)
	}
	return refused
}

// collectCapabilities writes the metrics of capabilities.
func (r *Registry) collectCapabilities(metrics chan<- prometheus.Metric) {
	r.refused.Collect(metrics)
	expiry, reviews := capabilityDescriptions()
	keys := r.keys().Names()
	for cluster, e := range *r.current.Load() {
		e.made.collect(metrics, cluster, keys)
		for _, c := range e.capabilities.all {
			metrics <- prometheus.MustNewConstMetric(reviews, prometheus.CounterValue, float64(c.used.Load()), cluster, c.name)
			if !c.expires.IsZero() {
				metrics <- prometheus.MustNewConstMetric(expiry, prometheus.GaugeValue, float64(c.expires.Unix()), cluster, c.name)
			}
		}
	}
}

func capabilityDescriptions() (expiry, reviews *prometheus.Desc) {
	labels := []string{"cluster", "name"}
	return prometheus.NewDesc(capabilityExpiryMetric,
			"When a capability of a cluster expires, in seconds since 1970; absent if it does not expire.", labels, nil),
		prometheus.NewDesc(capabilityReviewsMetric,
			"Reviews that came by a capability of a cluster. A replaced capability may be removed when this stands still.", labels, nil)
}
