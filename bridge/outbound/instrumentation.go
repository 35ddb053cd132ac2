package outbound

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// instrumentation is what operators see of the calls to webhooks, beside what the dispatcher says of each hook.
type instrumentation struct {
	opened  prometheus.Counter
	retries prometheus.Counter
}

// newInstrumentation makes the instruments and registers them if there is a registry for them.
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
		m.Register(gauge("portcullis_webhook_calls", "Calls to webhooks under way.", c.all.underWay)),
		m.Register(gauge("portcullis_webhook_waiting_calls", "Calls to webhooks that wait for others to end.", c.waiting)),
		m.Register(gauge("portcullis_webhook_connections", "Connections to webhooks, and attempts to open one.", c.network.len)),
		m.Register(gauge("portcullis_webhook_targets", "Addresses of webhooks that are remembered.", c.targets.len)),
	)
}

// waiting counts the calls that are not under way yet.
func (c *Client) waiting() int {
	underWay := c.all.underWay()
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(len(c.calls)-underWay, 0)
}
