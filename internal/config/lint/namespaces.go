package lint

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// namespacesUnknown finds hooks that select by the labels of namespaces, for clusters without a source of namespaces. It
// reports a hook also if only selects the Cluster and not the hook.
func namespacesUnknown(hooks []*match.Hook, objects []config.Object, about func(*match.Hook) bool, only func(config.Key) bool) []match.Finding {
	var silent, asked []string // clusters
	for i := range objects {
		if o := &objects[i]; o.Cluster != nil && isSilent(&o.Cluster.Spec) {
			silent = append(silent, o.Name)
			if only(o.Key) {
				asked = append(asked, o.Name)
			}
		}
	}
	slices.Sort(silent)
	slices.Sort(asked)
	var findings []match.Finding
	for _, h := range hooks {
		clusters := asked
		if about(h) {
			clusters = silent
		}
		if len(clusters) == 0 || !selectsByNamespace(h) {
			continue
		}
		if clusters = served(h, clusters); len(clusters) == 0 {
			continue
		}
		consequence := "each review of such a request is refused with 500, whatever the failurePolicy"
		if h.Route.Shadow {
			consequence = "the hook is not called for such a request"
		}
		findings = append(findings, warning(CodeNoNamespaces, h.Path(".namespaceSelector"), "it needs the labels of the namespace that a request is "+
			"in, and no source has the namespace labels of cluster %s: %s; give the Cluster document spec.kubeconfig or spec.namespaces, or name other "+
			"clusters in a HookRoute", listed(clusters), consequence))
	}
	return findings
}

// isSilent reports whether a cluster has no source of namespaces.
func isSilent(spec *kinds.ClusterSpec) bool { return spec.Kubeconfig == "" && spec.Namespaces == nil }

// served returns the clusters, of some sorted ones, whose reviews a hook sees. The result may be the argument.
func served(h *match.Hook, clusters []string) []string {
	if len(h.Route.Clusters) == 0 {
		return clusters
	}
	var found []string
	for _, name := range h.Route.Clusters {
		if _, ok := slices.BinarySearch(clusters, name); ok {
			found = append(found, name)
		}
	}
	return found
}

// selectsByNamespace reports whether the labels of a namespace have to be asked of the cluster, for some request that the
// rules of a hook cover.
func selectsByNamespace(h *match.Hook) bool {
	s := h.NamespaceSelector()
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return false
	}
	return slices.ContainsFunc(h.Rules(), func(rule admissionregistrationv1.RuleWithOperations) bool {
		return needsNamespace(rule, match.ByName(s))
	})
}

// needsNamespace reports whether a rule covers objects in a namespace, unless the rule selects it by its name, or covers
// namespaces that are not written: a written one shows its labels itself (SEMANTICS C16).
func needsNamespace(rule admissionregistrationv1.RuleWithOperations, byName bool) bool {
	clusterScoped := rule.Scope != nil && *rule.Scope == admissionregistrationv1.ClusterScope
	onlyWrites := !slices.ContainsFunc(rule.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o != admissionregistrationv1.Create && o != admissionregistrationv1.Update
	})
	groups := slices.Compact(slices.Sorted(slices.Values(rule.APIGroups)))
	core := slices.Contains(groups, "") || slices.Contains(groups, wildcard)
	for _, resource := range rule.Resources {
		name, subresource, _ := strings.Cut(resource, "/")
		if core && (name == "namespaces" || name == wildcard) && (subresource != "" || !onlyWrites) {
			return true
		}
	}
	return !byName && !clusterScoped && slices.ContainsFunc(groups, func(group string) bool {
		return slices.ContainsFunc(rule.Resources, func(resource string) bool {
			name, _, _ := strings.Cut(resource, "/")
			return !IsClusterScoped(group, name)
		})
	})
}
