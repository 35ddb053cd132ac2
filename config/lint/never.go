package lint

import (
	"fmt"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// neverMatching finds hooks, and parts of them, that no request can match.
func neverMatching(hooks []*match.Hook, about func(*match.Hook) bool) []match.Finding {
	var findings []match.Finding
	var c constants
	for _, h := range hooks {
		if !about(h) {
			continue
		}
		findings = append(findings, rulesInVain(h)...)
		if _, ok := solve(h.NamespaceSelector()); !ok {
			findings = append(findings, warning(CodeNeverMatches, h.Path(".namespaceSelector"), "its requirements exclude each other, so that it "+
				"selects no namespace: the hook is never called for what is in one; mend it, or remove the hook"))
		}
		if _, ok := solve(h.ObjectSelector()); !ok {
			findings = append(findings, warning(CodeNeverMatches, h.Path(".objectSelector"), "its requirements exclude each other, so that it "+
				"selects no object: the hook is never called; mend it, or remove the hook"))
		}
		for i, condition := range h.MatchConditions() {
			if c.isFalse(condition.Expression) {
				findings = append(findings, warning(CodeNeverMatches, h.Path(fmt.Sprintf(".matchConditions[%d].expression", i)),
					"it is false whatever the request: the hook is never called; mend it, or remove the hook"))
			}
		}
	}
	return findings
}

// rulesInVain finds rules that name resources which are never sent to hooks; the first such name of each rule.
func rulesInVain(h *match.Hook) []match.Finding {
	if len(h.Rules()) == 0 {
		return []match.Finding{warning(CodeNeverMatches, h.Path(".rules"),
			"there are no rules, so that the hook is never called: name operations, groups, versions and resources, or remove the hook")}
	}
	var findings []match.Finding
	for i := range h.Rules() {
		for j, resource := range h.Rules()[i].Resources {
			if why := inVain(&h.Rules()[i], resource); why != "" {
				findings = append(findings, warning(CodeNeverMatches, h.Path(fmt.Sprintf(".rules[%d].resources[%d]", i, j)),
					"the hook is never called for %q: %s", resource, why))
				break
			}
		}
	}
	return findings
}
