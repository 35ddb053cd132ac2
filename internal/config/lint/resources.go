package lint

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// wildcard stands for everything in a rule.
const wildcard = "*"

// reach is how far a rule reaches, beside its resources.
type reach struct {
	builtin    *builtin
	groups     []string // that are built in, each once
	others     bool     // other groups too, of which nothing is known
	all        bool     // the rule has the wildcard: groups are all that are built in
	operations operations
	scope      admissionregistrationv1.ScopeType
	labels     labelDemand
}

// labelDemand is how an objectSelector depends on labels.
type labelDemand int

const (
	anyLabels  labelDemand = iota // there is no objectSelector
	someLabels                    // there is one, which objects without labels may meet
	ownLabels                     // a label has to be there
)

func (b *builtin) reachOf(h *match.Hook, rule *admissionregistrationv1.RuleWithOperations) reach {
	r := reach{builtin: b, scope: admissionregistrationv1.AllScopes, operations: operationsOf(rule.Operations...)}
	if rule.Scope != nil {
		r.scope = *rule.Scope
	}
	if s := h.ObjectSelector(); s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		r.labels = someLabels
		if wanted, ok := solve(s); ok && len(wanted) > 0 {
			r.labels = ownLabels
		}
	}
	seen := map[string]bool{}
	if r.all = slices.Contains(rule.APIGroups, wildcard); r.all {
		r.groups = b.groups
		return r
	}
	for _, group := range rule.APIGroups {
		switch known := b.byGroup[group] != nil; {
		case !known:
			r.others = r.others || noGroup(group) == ""
		case !seen[group]:
			seen[group] = true
			r.groups = append(r.groups, group)
		}
	}
	return r
}

func operationsOf(all ...admissionregistrationv1.OperationType) operations {
	var set operations
	for _, o := range all {
		switch o {
		case admissionregistrationv1.Create:
			set |= creates
		case admissionregistrationv1.Update:
			set |= updates
		case admissionregistrationv1.Delete:
			set |= deletes
		case admissionregistrationv1.Connect:
			set |= connects
		case admissionregistrationv1.OperationAll:
			set |= creates | updates | deletes | connects
		}
	}
	return set
}

// String names the operations for people.
func (o operations) String() string {
	var names []string
	for i, name := range []string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
		if o&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return cmp.Or(listed(names), "no operation")
}

