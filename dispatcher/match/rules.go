package match

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

// wildcard stands for everything in a rule.
const wildcard = "*"

// maxCombinations is more than any limit of Combinations, and small enough to be added up.
const maxCombinations = 1 << 40

// Combinations is how many combinations of group, version, resource, operation and scope rules name, by the lengths of their lists. More
// than 2^40 count as 2^40. Wildcards stand for four operations and for two scopes.
func Combinations(rules []admissionregistrationv1.RuleWithOperations) int {
	n := 0
	for i := range rules {
		r := &rules[i]
		operations, scopes := len(r.Operations), 1
		if slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
			operations = int(operationOther)
		}
		if r.Scope == nil || *r.Scope == admissionregistrationv1.AllScopes {
			scopes = 2
		}
		of := operations * scopes
		for _, length := range []int{len(r.APIGroups), len(r.APIVersions), len(r.Resources)} {
			of = min(of*length, maxCombinations) // a list has fewer than 2^22 items
		}
		n = min(n+of, maxCombinations)
	}
	return n
}

// covers reports whether the rules of the hook cover the request, and as which resource. That is the requested resource if any rule names it. Else,
// with matchPolicy Equivalent, the first rule that names an equivalent decides, and the first equivalent that it names counts (ShouldCallHook;
// SEMANTICS C13). The error refuses a review that reaches the hook by a resource of unknown kind, or may reach it by equivalents that are not known.
func (c *Criteria) covers(r *request) (equivalent *conversion.ResourceKind, ok bool, err *apierrors.StatusError) {
	if c.coversResource(r, r.requested.Resource) {
		return r.requested, true, nil
	}
	if c.MatchPolicy != admissionregistrationv1.Equivalent {
		return nil, false, nil
	}
	equivalents, unknown := r.versions()
	if unknown != nil && c.mayCover(r) {
		return nil, false, apierrors.NewInternalError(fmt.Errorf(
			"%s has matchPolicy Equivalent, and the equivalents of %s are not known: %w", c.owner, r.requested.Resource, unknown))
	}
	if equivalent = c.equivalent(r, equivalents); equivalent == nil {
		return nil, false, nil
	}
	if equivalent.Kind.Empty() {
		return nil, false, apierrors.NewInternalError(fmt.Errorf("unable to convert to %v: unknown kind", equivalent.Resource))
	}
	return equivalent, true, nil
}

// equivalent is the version by which the rules cover the request: earlier rules first, then earlier equivalents; nil for none.
func (c *Criteria) equivalent(r *request, equivalents []conversion.ResourceKind) *conversion.ResourceKind {
	for i := range c.rules {
		for j := range equivalents {
			if equivalents[j].Resource != r.requested.Resource && c.mismatch(i, r, equivalents[j].Resource) == "" {
				return &equivalents[j]
			}
		}
	}
	return nil
}

// mayCover reports whether the rules could cover an equivalent of the resource. Equivalents have one name, in whatever
// group and version: Kubernetes makes no others.
func (c *Criteria) mayCover(r *request) bool {
	every := []string{wildcard}
	return slices.ContainsFunc(c.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		rule.APIGroups, rule.APIVersions, rule.Scope = every, every, nil
		return mismatch(&rule, r, r.requested.Resource) == ""
	})
}

// Covers reports whether a rule names the resource of a request, in its version, and its operation. Names, selectors and conditions are not looked at.
func (c *Criteria) Covers(a *Attributes) bool {
	return slices.ContainsFunc(c.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return mismatch(&rule, a.request, a.requested.Resource) == ""
	})
}

func (c *Criteria) coversResource(r *request, resource schema.GroupVersionResource) bool {
	for i := range c.rules {
		if c.mismatch(i, r, resource) == "" {
			return true
		}
	}
	return false
}

// mismatch is the first field of the rule that does not cover the operation of the request on resource; empty when the
// rule covers it. It is Matcher.Matches of k8s.io/apiserver's predicates/rules (SEMANTICS C15), but for resources that have to be
// named (NamedOnly; docs/deviations.md, D11).
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
	case !coversSubresource(rule.Resources, resource, r.req.GetSubResource()):
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

func coversSubresource(resources []string, resource schema.GroupVersionResource, subresource string) bool {
	return slices.ContainsFunc(resources, func(r string) bool {
		res, sub, _ := strings.Cut(r, "/")
		return (res == resource.Resource || res == wildcard && !NamedOnly(resource.Group, resource.Resource)) &&
			(sub == wildcard || sub == subresource)
	})
}

// NamedOnly reports whether hooks see requests about a resource only if a rule names it, so that wildcards do not cover it.
// Leases keep nodes and leaders alive and are written all the time; events are written by the thousand, while something else
// happens. Who writes "every resource" does not mean to have the cluster stop for want of these.
func NamedOnly(group, resource string) bool {
	switch resource {
	case "leases":
		return group == "coordination.k8s.io"
	case "events":
		return group == "" || group == "events.k8s.io"
	}
	return false
}
