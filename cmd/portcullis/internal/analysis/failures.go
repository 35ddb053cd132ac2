package analysis

import (
	"fmt"
	"time"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
)

// failedPartsOf are the sums of the parts of the calls without a verdict. The queue of the host is a part of its handler here.
func failedPartsOf(l *analysisv1.Latency) (out [parts]time.Duration) {
	out[partQueue] = l.GetFailedQueued().AsDuration()
	if !l.GetStreamed() {
		out[partWebhook] = l.GetFailedWire().AsDuration()
		return out
	}
	if byControllers(l) {
		out[partController] = l.GetFailedHost().AsDuration()
		return out
	}
	out[partWire], out[partHandler] = l.GetFailedWire().AsDuration(), l.GetFailedHost().AsDuration()
	return out
}

// mostlyFailed reports whether calls without a verdict took most of the time of a part: the finding about these names
// it.
func (x *hookCalls) mostlyFailed(p part) bool {
	return x.failedParts[p] > 0 && 2*x.failedParts[p] >= x.parts[p]
}

// judgeFailures finds calls without a verdict.
func (x *hookCalls) judgeFailures(found causes, k callsKey) {
	if x.failed == 0 {
		return
	}
	c := found.at(causeKey{code: CodeFailures, hook: k.hook})
	c.of, c.rank = c.of+x.calls, -1
	for p, d := range x.failedParts {
		c.parts[p] += d
	}
	c.took.add(x.failures.total().took, x.failed)
	c.failures.merge(x.failures)
	c.hooks[k.hook.name], c.clusters[k.cluster] = true, true
	for name, s := range x.instances {
		if s.failed > 0 && name != "" {
			c.instances[name] = true
		}
	}
	for minute, s := range x.minutes[partQueue] {
		c.minutes.add(minute, 0, s.n) // calls, for the begin of the records
	}
}

// phaseOfFailures is the phase in which most calls without a verdict were given up; empty if dispatchers do not tell.
func (c *cause) phaseOfFailures() string {
	if p := largest(&c.parts); c.parts[p] > 0 {
		return p.String()
	}
	return ""
}

// firstFailure is the first minute with calls without a verdict; zero if no minute with calls enough is before it.
func (c *cause) firstFailure() (first time.Time) {
	for minute, s := range c.failures {
		if at := time.Unix(minute, 0).UTC(); s.n > 0 && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if all := c.minutes.sorted(); len(all) == 0 || !time.Unix(all[0], 0).Before(first) {
		return time.Time{}
	}
	return first
}

// after is the mean time of calls without a verdict, and their phase.
func (f *Finding) after(took time.Duration) string {
	if f.Phase == "" {
		return ""
	}
	return fmt.Sprintf(" after %s (%s)", took, f.Phase)
}
