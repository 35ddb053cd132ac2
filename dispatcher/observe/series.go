package observe

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/chain"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/shadow"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// operations is the number of values of the label operation; the last one is "other".
const operations = 5

// allowedSeries caches the metrics of allowed calls, which nearly all calls are, for the hooks of one snapshot, so that
// labels are not looked up for each call. It is filled as calls come, so that no series without a call is exported.
type allowedSeries struct {
	snapshot *match.Snapshot
	hooks    []hookSeries // by Hook.Ordinal
}

// hookSeries holds the metrics of one hook: of its calls by operation, and of its phases.
type hookSeries struct {
	calls  [operations]atomic.Pointer[callSeries]
	phases atomic.Pointer[phaseSeries]
}

// callSeries holds the metrics of the calls of one hook for one operation.
type callSeries struct {
	requests  prometheus.Counter
	durations prometheus.Observer
}

// seriesOf returns the cache of a snapshot. Only one is kept.
func (i *instruments) seriesOf(s *match.Snapshot) *allowedSeries {
	if known := i.allowed.Load(); known != nil && known.snapshot == s {
		return known
	}
	made := &allowedSeries{snapshot: s, hooks: make([]hookSeries, len(s.Hooks()))}
	i.allowed.Store(made)
	return made
}

func (a *allowedSeries) seriesFor(i *instruments, h *match.Hook, operation string) *callSeries {
	index, label := operationLabel(operation)
	slot := &a.hooks[h.Ordinal()].calls[index]
	if known := slot.Load(); known != nil {
		return known
	}
	l := i.labels(h)
	made := &callSeries{
		requests:  i.requests.WithLabelValues(l.name, l.kind, label, statusAllowed, "false"),
		durations: i.durations.WithLabelValues(l.name, l.kind, label, "false"),
	}
	slot.Store(made)
	return made
}

// phaseSeries holds the times of the calls of one hook. Calls over streams have wire and host. Calls of an HTTPS webhook have webhook: the webhook
// does not report its own time. Evaluations of a policy have policy.
type phaseSeries struct{ queue, wire, host, webhook, policy, apply prometheus.Observer }

func (a *allowedSeries) phasesFor(i *instruments, h *match.Hook) *phaseSeries {
	slot := &a.hooks[h.Ordinal()].phases
	if known := slot.Load(); known != nil {
		return known
	}
	l := i.labels(h)
	phase := func(name string) prometheus.Observer { return i.phases.WithLabelValues(l.name, l.kind, name) }
	made := &phaseSeries{}
	switch {
	case h.Policy != nil:
		made.policy = phase("policy")
	case h.HasHosts():
		made.queue, made.wire, made.host = phase("queue"), phase("wire"), phase("host")
	default:
		made.queue, made.webhook = phase("queue"), phase("webhook")
	}
	if h.Policy == nil && h.ID.Stage != admissionv1.Stage_STAGE_VALIDATE {
		made.apply = phase("apply")
	}
	slot.Store(made)
	return made
}

// observe records the phases of a call with a verdict.
func (p *phaseSeries) observe(c *FinishedHook) {
	if p.policy != nil {
		p.policy.Observe(c.Timing.Host.Seconds())
		return
	}
	p.queue.Observe(c.Timing.Queued.Seconds())
	if p.webhook != nil {
		p.webhook.Observe(c.Timing.Wire.Seconds())
	} else {
		p.wire.Observe(c.Timing.Wire.Seconds())
		p.host.Observe(c.Timing.Host.Seconds())
	}
	if c.Effect == chain.Patched && p.apply != nil {
		p.apply.Observe(c.Applying.Seconds())
	}
}

// beginModes makes the counters of hooks in shadow, and of those that may be called before their turn.
func (i *instruments) beginModes(hooks []*match.Hook) {
	for _, h := range hooks {
		l := i.labels(h)
		if h.Route.Shadow {
			for _, outcome := range []shadow.Outcome{shadow.Allowed, shadow.Patched, shadow.Denied, shadow.Failed, shadow.Dropped} {
				i.shadowCalls.WithLabelValues(l.name, l.kind, string(outcome))
			}
		}
		if h.Route.Speculate {
			for _, outcome := range []string{speculationCounted, speculationDiscarded, speculationFailed} {
				i.speculations.WithLabelValues(l.name, l.kind, outcome)
			}
		}
	}
}

// operationLabel maps an operation to a label of a bounded set, and to its index in that set.
func operationLabel(operation string) (index int, label string) {
	for i, known := range [operations - 1]string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
		if operation == known {
			return i, known
		}
	}
	return operations - 1, "other"
}
