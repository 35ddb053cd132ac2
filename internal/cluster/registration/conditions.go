package registration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// exclusion is a class of resources that do not come to the mesh.
type exclusion struct {
	name      string // of the matchCondition, with "not-" before it
	groups    []string
	resources []string
	namedOnly bool // they come if a hook names them (match.NamedOnly)
}

// exclusions are resources that wildcards do not bring to the mesh. A cluster writes them all the time, or must write them while the
// mesh is down, or the mesh itself depends on them: leases and events, unless a hook names them; the reviews of identities and
// permissions, which are part of every request (Kubernetes keeps hooks from them from 1.37 on); and the configuration of admission,
// which must stay repairable (Kubernetes never calls hooks for it; SEMANTICS C19).
func exclusions() []exclusion {
	return []exclusion{
		{"leases", []string{"coordination.k8s.io"}, []string{"leases"}, true},
		{"events", []string{"", "events.k8s.io"}, []string{"events"}, true},
		{"identity-reviews", []string{"authentication.k8s.io"}, []string{"selfsubjectreviews", "tokenreviews"}, false},
		{"access-reviews", []string{"authorization.k8s.io"}, []string{
			"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
		}, false},
		{"admission-configurations", []string{"admissionregistration.k8s.io"}, []string{
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
		}, false},
	}
}

// excluded reports whether no request of the atom comes to the mesh, also if a rule names it.
func excluded(a atom) bool {
	resource, _ := splitResource(a[dimResource])
	return slices.ContainsFunc(exclusions(), func(x exclusion) bool {
		return !x.namedOnly && slices.Contains(x.groups, a[dimGroup]) && slices.Contains(x.resources, resource)
	})
}

// namedOnly reports whether the atom names resources that wildcards do not cover, in some group.
func namedOnly(a atom) bool {
	resource, _ := splitResource(a[dimResource])
	return slices.ContainsFunc(exclusions(), func(x exclusion) bool { return x.namedOnly && x.names(a[dimGroup], resource) })
}

// names reports whether rules with a group, which may be a wildcard, and the name of a resource cover the exclusion.
func (x exclusion) names(group, resource string) bool {
	return (group == wildcard || slices.Contains(x.groups, group)) && slices.Contains(x.resources, resource)
}

// expression is the CEL condition that is true for requests of the exclusion.
func (x exclusion) expression() string {
	return fmt.Sprintf("request.resource.group in %s && request.resource.resource in %s", celList(x.groups), celList(x.resources))
}

// meets reports whether the atom covers requests of the exclusion.
func (x exclusion) meets(a atom) bool {
	resource, _ := splitResource(a[dimResource])
	return (a[dimGroup] == wildcard || slices.Contains(x.groups, a[dimGroup])) &&
		(resource == wildcard || slices.Contains(x.resources, resource))
}

// conditions keep out requests that wildcards in the rules cover and the entry must not see.
func (e entry) conditions() []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	not := func(name, expression string) {
		all = append(all, admissionregistrationv1.MatchCondition{Name: "not-" + name, Expression: "!(" + expression + ")"})
	}
	for _, x := range exclusions() {
		byName := func(a atom) bool { return x.namedOnly && namedOnly(a) }
		switch named := keep(e.atoms, func(a atom) bool { return byName(a) && x.meets(a) }); {
		case !slices.ContainsFunc(e.atoms, func(a atom) bool { return x.meets(a) && !byName(a) }):
		case len(named) > 0:
			not(x.name, x.expression()+" && !("+rulesExpression(e.named(x, named))+")")
		default:
			not(x.name, x.expression())
		}
	}
	switch expression := failOpenExpression(e.failOpen); {
	case expression == "":
	case e.name == match.EntryAlwaysFailOpen:
		all = append(all, admissionregistrationv1.MatchCondition{Name: match.EntryAlwaysFailOpen, Expression: expression})
	default:
		not(match.EntryAlwaysFailOpen, expression)
	}
	if len(e.except) > 0 {
		not(match.EntryFailClosed, rulesExpression(e.except))
	}
	if len(e.unwanted) > 0 {
		not("other-versions", rulesExpression(e.unwanted))
	}
	return all
}

const (
	// maxConditions is how many matchConditions Kubernetes accepts of a webhook.
	maxConditions = 64
	// maxSharedBytes bounds the shared conditions of an entry. Their cost stays far below the API server's budget for the matchConditions
	// of a webhook, beyond which they fail.
	maxSharedBytes = 8 << 10
	// maxOwnConditions is how many conditions an entry has beside the shared ones: exclusions, three about other entries, and two of a
	// bypass.
	maxOwnConditions = 10
)

