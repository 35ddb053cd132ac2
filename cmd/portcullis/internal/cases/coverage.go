package cases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// coverage collects the values of expressions over all cases.
type coverage struct {
	points []*point
	byRule map[rule][]*point
}

// rule is an expression of a policy.
type rule struct{ origin, policy, field string }

// point is an event of an expression that some case should lead to.
type point struct {
	object  *config.Object
	field   string // of the document
	event   policy.Event
	covered bool
}

// Gap is a rule that the cases do not cover.
type Gap struct {
	// File and Line are the place of the rule.
	File string `json:"file"`
	Line int    `json:"line"`
	// Policy is KIND/NAME of the policy.
	Policy string `json:"policy"`
	// Field is the expression.
	Field string `json:"field"`
	// Missing is the event that no case leads to.
	Missing string `json:"missing"`
}

// String is the gap as a compiler writes it.
func (g Gap) String() string {
	return fmt.Sprintf("%s:%d: %s: %s %s", g.File, g.Line, g.Policy, g.Field, g.Missing)
}

// Coverage is the part of the rules that cases cover. A validation counts twice: it has to be true, and false. A condition has to be false, a selector of a
// policy to leave a request out, and a mutation to change an object. A binding that is for some requests alone has to meet one, and to leave one out.
type Coverage struct {
	// Points and Covered are numbers of events.
	Points  int `json:"points"`
	Covered int `json:"covered"`
	// Gaps are the missing events, by file and line.
	Gaps []Gap `json:"gaps"`
}

// Percent is the covered part.
func (c *Coverage) Percent() float64 {
	if c.Points == 0 {
		return 100
	}
	return 100 * float64(c.Covered) / float64(c.Points)
}

// add adds the rules of policies, each once.
func (c *coverage) add(p *policies) {
	if c.byRule == nil {
		c.byRule = map[rule][]*point{}
	}
	for i := range p.objects {
		o := &p.objects[i]
		for _, pt := range pointsOf(o) {
			r := rule{o.Origin(), o.Key.String(), pt.rule}
			known := slices.ContainsFunc(c.byRule[r], func(other *point) bool { return other.event == pt.event })
			if known {
				continue
			}
			made := &point{object: o, field: pt.field, event: pt.event}
			c.points, c.byRule[r] = append(c.points, made), append(c.byRule[r], made)
		}
	}
}

// target is a point of a policy: the rule as it is observed, and its field in the document.
type target struct {
	rule, field string
	event       policy.Event
}

func pointsOf(o *config.Object) (all []target) {
	validations := func(n int) {
		for i := range n {
			field := fmt.Sprintf("validations[%d]", i)
			all = append(all, target{"." + field, "spec." + field, policy.True}, target{"." + field, "spec." + field, policy.False})
		}
	}
	mutations := func(n int) {
		for i := range n {
			field := fmt.Sprintf("mutations[%d]", i)
			all = append(all, target{"." + field, "spec." + field, policy.Changed})
		}
	}
	conditions := func(n int) {
		for i := range n {
			field := fmt.Sprintf("matchConditions[%d]", i)
			all = append(all, target{"." + field, "spec." + field, policy.False})
		}
	}
	switch {
	case o.Short != nil:
		validations(len(o.Short.Spec.Validations))
		mutations(len(o.Short.Spec.Mutations))
		all = append(all, exclusions(o)...)
	case o.Policy != nil:
		all = selections(o.Policy.Spec.MatchConstraints)
		conditions(len(o.Policy.Spec.MatchConditions))
		validations(len(o.Policy.Spec.Validations))
	case o.MutatingPolicy != nil:
		all = selections(o.MutatingPolicy.Spec.MatchConstraints)
		conditions(len(o.MutatingPolicy.Spec.MatchConditions))
		mutations(len(o.MutatingPolicy.Spec.Mutations))
	case o.Binding != nil:
		all = boundRequests(o.Binding.Spec.MatchResources)
	case o.MutatingBinding != nil:
		all = boundRequests(o.MutatingBinding.Spec.MatchResources)
	}
	return all
}

