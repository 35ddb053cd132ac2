package registration

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// The codes of findings. Package lint has the same code for the same danger of a hook. Tools match on them; messages are for people.
const (
	// CodeWildcard: a hook's rules cover every resource, so the entry sends all writes of the cluster to the mesh.
	CodeWildcard = "wildcard"
	// CodeExcluded: a hook names resources that never come to the mesh; it is not called for them.
	CodeExcluded = "never-matches"
	// CodeOwnNamespace: no namespace is exempt as the mesh's own, and fail-closed hooks are in force. For information, where
	// package lint warns of a hook.
	CodeOwnNamespace = "danger-own-namespace"
	// CodeTimeout: an entry gets less time than its hooks may need.
	CodeTimeout = "timeout-budget"
	// CodeWildcards: entries have wildcards where the rules of hooks have none, since the hooks name more than a plan has room for.
	CodeWildcards = "entry-wildcards"
	// CodeSystem: an entry brings writes of kube-system that none of its hooks selects (WiderEntries). Package lint reports it.
	CodeSystem = "danger-kube-system"
)

func (p *planner) inspect(hooks []*match.Hook) {
	for _, h := range hooks {
		p.wildcards(h)
		p.excluded(h)
	}
	if p.options.OwnNamespace == "" && slices.ContainsFunc(hooks, (*match.Hook).FailsClosed) {
		p.findings = append(p.findings, match.Finding{
			Severity: match.SeverityInfo, Code: CodeOwnNamespace, Path: "cluster " + p.cluster,
			Message: "no namespace is exempt: if the mesh runs in this cluster, name its namespace, or it cannot start once it is down",
		})
	}
}

func (p *planner) warnf(h *match.Hook, code, format string, args ...any) {
	p.findings = append(p.findings, match.Finding{
		Severity: match.SeverityWarning, Code: code, Path: fmt.Sprintf("%s webhook %q", config.KeyOf(h), h.ID.Name),
		Message: fmt.Sprintf(format, args...),
	})
}

// wildcards reports rules that cover every group or every resource. Wildcards in versions and operations are harmless.
func (p *planner) wildcards(h *match.Hook) {
	for _, r := range h.Rules() {
		everyGroup := slices.Contains(r.APIGroups, wildcard)
		i := slices.IndexFunc(r.Resources, func(s string) bool { return s == wildcard || strings.HasPrefix(s, "*/") })
		if i < 0 && !everyGroup {
			continue
		}
		what := "every group"
		if i >= 0 {
			what = fmt.Sprintf("resources %q of %s", r.Resources[i], groups(r.APIGroups))
		}
		p.warnf(h, CodeWildcard, "a rule covers %s: the API server sends the mesh all such writes, also the writes of controllers; "+
			"the hook is not called for leases and events, which a rule has to name; name the groups and resources that the hook is about", what)
		return
	}
}

func groups(names []string) string {
	switch {
	case slices.Contains(names, wildcard):
		return "every group"
	case slices.Equal(names, []string{""}):
		return "the core group"
	}
	return fmt.Sprintf("groups %q", names)
}

// maxNamesInVain bounds the resources that a finding names.
const maxNamesInVain = 10

// excluded reports resources that the hook names in vain.
func (p *planner) excluded(h *match.Hook) {
	var names []string
	for _, r := range h.Rules() {
		groups := keep(r.APIGroups, func(group string) bool {
			return slices.ContainsFunc(exclusions(), func(x exclusion) bool { return !x.namedOnly && slices.Contains(x.groups, group) })
		})
		slices.Sort(groups)
		for _, group := range slices.Compact(groups) { // few, however many the rule names
			for _, resource := range r.Resources {
				if a := (atom{dimGroup: group, dimResource: resource}); excluded(a) {
					names = append(names, qualified(a))
				}
			}
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	names, more := slices.Compact(names), ""
	if n := len(names) - maxNamesInVain; n > 0 {
		names, more = names[:maxNamesInVain], fmt.Sprintf(" and %d more", n)
	}
	p.warnf(h, CodeExcluded, "the hook is not called for %s%s: a cluster has to be able to write these whatever state the mesh is in",
		strings.Join(names, ", "), more)
}

// selects reports whether a selector selects labels. A nil selector selects all labels; an invalid one selects none.
func selects(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && parsed.Matches(set)
}

// qualified is a resource with its group, as kubectl writes it.
func qualified(a atom) string {
	if a[dimGroup] == "" {
		return a[dimResource]
	}
	return a[dimResource] + "." + a[dimGroup]
}
