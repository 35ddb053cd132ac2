package lint

import (
	"fmt"
	"iter"
	"runtime"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

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
		runtime.Gosched() // hooks of one author take seconds, and reviews go first
		findings = append(findings, b.rulesInVain(h)...)
		if _, ok := solve(h.NamespaceSelector()); !ok {
			findings = append(findings, warning(CodeNeverMatches, h.Path(".namespaceSelector"), "its requirements exclude each other, so that it "+
				"selects no namespace: the hook is never called for an object in a namespace; mend it, or remove the hook"))
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
		r := b.reachOf(h, rule)
		say := func(field string, texts iter.Seq2[int, string]) (said bool) {
			for j, text := range texts {
				if text != "" {
					findings = append(findings, warning(CodeNeverMatches, h.Path(fmt.Sprintf(".rules[%d].%s[%d]", i, field, j)), "%s", text))
					return true
				}
			}
			return false
		}
		named := say("apiGroups", each(rule.APIGroups, groupInVain))
		say("apiVersions", each(rule.APIVersions, versionInVain))
		if say("resources", each(rule.Resources, r.inVain)) {
			continue
		}
		if !named && len(rule.APIGroups) > 1 {
			say("apiGroups", each(rule.APIGroups, func(group string) string { return r.groupInVain(group, rule.Resources) }))
		}
		if len(rule.Operations) > 1 {
			say("operations", each(rule.Operations, func(o admissionregistrationv1.OperationType) string { return r.operationInVain(o, rule.Resources) }))
		}
	}
	return findings
}

// each yields the index of each item of a list, and the text about it.
func each[T any](list []T, about func(T) string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i, item := range list {
			if !yield(i, about(item)) {
				return
			}
		}
	}
}

// groupInVain returns that no request has a group, why, and the remedy; empty if one may have it.
func groupInVain(group string) string {
	if why := noGroup(group); why != "" {
		return fmt.Sprintf("the hook is never called for the group %q: %s", group, why)
	}
	return ""
}

// versionInVain is groupInVain for a version.
func versionInVain(version string) string {
	if at := strings.LastIndex(version, "/"); at >= 0 {
		return fmt.Sprintf("the hook is never called for the version %q: a version has no group in it: write apiVersions: [%s]", version, version[at+1:])
	}
	return ""
}
