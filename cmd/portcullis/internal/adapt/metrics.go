package adapt

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/bridge/adapt"
	"github.com/portcullis-mesh/portcullis/bridge/adapt/remote"
)

// metrics are the metrics of a host before a webhook. It passes its observations to the governor.
type metrics struct {
	governor *remote.Governor
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

var _ adapt.Observer = (*metrics)(nil)

func newMetrics(m prometheus.Registerer, g *remote.Governor, sessions func() int) (*metrics, error) {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	up := func() int {
		if g.Up() {
			return 1
		}
		return 0
	}
	a := &metrics{
		governor: g,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portcullis_adapt_calls_total", Help: "Calls that were forwarded to the webhook, by how they ended.",
		}, []string{"hook", "stage", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "portcullis_adapt_call_duration_seconds", Help: "Time from the request to the webhook to its answer, with retries that it asked for.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25},
			// Native histograms too, with the bounds of those in package dispatcher.
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"hook", "stage"}),
	}
	return a, errors.Join(
		m.Register(a.calls),
		m.Register(a.duration),
		m.Register(gauge("portcullis_adapt_slots", "Calls that the host takes at a time; 0 while the webhook cannot be called.", g.Slots)),
		m.Register(gauge("portcullis_adapt_calls_in_flight", "Calls that the webhook has.", g.InFlight)),
		m.Register(gauge("portcullis_adapt_webhook_up", "1 while the webhook can be called.", up)),
		m.Register(gauge("portcullis_adapt_sessions", "Dispatchers that have accepted the host.", sessions)),
	)
}

// Began implements [adapt.Observer].
func (a *metrics) Began() { a.governor.Began() }

// Ended implements [adapt.Observer].
func (a *metrics) Ended(c adapt.Call) {
	a.governor.Ended(c)
	stage := string(c.Stage)
	a.calls.WithLabelValues(c.Hook, stage, c.Outcome.String()).Inc()
	a.duration.WithLabelValues(c.Hook, stage).Observe(c.Ended.Sub(c.Began).Seconds())
}
