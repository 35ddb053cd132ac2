package registration

import (
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// entry is one webhook of a registration, in the making.
type entry struct {
	stage admissionv1.Stage
	name  string
	// suffix distinguishes entries of one name and stage.
	suffix string
	// hooks may be called for a request of the entry.
	hooks []*match.Hook
	// atoms are the requests of the entry, in the versions that its hooks name.
	atoms []atom
	// equivalent means that the API server sends these requests in other versions too.
	equivalent bool
	// except are requests among them that belong to another entry.
	except []atom
	// unwanted are requests among them, in other versions, that no hook covers.
	unwanted []atom
	// namespaces selects requests by namespace; requests in no namespace are always selected.
	namespaces *metav1.LabelSelector
	// failOpen divides the requests, if there is any: those that always fail open go to the entry of that name, and the others to
	// this one.
	failOpen []admissionregistrationv1.RuleWithOperations
}

// entry completes an entry: it sets equivalent, and notes the brought requests that are not wanted.
func (p *planner) entry(e entry, wanted atomSet) entry {
	e.equivalent = slices.ContainsFunc(e.hooks, isEquivalent)
	e.unwanted = keep(p.brought(e), func(a atom) bool { return !wanted.covers(a) })
	return e
}

// brought are the requests that the API server brings to an entry because they are the same as those that its rules name,
// in another version: these too, in all known ways.
func (p *planner) brought(e entry) []atom {
	if !e.equivalent {
		return nil
	}
	return p.families.equivalents(e.atoms)
}

// rest is the entry for the requests of fail-open hooks that no fail-closed one covers. Its rules also name a request of the other entry
// where that request is another version of a request here.
func (p *planner) rest(stage admissionv1.Stage, failOpen []*match.Hook, closed atomSet) entry {
	here := func(a atom) bool { return !closed.covers(a) }
	e := entry{stage: stage, name: match.EntryFailOpen}
	e.hooks = keep(failOpen, func(h *match.Hook) bool { return slices.ContainsFunc(p.reach[h], here) })
	sameHere := p.families.sameWhere(here)
	for _, h := range e.hooks {
		e.atoms = append(e.atoms, keep(p.written[h], func(a atom) bool { return here(a) || isEquivalent(h) && sameHere(a) })...)
	}
	e.namespaces = namespacesOf(e.hooks)
	e = p.entry(e, p.covered(e.hooks))
	e.unwanted = keep(e.unwanted, here)
	all := append(p.brought(e), e.atoms...)
	e.except = append(closed.common(keep(all, here)), keep(all, closed.covers)...)
	return e
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

// keep returns the elements that pass; the list stays as it is.
func keep[T any](list []T, passes func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return !passes(x) })
}

// inUse are the entries that bring requests, each with a name of its own.
func inUse(entries ...entry) []entry {
	entries = slices.DeleteFunc(entries, func(e entry) bool { return len(e.atoms) == 0 })
	count := map[string]int{}
	for i := range entries {
		e := &entries[i]
		if count[e.name]++; count[e.name] > 1 {
			e.suffix = fmt.Sprintf("-%d", count[e.name])
		}
	}
	return entries
}

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

func (p *planner) validating(e entry) admissionregistrationv1.ValidatingWebhook {
	seconds, effects := p.timeoutSeconds(e), e.sideEffects()
	url := p.path(e, seconds)
	policy, matching := admissionregistrationv1.Ignore, admissionregistrationv1.Exact
	if e.name == match.EntryFailClosed {
		policy = admissionregistrationv1.Fail
	}
	if e.equivalent {
		matching = admissionregistrationv1.Equivalent
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    fmt.Sprintf("%s.%s%s.%s", e.name, match.StageName(e.stage), e.suffix, p.options.Name),
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: p.options.CABundle},
		Rules:                   rules(e.atoms),
		FailurePolicy:           &policy,
		MatchPolicy:             &matching,
		NamespaceSelector:       p.namespaceSelector(e.namespaces),
		ObjectSelector:          objectSelector(e.hooks),
		SideEffects:             &effects,
		TimeoutSeconds:          &seconds,
		AdmissionReviewVersions: []string{"v1"},
		MatchConditions:         e.withShared(append(e.conditions(), p.bypassConditions()...)),
	}
}

// sideEffects combines the declarations of all hooks of the entry. The dispatcher refuses dry runs for the single hook.
func (e entry) sideEffects() admissionregistrationv1.SideEffectClass {
	for _, h := range e.hooks {
		if h.SideEffects != admissionregistrationv1.SideEffectClassNone {
			return admissionregistrationv1.SideEffectClassNoneOnDryRun
		}
	}
	return admissionregistrationv1.SideEffectClassNone
}

// timeoutSeconds is the time that the hooks of one request may need, within the timeout of the stage, plus Overhead.
func (p *planner) timeoutSeconds(e entry) int32 {
	need := p.need(e)
	limit := map[admissionv1.Stage]time.Duration{
		admissionv1.Stage_STAGE_MUTATE:   p.options.Timeouts.Mutate,
		admissionv1.Stage_STAGE_REINVOKE: p.options.Timeouts.Reinvoke,
		admissionv1.Stage_STAGE_VALIDATE: p.options.Timeouts.Validate,
	}[e.stage]
	if need > limit {
		p.findings = append(p.findings, match.Finding{
			Severity: match.SeverityWarning, Code: CodeTimeout, Path: e.describe(),
			Message: fmt.Sprintf("its hooks may need %s together and get %s, since an API server gives a whole write %s: "+
				"give the hooks shorter timeouts", need, limit, WriteTimeout),
		})
		need = limit
	}
	return int32((need + Overhead + time.Second - 1) / time.Second)
}

// maxComparisons bounds the work to find which hooks of an entry can meet in a request: beyond it all hooks count together.
const maxComparisons = 2_000_000

// need is the longest that hooks of one request may take one after the other, or at the same time when they validate.
// Hooks that cannot meet in a request do not count together, and the caller does not wait for hooks in shadow.
func (p *planner) need(e entry) time.Duration {
	var need, all time.Duration
	waited, reach := keep(e.hooks, func(h *match.Hook) bool { return !h.Route.Shadow }), 0
	for _, h := range waited {
		need = max(need, h.Timeout)
		all += time.Duration(e.rounds(h)) * h.Timeout
		reach += len(p.reach[h])
	}
	switch {
	case e.stage == admissionv1.Stage_STAGE_VALIDATE:
		return need
	case len(waited)*reach > maxComparisons:
		return all
	}
	for i, h := range waited {
		var sum time.Duration
		set := newAtomSet(p.reach[h])
		for k, other := range waited {
			if k == i || slices.ContainsFunc(p.reach[other], set.overlaps) {
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
