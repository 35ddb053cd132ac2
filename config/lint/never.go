package lint

import (
	"fmt"
	"strings"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// neverMatching finds hooks, and parts of them, that no request can match, and conditions that always fail.
func neverMatching(hooks []*match.Hook, about func(*match.Hook) bool) []match.Finding {
	var findings []match.Finding
	var c constants
	b := newBuiltin()
	for _, h := range hooks {
		if !about(h) {
			continue
		}
		findings = append(findings, b.rulesInVain(h)...)
		if _, ok := solve(h.NamespaceSelector()); !ok {
			findings = append(findings, warning(CodeNeverMatches, h.Path(".namespaceSelector"), "its requirements exclude each other, so that it "+
				"selects no namespace: the hook is never called for what is in one; mend it, or remove the hook"))
		}
		if _, ok := solve(h.ObjectSelector()); !ok {
			findings = append(findings, warning(CodeNeverMatches, h.Path(".objectSelector"), "its requirements exclude each other, so that it "+
				"selects no object: the hook is never called; mend it, or remove the hook"))
		}
		isFalse := false
		for i, condition := range h.MatchConditions() {
			if c.isFalse(condition.Expression) {
				isFalse = true
				findings = append(findings, warning(CodeNeverMatches, h.Path(fmt.Sprintf(".matchConditions[%d].expression", i)),
					"it is false whatever the request: the hook is never called; mend it, or remove the hook"))
			}
		}
		if !isFalse {
			findings = append(findings, c.failing(b, h)...)
		}
	}
	return findings
}

// rulesInVain finds rules that name resources which are never sent to hooks, the first such name of each rule, and groups, versions and
// operations that no request has.
func (b *builtin) rulesInVain(h *match.Hook) []match.Finding {
	if len(h.Rules()) == 0 {
		return []match.Finding{warning(CodeNeverMatches, h.Path(".rules"),
			"there are no rules, so that the hook is never called: name operations, groups, versions and resources, or remove the hook")}
	}
	var findings []match.Finding
	for i := range h.Rules() {
		rule := &h.Rules()[i]
		say := func(field string, j int, text string) bool {
			if text != "" {
				findings = append(findings, warning(CodeNeverMatches, h.Path(fmt.Sprintf(".rules[%d].%s[%d]", i, field, j)), "%s", text))
			}
			return text != ""
		}
		for j, group := range rule.APIGroups {
			if why := noGroup(group); why != "" && say("apiGroups", j, fmt.Sprintf("the hook is never called for the group %q: %s", group, why)) {
				break
			}
		}
		for j, version := range rule.APIVersions {
			if strings.Contains(version, "/") && say("apiVersions", j, fmt.Sprintf("the hook is never called for the version %q: "+
				"a version has no group in it: write apiVersions: [%s]", version, version[strings.LastIndex(version, "/")+1:])) {
				break
			}
		}
		r := b.reachOf(h, rule)
		whole := true
		for j, resource := range rule.Resources {
			if whole = !say("resources", j, r.inVain(resource)); !whole {
				break
			}
		}
		for j, operation := range rule.Operations {
			if whole && len(rule.Operations) > 1 && say("operations", j, r.operationInVain(operation, rule.Resources)) {
				break
			}
		}
	}
	return findings
}
