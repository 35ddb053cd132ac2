package registration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// alwaysFailOpen divides a fail-closed entry: the requests that always fail open in the cluster come by the entry open, whose failures do
// not count. A matchCondition decides which of the two entries brings a request. open has all rules of closed that bring such requests, in
// the same way: no request is lost between them. Without such a request open has no rules, and closed equals e.
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

// brings reports whether an atom may bring requests of a group to the entry, with a resource as rules name it. Equivalent resources may
// have another group, known to the plan or not, and the same name.
func (e entry) brings(a atom, group, name string) bool {
	resource, sub := splitResource(a[dimResource])
	asked, askedSub := splitResource(name)
	return (e.equivalent || meet(group, a[dimGroup])) && meet(asked, resource) && meet(askedSub, sub) &&
		(resource != wildcard || !match.NamedOnly(group, asked))
}

// failOpenExpression is the CEL condition that is true for requests that always fail open; empty if there are none.
func failOpenExpression(list []admissionregistrationv1.RuleWithOperations) string {
	var each []string
	for _, r := range list {
		each = append(each, ruleExpression(newCube(r).rule()))
	}
	return strings.Join(each, " || ")
}