// selections are the points of the requests that a policy leaves out although its rules cover them.
func selections(m *admissionregistrationv1.MatchResources) (all []target) {
	if m == nil {
		return nil
	}
	for _, s := range []struct {
		selector *metav1.LabelSelector
		skip     string
	}{{m.NamespaceSelector, match.SkipNamespaceSelector}, {m.ObjectSelector, match.SkipObjectSelector}} {
		if !selectsAll(s.selector) {
			all = append(all, target{s.skip, "spec.matchConstraints." + s.skip, policy.False})
		}
	}
	if len(m.ExcludeResourceRules) > 0 {
		all = append(all, target{match.SkipExcluded, "spec.matchConstraints." + match.SkipExcluded, policy.False})
	}
	return all
}

// boundRequests are the points of the matchResources of a binding; none if it is for all requests.
func boundRequests(m *admissionregistrationv1.MatchResources) []target {
	if m == nil || len(m.ResourceRules)+len(m.ExcludeResourceRules) == 0 && selectsAll(m.NamespaceSelector) && selectsAll(m.ObjectSelector) {
		return nil
	}
	const field = "spec.matchResources"
	return []target{{field, field, policy.Bound}, {field, field, policy.Unbound}}
}

func selectsAll(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// exclusions are the points of the requests that a Policy excludes. Users and groups are conditions of its expansion, which has others of its own.
func exclusions(o *config.Object) (all []target) {
	e := o.Short.Spec.Exclude
	if e == nil {
		return nil
	}
	if len(e.Namespaces) > 0 {
		all = append(all, target{match.SkipNamespaceSelector, "spec.exclude.namespaces", policy.False})
	}
	if len(e.Labels) > 0 {
		all = append(all, target{match.SkipObjectSelector, "spec.exclude.labels", policy.False})
	}
	return append(all, excludedUsers(o)...)
}

func excludedUsers(o *config.Object) (all []target) {
	var cluster string
	if len(o.Short.Spec.Clusters) > 0 {
		cluster = o.Short.Spec.Clusters[0]
	}
	e := o.Expandable.Expand(cluster)
	var conditions []admissionregistrationv1.MatchCondition
	if e.Policy != nil {
		conditions = e.Policy.Spec.MatchConditions
	} else {
		conditions = e.MutatingPolicy.Spec.MatchConditions
	}
	for i, condition := range conditions {
		if name, ok := strings.CutPrefix(condition.Name, "exclude-"); ok {
			all = append(all, target{fmt.Sprintf(".matchConditions[%d]", i), "spec.exclude." + name, policy.False})
		}
	}
	return all
}

// observe counts an event.
func (c *coverage) observe(p *policies, id string, of policy.Observation) {
	switch {
	case of.Binding != "":
		kind, _, _ := strings.Cut(id, "/")
		id, of.Field = kind+"Binding/"+of.Binding, "spec.matchResources"
	case of.Field == "":
		return
	}
	for i := range p.objects {
		if o := &p.objects[i]; o.Key.String() == id {
			for _, point := range c.byRule[rule{o.Origin(), id, of.Field}] {
				point.covered = point.covered || point.event == of.Event
			}
		}
	}
}

// skipped counts the policies that leave a request alone by a selector.
func (c *coverage) skipped(p *policies, outcomes []*admissionv1.HookOutcome) {
	for _, o := range outcomes {
		switch reason := o.GetReason(); reason {
		case match.SkipNamespaceSelector, match.SkipObjectSelector, match.SkipExcluded:
			c.observe(p, o.GetConfiguration(), policy.Observation{Field: reason, Event: policy.False})
		}
	}
}

// Coverage is the coverage of all suites so far.
func (r *Runner) Coverage() *Coverage {
	c := &Coverage{Points: len(r.coverage.points), Gaps: []Gap{}}
	for _, p := range r.coverage.points {
		if p.covered {
			c.Covered++
			continue
		}
		missing := map[policy.Event]string{
			policy.True: "was never true", policy.False: "was never false", policy.Changed: "never changed an object",
			policy.Bound: "never met a request", policy.Unbound: "met every request",
		}[p.event]
		if p.event == policy.False && !strings.Contains(p.field, "validations") {
			missing = "never excluded a request"
		}
		c.Gaps = append(c.Gaps, Gap{p.object.File, p.object.LineOf(p.field), p.object.Key.String(), p.field, missing})
	}
	slices.SortStableFunc(c.Gaps, func(a, b Gap) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line)
	})
	return c
}
