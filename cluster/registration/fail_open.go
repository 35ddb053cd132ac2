package registration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// alwaysFailOpen divides a fail-closed entry: the requests that always fail open in the cluster come by the second of the returned
// entries, whose failures do not count. A matchCondition of each decides, so that a request comes by one of them. The second has all
// rules of the first that bring such requests, in the same way: no request is lost between them. It has none if there is no
// such request, and the first is as it was.
func (p *planner) alwaysFailOpen(e entry) (closed, open entry) {
	closed, open = e, e
	open.name, open.atoms, open.unwanted = match.EntryAlwaysFailOpen, keep(e.atoms, p.mayFailOpen(e)), keep(e.unwanted, p.mayFailOpen(e))
	if len(open.atoms) > 0 {
		closed.failOpen, open.failOpen = p.bypass.FailOpen, p.bypass.FailOpen
	}
	return closed, open
}

// mayFailOpen reports whether requests of an atom, or others that are the same for the API server, may be among those that always
// fail open.
func (p *planner) mayFailOpen(e entry) func(atom) bool {
	return func(a atom) bool {
		return p.bypass != nil && slices.ContainsFunc(p.bypass.FailOpen, func(r admissionregistrationv1.RuleWithOperations) bool {
			return slices.ContainsFunc(r.APIGroups, func(group string) bool {
				return slices.ContainsFunc(r.Resources, func(name string) bool { return e.brings(a, group, name) })
			})
		})
	}
}

// brings reports whether an atom may bring requests of a group to the entry, with a resource as rules name it. Equivalents of it
// may have another group, also one that the plan does not know, and have the same name.
func (e entry) brings(a atom, group, name string) bool {
	resource, sub := splitResource(a[dimResource])
	asked, askedSub := splitResource(name)
	return (e.equivalent || meet(group, a[dimGroup])) && meet(asked, resource) && meet(askedSub, sub) &&
		(resource != wildcard || !match.NamedOnly(group, asked))
}

// failOpenExpression is whether a request is one of those that always fail open, in CEL; empty if there are none.
func failOpenExpression(list []admissionregistrationv1.RuleWithOperations) string {
	var each []string
	for _, r := range list {
		each = append(each, ruleExpression(newCube(r).rule()))
	}
	return strings.Join(each, " || ")
}
