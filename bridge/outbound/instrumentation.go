package outbound

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// instrumentation has the metrics of calls to webhooks, beside the dispatcher's metrics of each hook.
type instrumentation struct {
	opened  prometheus.Counter
	retries prometheus.Counter
}

// newInstrumentation registers the metrics unless m is nil.
func newInstrumentation(m prometheus.Registerer, c *Client) (*instrumentation, error) {
	i := &instrumentation{
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_webhook_connections_opened_total", Help: "Connections that were opened to webhooks.",
		}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portcullis_webhook_retries_total", Help: "Calls that were sent again because the webhook asked for it with Retry-After.",
		}),
	}
	if m == nil {
		return i, nil
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	return i, errors.Join(
		m.Register(i.opened),
		m.Register(i.retries),
		m.Register(gauge("portcullis_webhook_calls", "Calls to webhooks under way.", c.limit.inFlight)),
		m.Register(gauge("portcullis_webhook_waiting_calls", "Calls to webhooks that wait for others to end.", c.waiting)),
		m.Register(gauge("portcullis_webhook_connections", "Connections to webhooks, and attempts to open one.", c.connections.len)),
		m.Register(gauge("portcullis_webhook_targets", "Addresses of webhooks that are remembered.", c.targets.len)),
	)
}

// waiting counts the calls that have not started.
func (c *Client) waiting() int {
	inFlight := c.limit.inFlight()
	return max(c.calls.len()-inFlight, 0)
}
