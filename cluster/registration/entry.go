package registration

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// entry is one webhook of a registration, in the making.
type entry struct {
	stage admissionv1.Stage
	name  string
	// hooks are those that may be called for a request of the entry.
	hooks []*match.Hook
	// atoms are the requests of the entry.
	atoms []atom
	// except are requests among them that belong to another entry.
	except []atom
}

// byPolicy gives fail-closed and fail-open hooks an entry each. A request may belong to both.
func byPolicy(stage admissionv1.Stage, hooks []*match.Hook) []entry {
	closed, open := partition(hooks)
	return inUse(
		entry{stage: stage, name: match.EntryFailClosed, hooks: closed, atoms: reachable(closed)},
		entry{stage: stage, name: match.EntryFailOpen, hooks: open, atoms: reachable(open)},
	)
}

// byRequest gives requests that any fail-closed hook covers to one entry, with all hooks, and the rest to another.
func byRequest(stage admissionv1.Stage, hooks []*match.Hook) []entry {
	failClosed, failOpen := partition(hooks)
	closed := newAtomSet(reachable(failClosed))
	var open, shared []atom
	for _, a := range reachable(failOpen) {
		if closed.covers(a) {
			continue
		}
		open = append(open, a)
		shared = append(shared, closed.common(a)...)
	}
	all := slices.DeleteFunc(slices.Clone(hooks), func(h *match.Hook) bool {
		return !slices.ContainsFunc(reachable([]*match.Hook{h}), closed.overlaps)
	})
	return inUse(
		entry{stage: stage, name: match.EntryFailClosed, hooks: all, atoms: reachable(failClosed)},
		entry{stage: stage, name: match.EntryFailOpen, hooks: failOpen, atoms: open, except: shared},
	)
}

func partition(hooks []*match.Hook) (closed, open []*match.Hook) {
	for _, h := range hooks {
		if h.FailsClosed() {
			closed = append(closed, h)
		} else {
			open = append(open, h)
		}
	}
	return closed, open
}

// reachable are the requests of hooks, less those that never come to the mesh.
func reachable(hooks []*match.Hook) []atom {
	var all []atom
	for _, h := range hooks {
		all = append(all, atoms(h.Rules())...)
	}
	return slices.DeleteFunc(all, func(a atom) bool { return excluded(a) != nil })
}

// inUse leaves out entries without requests.
func inUse(entries ...entry) []entry {
	return slices.DeleteFunc(entries, func(e entry) bool { return len(e.atoms) == 0 })
}

// mutating is an entry of the mutate or reinvoke stage as Kubernetes writes it.
func (p *planner) mutating(e entry) admissionregistrationv1.MutatingWebhook {
	again := admissionregistrationv1.NeverReinvocationPolicy
	if e.stage == admissionv1.Stage_STAGE_REINVOKE {
		again = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	w := p.validating(e)
	return admissionregistrationv1.MutatingWebhook{
		Name:                    w.Name,
		ClientConfig:            w.ClientConfig,
		Rules:                   w.Rules,
		FailurePolicy:           w.FailurePolicy,
		MatchPolicy:             w.MatchPolicy,
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		ReinvocationPolicy:      &again,
		MatchConditions:         w.MatchConditions,
	}
}

// validating is an entry as Kubernetes writes it.
func (p *planner) validating(e entry) admissionregistrationv1.ValidatingWebhook {
	url, seconds, effects := p.path(e), p.timeoutSeconds(e), e.sideEffects()
	equivalent, policy := admissionregistrationv1.Equivalent, admissionregistrationv1.Ignore
	if e.name == match.EntryFailClosed {
		policy = admissionregistrationv1.Fail
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    fmt.Sprintf("%s.%s.%s", e.name, stageName(e.stage), p.options.Name),
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: p.options.CABundle},
		Rules:                   rules(e.atoms),
		FailurePolicy:           &policy,
		MatchPolicy:             &equivalent,
		NamespaceSelector:       p.namespaceSelector(e.hooks),
		ObjectSelector:          objectSelector(e.hooks),
		SideEffects:             &effects,
		TimeoutSeconds:          &seconds,
		AdmissionReviewVersions: []string{"v1"},
		MatchConditions:         e.conditions(),
	}
}

// sideEffects is what all hooks of the entry declare together. The dispatcher refuses dry runs for the single hook.
func (e entry) sideEffects() admissionregistrationv1.SideEffectClass {
	for _, h := range e.hooks {
		if h.SideEffects != admissionregistrationv1.SideEffectClassNone {
			return admissionregistrationv1.SideEffectClassNoneOnDryRun
		}
	}
	return admissionregistrationv1.SideEffectClassNone
}

// timeoutSeconds is the time that the hooks of one request may need, within the budget of the stage.
func (p *planner) timeoutSeconds(e entry) int32 {
	need := e.need()
	limit := map[admissionv1.Stage]time.Duration{
		admissionv1.Stage_STAGE_MUTATE:   p.options.Budget.Mutate,
		admissionv1.Stage_STAGE_REINVOKE: p.options.Budget.Reinvoke,
		admissionv1.Stage_STAGE_VALIDATE: p.options.Budget.Validate,
	}[e.stage]
	if need > limit {
		p.findings = append(p.findings, match.Finding{
			Severity: match.SeverityWarning, Code: CodeTimeout, Path: fmt.Sprintf("entry %s/%s", stageName(e.stage), e.name),
			Message: fmt.Sprintf("its hooks may need %s together and get %s, since an API server gives a whole write %s: "+
				"give the hooks shorter timeouts", need, limit, WriteBudget),
		})
		need = limit
	}
	return int32((need + time.Second - 1) / time.Second)
}

// need is the longest that hooks of one request may take one after the other, or at the same time when they validate.
// Hooks that cannot meet in a request do not count together.
func (e entry) need() time.Duration {
	var need time.Duration
	sets := make([]atomSet, len(e.hooks))
	for i, h := range e.hooks {
		sets[i] = newAtomSet(atoms(h.Rules()))
		need = max(need, h.Timeout)
	}
	if e.stage == admissionv1.Stage_STAGE_VALIDATE {
		return need
	}
	for i := range e.hooks {
		var sum time.Duration
		for k, other := range e.hooks {
			if k == i || slices.ContainsFunc(atoms(other.Rules()), sets[i].overlaps) {
				sum += time.Duration(e.rounds(other)) * other.Timeout
			}
		}
		need = max(need, sum)
	}
	return need
}

// rounds is how often one review may call the hook: the chain has a second round of its own for those that ask for it.
func (e entry) rounds(h *match.Hook) int {
	if e.stage == admissionv1.Stage_STAGE_MUTATE && h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy {
		return 2
	}
	return 1
}
