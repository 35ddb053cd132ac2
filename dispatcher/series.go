package dispatcher

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// operations are the values of the label operation; the last one stands for all that are not Kubernetes'.
const operations = 5

// allowedSeries are the metrics of the calls of one configuration's hooks that were allowed, as nearly all are, so that
// their labels are not looked up for each call. They are filled as calls come: a series that nobody has counted is not
// shown.
type allowedSeries struct {
	snapshot *match.Snapshot
	hooks    []hookSeries // by Hook.Ordinal
}

// hookSeries are those of one hook, by operation.
type hookSeries [operations]atomic.Pointer[callSeries]

// callSeries are the metrics of a call.
type callSeries struct {
	requests  prometheus.Counter
	durations prometheus.Observer
}

// seriesOf are the series of a snapshot's hooks. Only those of one snapshot are kept.
func (i *instrumentation) seriesOf(s *match.Snapshot) *allowedSeries {
	if known := i.allowed.Load(); known != nil && known.snapshot == s {
		return known
	}
	made := &allowedSeries{snapshot: s, hooks: make([]hookSeries, len(s.Hooks()))}
	i.allowed.Store(made)
	return made
}

// of are the series of a hook's calls for an operation.
func (a *allowedSeries) of(i *instrumentation, h *match.Hook, operation string) *callSeries {
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

// operationLabel keeps the label bounded whatever a caller sends. index is its place among them.
func operationLabel(operation string) (index int, label string) {
	for i, known := range [operations - 1]string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
		if operation == known {
			return i, known
		}
	}
	return operations - 1, "other"
}