// HasRoomFor reports whether every entry has room for the conditions, if all of its hooks share them (match.Hook.EntryConditions).
func HasRoomFor(conditions []string) bool {
	size := 0
	for _, c := range conditions {
		size += len(c)
	}
	return len(conditions) <= maxConditions-maxOwnConditions && size <= maxSharedBytes
}

// withShared adds to all as many of the conditions that all hooks of the entry share as there is room for. A request that such a condition
// keeps out meets no hook, so no hook can change it: that is right for mutating hooks too.
func (e entry) withShared(all []admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	size := 0
	for i, expression := range sharedConditions(e.hooks) {
		if size += len(expression); size > maxSharedBytes || len(all) == maxConditions {
			break
		}
		all = append(all, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("shared-%d", i+1), Expression: expression})
	}
	return all
}

// sharedConditions are the parts of matchConditions that an API server can decide and that all hooks have.
func sharedConditions(hooks []*match.Hook) []string {
	if len(hooks) == 0 {
		return nil
	}
	return keep(hooks[0].EntryConditions(), func(expression string) bool {
		return !slices.ContainsFunc(hooks[1:], func(h *match.Hook) bool { return !slices.Contains(h.EntryConditions(), expression) })
	})
}

// bypassConditions keep out the users and groups that are exempt in the cluster.
func (p *planner) bypassConditions() []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	if p.bypass == nil {
		return nil
	}
	if users := p.bypass.Users; len(users) > 0 {
		all = append(all, admissionregistrationv1.MatchCondition{
			Name: "not-exempt-users", Expression: "!(has(request.userInfo.username) && request.userInfo.username in " + celList(users) + ")",
		})
	}
	if groups := p.bypass.Groups; len(groups) > 0 {
		all = append(all, admissionregistrationv1.MatchCondition{
			Name: "not-exempt-groups", Expression: "!(has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in " + celList(groups) + "))",
		})
	}
	return all
}

// named are the requests of an exclusion that come to the entry because hooks name it: with matchPolicy Equivalent these are the
// same in each group and version.
func (e entry) named(x exclusion, named []atom) []atom {
	if !e.equivalent {
		return named
	}
	var all []atom
	for _, a := range named {
		for _, group := range x.groups {
			a[dimGroup], a[dimVersion] = group, wildcard
			all = append(all, a)
		}
	}
	return all
}

// rulesExpression is the CEL condition that is true for requests that the atoms cover.
func rulesExpression(list []atom) string {
	var each []string
	for _, r := range rules(list) {
		each = append(each, ruleExpression(r))
	}
	return strings.Join(each, " || ")
}

// ruleExpression is a rule in CEL. A condition gets an AdmissionRequest of Kubernetes, in which an empty
// namespace or subresource is not there at all, and request.resource is the resource that the client asked for, also if
// the entry sees another version (matcher.Match of k8s.io/apiserver's webhook/matchconditions).
func ruleExpression(r admissionregistrationv1.RuleWithOperations) string {
	var all []string
	if len(r.Operations) < len(Operations()) {
		all = append(all, "request.operation in "+celList(r.Operations))
	}
	if !slices.Contains(r.APIGroups, wildcard) {
		all = append(all, "request.resource.group in "+celList(r.APIGroups))
	}
	if !slices.Contains(r.APIVersions, wildcard) {
		all = append(all, "request.resource.version in "+celList(r.APIVersions))
	}
	const isNamespace = `request.resource.group == "" && request.resource.version == "v1" && request.resource.resource == "namespaces"`
	switch *r.Scope {
	case admissionregistrationv1.NamespacedScope:
		all = append(all, "has(request.namespace) && !("+isNamespace+")")
	case admissionregistrationv1.ClusterScope:
		all = append(all, "(!has(request.namespace) || "+isNamespace+")")
	case admissionregistrationv1.AllScopes:
	}
	return "(" + strings.Join(append(all, resourcesExpression(r.Resources)), " && ") + ")"
}

func resourcesExpression(resources []string) string {
	each := make([]string, len(resources))
	for i, r := range resources {
		each[i] = "(" + resourceExpression(splitResource(r)) + ")"
	}
	return "(" + strings.Join(each, " || ") + ")"
}

func resourceExpression(resource, sub string) string {
	var all []string
	if resource != wildcard {
		all = append(all, fmt.Sprintf("request.resource.resource == %q", resource))
	} else {
		for _, x := range exclusions() {
			if x.namedOnly {
				all = append(all, "!("+x.expression()+")")
			}
		}
	}
	switch sub {
	case wildcard:
	case "":
		all = append(all, "!has(request.subResource)")
	default:
		all = append(all, fmt.Sprintf("has(request.subResource) && request.subResource == %q", sub))
	}
	return strings.Join(all, " && ")
}

func celList[T ~string](words []T) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", string(w))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
