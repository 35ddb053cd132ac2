package registration

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

const (
	// maxReach bounds the requests that all hooks of a cluster cover, with the equivalents of those that their rules name.
	maxReach = 3 * config.MaxTotalCombinations
	// maxObjectBytes bounds the bytes of rules, conditions and addresses in an object: etcd takes 1.5 MiB of it.
	maxObjectBytes = 1 << 20
	// maxExpressionBytes bounds a condition: an API server takes 100,000 characters.
	maxExpressionBytes = 100_000
)

// planWithin plans with the names in rules, if that has room: a configuration within the limits of package config has, unless many of
// its hooks name many versions of the same, or its entries are larger than an API server takes. Else the rules with the most names get
// wildcards, the same for all purposes of a plan: entries are wider then, and no hook loses a request. most bounds the combinations of one
// rule (wider); a plan with 0 always has room, since its cost is in proportion to the number of rules.
func planWithin[T any](plan func(most int) (T, bool)) T {
	for most := config.MaxCombinations; ; most /= 8 {
		if planned, ok := plan(most); ok || most == 0 {
			return planned
		}
	}
}

// resolve finds the requests that hooks of the cluster cover. It sets tooMany, and stops, where they are more than there is room for:
// it counts the names in rules first.
func (p *planner) resolve(serving []*match.Hook) {
	named := 0
	for _, h := range serving {
		named += match.Combinations(wider(h.Rules(), p.most))
	}
	if p.tooMany = p.most > 0 && named > config.MaxTotalCombinations; p.tooMany {
		return
	}
	p.written, p.reach = make(map[*match.Hook][]atom, len(serving)), make(map[*match.Hook][]atom, len(serving))
	for _, h := range serving {
		p.written[h] = keep(atoms(wider(h.Rules(), p.most)), func(a atom) bool { return !excluded(a) })
	}
	p.families, p.tooMany = p.newFamilies(serving)
	room := maxReach
	for _, h := range serving {
		p.reach[h] = p.reachOf(h)
		if room -= len(p.reach[h]); room < 0 && p.most > 0 {
			p.tooMany = true
			return
		}
	}
}

// reachOf are the requests that a hook is called for: those that its rules name and, with matchPolicy Equivalent, the
// equivalents of those (SEMANTICS C13).
func (p *planner) reachOf(h *match.Hook) []atom {
	all := p.written[h]
	if isEquivalent(h) {
		all = append(all[:len(all):len(all)], p.families.equivalents(all)...)
	}
	return all
}

// fits reports whether an API server takes the objects, as far as rules, conditions and addresses decide.
func (r *Registration) fits() bool {
	mutating, validating := 0, 0
	for i := range r.Mutating.Webhooks {
		w := &r.Mutating.Webhooks[i]
		mutating += bytesOf(w.Rules, w.MatchConditions) + len(*w.ClientConfig.URL)
	}
	for i := range r.Validating.Webhooks {
		w := &r.Validating.Webhooks[i]
		validating += bytesOf(w.Rules, w.MatchConditions) + len(*w.ClientConfig.URL)
	}
	return max(mutating, validating) <= maxObjectBytes
}

// bytesOf are about the bytes of rules and conditions in an object; more than any object has where a condition is too long.
func bytesOf(rules []admissionregistrationv1.RuleWithOperations, conditions []admissionregistrationv1.MatchCondition) (n int) {
	const rest = 100 // of a rule, or a condition
	for i := range rules {
		for _, words := range [][]string{rules[i].APIGroups, rules[i].APIVersions, rules[i].Resources} {
			for _, word := range words {
				n += len(word) + len(`"",`)
			}
		}
		n += rest
	}
	for i := range conditions {
		if n += rest + len(conditions[i].Expression); len(conditions[i].Expression) > maxExpressionBytes {
			return maxObjectBytes + 1
		}
	}
	return n
}

// widened reports the wildcards that the hooks got.
func (p *planner) widened() {
	if p.most == config.MaxCombinations {
		return
	}
	p.findings = append(p.findings, match.Finding{
		Severity: match.SeverityWarning, Code: CodeWildcards, Path: "cluster " + p.cluster,
		Message: fmt.Sprintf("hooks name more groups, versions and resources than entries have room for, so each rule with more than %d combinations has "+
			"wildcards in the entries, and hooks that select other namespaces share them: the API server sends the mesh more writes, and fail-closed "+
			"entries refuse more while the mesh is down: "+
			"use wildcards in the rules, or remove hooks", p.most),
	})
}
