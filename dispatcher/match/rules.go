package match

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wildcard stands for everything in a rule.
const wildcard = "*"

// covers reports whether the rules of the hook cover the request, exactly or through the conversion that the API
// server has already made for the entry that led here.
func (h *Hook) covers(a *Attributes) bool {
	if h.coversResource(a.request, a.original.Resource) {
		return true
	}
	// Other equivalents of the resource come in here once the cluster says which there are (SEMANTICS C13).
	return a.converted() && h.MatchPolicy == admissionregistrationv1.Equivalent && h.coversResource(a.request, a.came.Resource)
}

// coversResource reports whether any rule covers the operation of the request on resource.
func (h *Hook) coversResource(r *request, resource schema.GroupVersionResource) bool {
	for i := range h.rules {
		if mismatch(&h.rules[i], r, resource) == "" {
			return true
		}
	}
	return false
}

// mismatch is the first field of the rule that does not cover the operation of the request on resource; empty when the
// rule covers it. It is Matcher.Matches of k8s.io/apiserver's predicates/rules (SEMANTICS C15).
func mismatch(rule *admissionregistrationv1.RuleWithOperations, r *request, resource schema.GroupVersionResource) string {
	switch {
	case !coversScope(rule.Scope, r.namespaced(resource)):
		return "scope"
	case !coversOperation(rule.Operations, r.req.GetOperation()):
		return "operations"
	case !coversName(rule.APIGroups, resource.Group):
		return "apiGroups"
	case !coversName(rule.APIVersions, resource.Version):
		return "apiVersions"
	case !coversSubresource(rule.Resources, resource.Resource, r.req.GetSubResource()):
		return "resources"
	}
	return ""
}

func coversScope(scope *admissionregistrationv1.ScopeType, namespaced bool) bool {
	if scope == nil {
		return true
	}
	switch *scope {
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	case admissionregistrationv1.AllScopes:
		return true
	}
	return false
}

func coversOperation(operations []admissionregistrationv1.OperationType, operation string) bool {
	return slices.ContainsFunc(operations, func(o admissionregistrationv1.OperationType) bool {
		return o == admissionregistrationv1.OperationAll || string(o) == operation
	})
}

func coversName(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return n == wildcard || n == name })
}

func coversSubresource(resources []string, resource, subresource string) bool {
	return slices.ContainsFunc(resources, func(r string) bool {
		res, sub, _ := strings.Cut(r, "/")
		return (res == wildcard || res == resource) && (sub == wildcard || sub == subresource)
	})
}
