package lint

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// wildcardsInVain finds rules whose wildcards would cover, in kube-apiserver, resources that wildcards do not cover here
// (match.NamedOnly, and Secrets for initializers); the first such rule of each hook.
func wildcardsInVain(hooks []*match.Hook, about func(*match.Hook) bool) []match.Finding {
	var findings []match.Finding
	for _, h := range hooks {
		if !about(h) {
			continue
		}
		for i := range h.Rules() {
			if missing := notNamed(h, &h.Rules()[i]); len(missing) > 0 {
				findings = append(findings, warning(CodeWildcard, h.Path(fmt.Sprintf(".rules[%d].resources", i)), "the hook is not called for %s, "+
					"which a wildcard does not stand for: name them in a rule if it is to be", strings.Join(missing, " and ")))
				break
			}
		}
	}
	return findings
}

// notNamed are the resources that wildcards of a rule would cover and no rule of the hook names.
func notNamed(h *match.Hook, rule *admissionregistrationv1.RuleWithOperations) []string {
	if !slices.Contains(rule.Resources, wildcard) && !slices.Contains(rule.Resources, "*/*") {
		return nil
	}
	var missing []string
	all := []string{"leases", "events"}
	if h.Initializes() {
		all = append(all, "secrets") // of the core group
	}
	for _, name := range all {
		covered := slices.ContainsFunc(rule.APIGroups, func(g string) bool {
			return g == wildcard || match.NamedOnly(g, name) || name == "secrets" && g == ""
		})
		named := slices.ContainsFunc(h.Rules(), func(r admissionregistrationv1.RuleWithOperations) bool { return slices.Contains(r.Resources, name) })
		if covered && !named {
			missing = append(missing, name)
		}
	}
	return missing
}
