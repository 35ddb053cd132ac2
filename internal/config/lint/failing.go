package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

const (
	// maxSituations is how many situations of a hook are looked at.
	maxSituations = 32
	// maxNamedSituations is how many of them a finding names.
	maxNamedSituations = 3
)

// situation is all that is known of the requests of one operation that a rule covers. It is comparable.
type situation struct {
	operation    admissionregistrationv1.OperationType
	resource     string // empty: any
	subresource  string // "*": any
	noNamespaces bool   // it is in no namespace
}

// situationsOf returns the first situations in which requests match the rules of a hook. more reports whether there are others.
func (b *builtin) situationsOf(h *match.Hook) (all []situation, more bool) {
	for i := range h.Rules() {
		rule := &h.Rules()[i]
		r := b.reachOf(h, rule)
		for _, resource := range rule.Resources {
			s := situation{noNamespaces: r.noNamespaces(resource)}
			s.resource, s.subresource, _ = strings.Cut(resource, "/")
			if s.resource == wildcard {
				s.resource = ""
			}
			for _, operation := range registration.Operations() {
				s.operation = operation
				if operationsOf(operation)&r.operations == 0 || r.operationInVain(operation, []string{resource}) != "" || slices.Contains(all, s) {
					continue
				}
				if len(all) == maxSituations {
					return all, true
				}
				all = append(all, s)
			}
		}
	}
	return all, false
}

// noNamespaces reports whether a resource is in no namespace in any group of the rule. A Namespace is in the namespace of its name.
func (r *reach) noNamespaces(resource string) bool {
	name, _, _ := strings.Cut(resource, "/")
	switch {
	case name == "namespaces":
		return false
	case r.scope == admissionregistrationv1.ClusterScope && name != wildcard:
		return true
	}
	return !r.others && len(r.groups) > 0 && !slices.ContainsFunc(r.groups, func(group string) bool { return !IsClusterScoped(group, name) })
}

// variables are the variables of matchConditions in the situation; all else is unknown.
func (s *situation) variables() (cel.PartialActivation, error) {
	request := map[string]any{"operation": string(s.operation)}
	known := map[string]any{admissioncel.RequestVarName: request, admissioncel.NamespaceVarName: types.NullValue}
	unknown := []*cel.AttributePatternType{cel.AttributePattern(admissioncel.AuthorizerVarName)}
	of := cel.AttributePattern
	for _, field := range []string{"uid", "kind", "requestKind", "requestResource", "name", "userInfo", "dryRun", "options", "object", "oldObject"} {
		unknown = append(unknown, of(admissioncel.RequestVarName).QualString(field))
	}
	if s.resource == "" {
		unknown = append(unknown, of(admissioncel.RequestVarName).QualString("resource"))
	} else {
		request["resource"] = map[string]any{"resource": s.resource}
		for _, field := range []string{"group", "version"} {
			unknown = append(unknown, of(admissioncel.RequestVarName).QualString("resource").QualString(field))
		}
	}
	if !s.noNamespaces {
		unknown = append(unknown, of(admissioncel.RequestVarName).QualString("namespace"))
	}
	for _, field := range []string{"subResource", "requestSubResource"} { // absent without one
		switch s.subresource {
		case "":
		case wildcard:
			unknown = append(unknown, of(admissioncel.RequestVarName).QualString(field))
		default:
			request[field] = s.subresource
		}
	}
	for name, absent := range map[string]bool{
		admissioncel.ObjectVarName:    s.operation == admissionregistrationv1.Delete,
		admissioncel.OldObjectVarName: s.operation == admissionregistrationv1.Create || s.operation == admissionregistrationv1.Connect,
	} {
		if absent {
			known[name] = types.NullValue
		} else {
			unknown = append(unknown, of(name))
		}
	}
	return cel.PartialVars(known, unknown...)
}

// String names the situation for people.
func (s *situation) String() string {
	text := string(s.operation)
	if s.resource != "" {
		text += " of " + s.resource
		if s.subresource != "" {
			text += "/" + s.subresource
		}
	}
	return text
}

// failing finds matchConditions that fail for all requests of some of the situations of a hook, and hooks of whose conditions one is false
// in each of them.
func (c *constants) failing(b *builtin, h *match.Hook) []match.Finding {
	conditions := h.MatchConditions()
	if !slices.ContainsFunc(conditions, func(m admissionregistrationv1.MatchCondition) bool { return dependsOnSituation(m.Expression) }) {
		return nil
	}
	programs := make([]*program, len(conditions))
	for i := range conditions {
		programs[i] = c.program(conditions[i].Expression)
	}
	all, more := b.situationsOf(h)
	reached, failed, causes := 0, make([][]situation, len(conditions)), make([]error, len(conditions))
	for _, s := range all {
		errs, ok := evaluate(programs, &s)
		if !ok {
			continue
		}
		reached++
		for i, err := range errs {
			if err != nil {
				failed[i], causes[i] = append(failed[i], s), cmp.Or(causes[i], err)
			}
		}
	}
	if len(all) > 0 && reached == 0 && !more {
		return []match.Finding{warning(CodeNeverMatches, h.Path(".matchConditions"),
			"for each operation of the rules one of them is false: the hook is never called; mend it, or remove the hook")}
	}
	var findings []match.Finding
	for i := range conditions {
		if len(failed[i]) > 0 {
			findings = append(findings, warning(CodeConditionFails, h.Path(fmt.Sprintf(".matchConditions[%d].expression", i)),
				"it fails for every %s: %v. %s: look first whether there is an object (object != null), an oldObject, or a field (has(request.namespace)); "+
					"namespaceObject is for policies alone", describe(failed[i], reached, more), causes[i], consequence(h)))
		}
	}
	return findings
}

// evaluate returns why each of the conditions fails for all requests of a situation; false if a condition is false for all.
func evaluate(programs []*program, s *situation) ([]error, bool) {
	variables, err := s.variables()
	if err != nil {
		return nil, false
	}
	errs := make([]error, len(programs))
	for i, p := range programs {
		if p == nil {
			continue
		}
		value, failure := p.evaluate(variables)
		if value == types.False {
			return nil, false
		}
		errs[i] = failure
	}
	return errs, true
}

// describe names the situations in which a condition fails, of all that reach it. more is whether others may reach it too.
func describe(failed []situation, reached int, more bool) string {
	if len(failed) == reached && !more {
		return "request"
	}
	var names []string
	for i := range failed {
		names = append(names, failed[i].String())
	}
	if more := len(names) - maxNamedSituations; more > 0 {
		names = append(names[:maxNamedSituations], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", and every ")
}

// consequence is the meaning of a condition that fails.
func consequence(h *match.Hook) string {
	if h.FailsClosed() {
		return "The hook fails closed, so that each of them is refused with 403"
	}
	return "The hook fails open, so that it is called for none of them"
}

// dependsOnSituation leaves out expressions that neither fail nor are false for a whole operation: reading one costs as much as half of
// compiling it.
func dependsOnSituation(expression string) bool {
	return mayBeConstant(expression) || slices.ContainsFunc([]string{"bject", "namespace", "esource", "operation"}, func(word string) bool {
		return strings.Contains(expression, word)
	})
}
