package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// MaxSamples bounds the requests that are tried to find mutating hooks that exceed the budget together. The requests that
// most hooks select are tried.
const MaxSamples = 64

// MaxSampleCost bounds the cost of the matchConditions of all hooks together on these requests, in units of CEL: they take about a second. A hook past it is
// not counted.
const MaxSampleCost = 4_000_000

// overBudget finds initializers and mutating hooks that fail closed, are called one after the other for one request, and may need more time
// for that than the budget. The finding is about the first hook that may exceed the budget. The requests are made from the
// rules and selectors of the hooks, so a client could send each of them. matchConditions cost so much at most.
func overBudget(ctx context.Context, s *match.Snapshot, budget time.Duration, about func(*match.Hook) bool, cost int64) []match.Finding {
	hooks, all := serial(s.Hooks())
	if budget <= 0 || all <= budget {
		return nil
	}
	ctx = match.WithCost(ctx, cost)
	var findings []match.Finding
	said := map[*match.Hook]bool{}
	for _, r := range samples(hooks, about) {
		c := r.chain(ctx, s)
		if late := c.late(budget); late != nil && !said[late] {
			said[late] = true
			field, by := late.Path(".timeoutSeconds"), "timeoutSeconds or spec.timeout of a HookRoute"
			if late.Initializes() {
				field, by = late.Path(""), "spec.timeout of a HookRoute"
			}
			findings = append(findings, warning(CodeTimeoutBudget, field,
				"%s may have to wait %s for hooks that fail closed (%s), and API servers wait %s: then the request "+
					"fails, whatever they say; give them less time together, by %s", r.describe(), c.sum(), c.describe(), budget, by))
		}
	}
	return findings
}

// serial returns the hooks that a request waits for, and the sum of the times that they may need.
func serial(hooks []*match.Hook) (out chain, sum time.Duration) {
	for _, h := range hooks {
		if isSerial(h) {
			out = append(out, h)
		}
	}
	return out, out.sum()
}

// isSerial reports whether the time of a hook counts. A hook or initializer that fails open is left out when the time is short, so it
// refuses no request by its timeout. A policy is judged in the process: its timeout is the deadline of the review.
func isSerial(h *match.Hook) bool {
	return h.Policy == nil && h.ID.Stage != admissionv1.Stage_STAGE_VALIDATE && h.FailsClosed()
}

// chain are hooks that one request meets, in the order in which they are called.
type chain []*match.Hook

// need is the most time that a request may wait for a hook: a hook with reinvocationPolicy IfNeeded may be called twice.
func need(h *match.Hook) time.Duration {
	if h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy {
		return 2 * h.Timeout
	}
	return h.Timeout
}

// totals is how long a request may have waited after each hook. Of those that act at the same time, the slowest counts.
func (c chain) totals() []time.Duration {
	totals := make([]time.Duration, len(c))
	var before, slowest time.Duration
	for i, h := range c {
		if i > 0 && !h.ActsWith(c[i-1]) {
			before, slowest = before+slowest, 0
		}
		slowest = max(slowest, need(h))
		totals[i] = before + slowest
	}
	return totals
}

func (c chain) sum() time.Duration {
	if len(c) == 0 {
		return 0
	}
	return c.totals()[len(c)-1]
}

// late is the first hook that the budget may not suffice for; nil when it suffices for all.
func (c chain) late(budget time.Duration) *match.Hook {
	if i := slices.IndexFunc(c.totals(), func(total time.Duration) bool { return total > budget }); i >= 0 {
		return c[i]
	}
	return nil
}

// describe names the hooks and the time that each may need.
func (c chain) describe() string {
	names := make([]string, 0, len(c))
	for _, h := range c {
		names = append(names, fmt.Sprintf("%s %s", h.ID.Name, need(h)))
	}
	return listed(names)
}

// samples are requests that some of the hooks are about, requests of most hooks first.
func samples(hooks chain, about func(*match.Hook) bool) []sample {
	count := map[sample]int{}
	var all []sample
	for _, h := range hooks {
		if !about(h) {
			continue
		}
		for _, r := range samplesOf(h) {
			if count[r]++; count[r] == 1 {
				all = append(all, r)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b sample) int { return cmp.Compare(count[b], count[a]) })
	return all[:min(len(all), MaxSamples)]
}

// chain are the hooks that are called for the sample one after the other.
func (r *sample) chain(ctx context.Context, s *match.Snapshot) chain {
	a := r.attributes()
	var c chain
	for _, h := range s.Candidates(r.cluster, admissionv1.Stage_STAGE_MUTATE, a) {
		if isSerial(h) && h.Matches(ctx, a).Match {
			c = append(c, h)
		}
	}
	return c
}