// noGroup returns why no API has a group, and the remedy; empty if one may.
func noGroup(group string) string {
	name, version, versioned := strings.Cut(group, "/")
	switch {
	case versioned:
		return fmt.Sprintf("a group has no version in it: write apiGroups: [%s], apiVersions: [%s]", name, version)
	case group == coreGroup:
		return `the core group has no name: write apiGroups: [""]`
	case regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`).MatchString(group):
		return fmt.Sprintf(`it is a version: write apiGroups: [""], apiVersions: [%s], if it is the core group`, group)
	case strings.ToLower(group) != group:
		return "groups are in lower case: " + strings.ToLower(group)
	}
	return ""
}

// inVain returns that no request ever matches a resource of a rule, why, and the remedy; empty if a request may match.
func (r *reach) inVain(resource string) string {
	never := fmt.Sprintf("the hook is never called for %q: ", resource)
	name, sub, _ := strings.Cut(resource, "/")
	switch {
	case strings.ToLower(resource) != resource:
		lower := strings.ToLower(name)
		return never + "resources are in lower case and in the plural, as in the paths of the API: " + cmp.Or(r.plural(lower), lower)
	case r.others || len(r.groups) == 0: // Nothing is known, or the groups have findings.
		return ""
	case r.all && name == wildcard: // Resources that are not built in match too.
		return ""
	case r.all:
		never = fmt.Sprintf("the hook is never called for %q, unless an API of others has it: ", resource)
	}
	sought := r.seek(name, sub)
	if !sought.named {
		if why := r.unknown(name, sought.exempt); why != "" {
			return never + why
		}
		return ""
	}
	switch {
	case sought.matches:
		return ""
	case sought.ownLabels:
		return fmt.Sprintf("the hook is hardly ever called for %q: the objectSelector sees the labels of the object that the client sends, and not those "+
			"of the resource: select by a matchCondition, or by a namespaceSelector", resource)
	case !sought.served:
		return never + fmt.Sprintf("there is no such subresource, but %s", cmp.Or(listed(sought.subresources()), "none"))
	case sought.operations&r.operations == 0:
		return never + fmt.Sprintf("the API has %s of it, and the rule is for %s", sought.operations, r.operations)
	case sought.inScope:
		return never + "objects that are sent to connect have no labels, and the objectSelector asks for them: select by a matchCondition, or by a namespaceSelector"
	case r.scope == admissionregistrationv1.ClusterScope:
		return never + "it is in namespaces, and the scope of the rule is Cluster: write scope: Namespaced"
	}
	return never + "it is in no namespace, and the scope of the rule is Namespaced: write scope: Cluster"
}

// operationInVain returns that no resource of a rule has an operation; empty if one may have it.
func (r *reach) operationInVain(operation admissionregistrationv1.OperationType, resources []string) string {
	alone := *r
	alone.operations = operationsOf(operation)
	for _, resource := range resources {
		if alone.inVain(resource) == "" {
			return ""
		}
	}
	return fmt.Sprintf("the hook is never called for %s: the API has it of no resource of the rule", operation)
}

// groupInVain returns that a group has nothing that a rule's wildcards match; empty if it may have, or if the rule names resources: these
// are of one group each, where a rule has more.
func (r *reach) groupInVain(group string, resources []string) string {
	if r.all || r.builtin.byGroup[group] == nil {
		return ""
	}
	alone := *r
	alone.groups, alone.others = []string{group}, false
	for _, resource := range resources {
		if !strings.HasPrefix(resource, wildcard) || alone.inVain(resource) == "" {
			return ""
		}
	}
	return fmt.Sprintf("the hook is never called for the group %q: no request for %s in it matches the rule", group, strings.Join(resources, ", "))
}

// sought are the findings about a resource in the groups of a rule.
type sought struct {
	exempt     bool            // hooks never see it
	named      bool            // hooks may see it
	all        map[string]bool // its subresources
	served     bool            // the subresource of the rule
	operations operations      // of that
	inScope    bool            // with an operation and in the scope of the rule
	ownLabels  bool            // and of these only objects with labels of their own, which the objectSelector would have to meet
	matches    bool            // and a request may match
}

// subresources are those that the resource has.
func (s *sought) subresources() []string {
	delete(s.all, "")
	return slices.Sorted(maps.Keys(s.all))
}

func (r *reach) seek(name, sub string) sought {
	s := sought{all: map[string]bool{}}
	for _, group := range r.groups {
		for found, resource := range r.builtin.named(group, name) {
			if exempt(group, found) {
				s.exempt = true
				continue
			}
			s.named = true
			r.seekSubresource(&s, resource, sub)
		}
	}
	return s
}

func (r *reach) seekSubresource(s *sought, of *resource, sub string) {
	namespaced := r.scope == admissionregistrationv1.AllScopes || of.namespaced == (r.scope == admissionregistrationv1.NamespacedScope)
	for name, x := range of.subresources {
		if s.all[name] = true; sub != wildcard && name != sub {
			continue
		}
		s.served = true
		s.operations |= x.operations
		meets := x.operations & r.operations
		if meets == 0 || !namespaced {
			continue
		}
		s.inScope = true
		switch {
		case r.labels == anyLabels:
			s.matches = true
		case meets == connects: // Its options have no metadata: matchObject of k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object.
		case x.foreign && r.labels == ownLabels:
			s.ownLabels = true
		default:
			s.matches = true
		}
	}
}

// unknown returns why a resource is none of the groups of a rule; empty if it may be.
func (r *reach) unknown(name string, hidden bool) string {
	homes := r.builtin.homes(name)
	plural := r.plural(name)
	switch {
	case hidden:
		return "hooks never see it, since they could lock out their own repair: remove it from the rule"
	case len(homes) > 0:
		if homes[0] == "" {
			return `it is in the core group: write apiGroups: [""]`
		}
		return fmt.Sprintf("it is in the group %s: write apiGroups: [%[1]s]", homes[0])
	case plural != "":
		return "resources are in the plural, as in the paths of the API: write " + plural
	}
	return "" // A later release may have it.
}

// plural is the resource of which a name is the singular; empty if there is none.
func (r *reach) plural(name string) string {
	for _, candidate := range []string{name + "s", name + "es", strings.TrimSuffix(name, "y") + "ies"} {
		if len(r.builtin.homes(candidate)) > 0 {
			return candidate
		}
	}
	return ""
}

// exempt reports whether hooks see no object of a resource: match goes by the kinds of the first ones.
func exempt(group, name string) bool {
	if group != "admissionregistration.k8s.io" {
		return match.IsIdentityOrAccessReview(group, name)
	}
	switch name {
	case "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
		return true
	}
	return false
}
