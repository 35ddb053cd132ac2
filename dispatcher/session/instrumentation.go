package session

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/session/hedge"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
)

// instrumentation holds the metrics of the sessions.
type instrumentation struct {
	frames  prometheus.Counter
	retries prometheus.Counter
	ended   *prometheus.CounterVec // cause
	hedges  *hedge.Metrics
}

// newInstrumentation makes the instruments and registers them if there is a registry for them.
func newInstrumentation(m prometheus.Registerer, r *Router) (*instrumentation, error) {
	i := &instrumentation{
		frames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_host_review_frames_total", Help: "Review frames handed to host streams.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_host_retries_total", Help: "Calls that were handed to another replica.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portcullis_host_sessions_ended_total", Help: "Host sessions that ended, by cause.",
		}, []string{"cause"}),
		hedges: hedge.NewMetrics(),
	}
	for _, cause := range stream.CauseLabels() {
		i.ended.WithLabelValues(cause)
	}
	if m == nil {
		return i, nil
	}
	sessions := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portcullis_host_sessions", Help: "Live host sessions.",
	}, func() float64 { return float64(len(r.all())) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portcullis_host_waiting_calls", Help: "Calls that wait for a free replica.",
	}, func() float64 { return float64(r.queued.Load()) })
	pending := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portcullis_pending_hooks", Help: "Hooks that are not in rotation yet: no host has answered their probe.",
	}, func() float64 { return float64(len(r.hooks.Load().pending)) })
	leaked := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portcullis_host_leaked_slots",
		Help: "Slots of calls that were cancelled long ago and that their hosts never answered, at the last look.",
	}, func() (n float64) {
		for _, s := range r.all() {
			n += float64(s.LeakedSlots())
		}
		return n
	})
	return i, errors.Join(m.Register(i.frames), m.Register(i.retries), m.Register(i.ended), m.Register(i.hedges.Vec),
		m.Register(sessions), m.Register(waiting), m.Register(pending), m.Register(leaked),
		m.Register(newHookHosts(r)), m.Register(newReplicaMetrics(r)))
}
