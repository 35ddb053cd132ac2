package evaluation

import (
	"context"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// maxMeteredNames bounds the names of hooks whose conditions have metrics, in the life of the process: the code of kube-apiserver that counts keeps the
// series of each name for ever, 8 kB at most.
const maxMeteredNames = 2000

// metered are the names that have metrics.
var metered meteredNames //nolint:gochecknoglobals // as the metrics of k8s.io/apiserver are

type meteredNames struct {
	mu    sync.Mutex
	known map[string]bool
}

// name is the name of a hook in metrics.
func (m *meteredNames) name(hook string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.known[hook]:
	case len(m.known) == maxMeteredNames:
		return "(other)"
	case m.known == nil:
		m.known = map[string]bool{hook: true}
	default:
		m.known[hook] = true
	}
	return hook
}

// Metrics are the metrics of kube-apiserver about the matchConditions of one hook. They may be used concurrently.
type Metrics struct{ name, stepType string }

// MetricsOf returns the metrics of a hook. Past 2,000 names in the life of the process, hooks share the name "(other)".
func MetricsOf(hook string, stage admissionv1.Stage) Metrics {
	if stage == admissionv1.Stage_STAGE_VALIDATE {
		return Metrics{metered.name(hook), "validating"}
	}
	return Metrics{metered.name(hook), "admit"}
}

// Evaluate calls evaluate, which evaluates all conditions of the hook, and counts its time.
func (m Metrics) Evaluate(ctx context.Context, operation admission.Operation, evaluate func()) {
	begun := time.Now()
	evaluate()
	metrics.Metrics.ObserveMatchConditionEvaluationTime(ctx, time.Since(begun), m.name, "webhook", m.stepType, string(operation))
}

// Fail counts a condition that failed.
func (m Metrics) Fail(ctx context.Context, operation admission.Operation) {
	metrics.Metrics.ObserveMatchConditionEvalError(ctx, m.name, "webhook", m.stepType, string(operation))
}
