package dispatcher

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// operations is the number of values of the label operation; the last one is "other".
const operations = 5

// allowedSeries caches the metrics of allowed calls, which nearly all calls are, for the hooks of one snapshot, so that
// labels are not looked up for each call. It is filled as calls come, so that no series without a call is exported.
type allowedSeries struct {
	snapshot *match.Snapshot
	hooks    []hookSeries // by Hook.Ordinal
}

// hookSeries holds the metrics of one hook, by operation.
type hookSeries [operations]atomic.Pointer[callSeries]

// callSeries holds the metrics of the calls of one hook for one operation.
type callSeries struct {
	requests  prometheus.Counter
	durations prometheus.Observer
}

// seriesOf returns the cache of a snapshot. Only one is kept.
func (i *instrumentation) seriesOf(s *match.Snapshot) *allowedSeries {
	if known := i.allowed.Load(); known != nil && known.snapshot == s {
		return known
	}
	made := &allowedSeries{snapshot: s, hooks: make([]hookSeries, len(s.Hooks()))}
	i.allowed.Store(made)
	return made
}

func (a *allowedSeries) seriesFor(i *instrumentation, h *match.Hook, operation string) *callSeries {
	index, label := operationLabel(operation)
	slot := &a.hooks[h.Ordinal()][index]
	if known := slot.Load(); known != nil {
		return known
	}
	name, kind := h.ID.Name, typeLabel(h)
	made := &callSeries{
		requests:  i.requests.WithLabelValues(name, kind, label, statusAllowed, "false"),
		durations: i.durations.WithLabelValues(name, kind, label, "false"),
	}
	slot.Store(made)
	return made
}

// operationLabel maps an operation to one of a bounded set of labels, and its index in that set.
func operationLabel(operation string) (index int, label string) {
	for i, known := range [operations - 1]string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
		if operation == known {
			return i, known
		}
	}
	return operations - 1, "other"
}
