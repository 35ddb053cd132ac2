package policy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// explain looks for deviations that explain how the outcomes differ: kube-apiserver is asked again without the things that the mesh leaves out.
func (l *laboratory) explain(c experiment, j *judgement) {
	l.Helper()
	again := func(deviation string, by asked) {
		j.events = append(j.events, deviation)
		j.ask(l, c, by)
	}
	if j.want.Code == http.StatusNotFound {
		again("P5: no namespace", asked{j.asked.plugin.WithoutNamespaces(), j.asked.hooks})
	}
	if j.difference != "" {
		again("P2: a message that is not needed", asked{j.asked.plugin, l.withNeededMessages(c, j.asked)})
	}
}

// withNeededMessages are the policies with the messageExpressions of validations that are false for the request.
func (l *laboratory) withNeededMessages(c experiment, by asked) (all []validating.PolicyHook) {
	l.Helper()
	for i, p := range c.policies {
		binding := &validating.PolicyBinding{}
		binding.Spec.PolicyName, binding.Spec.ValidationActions = p.Name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		silent := c.withMessages(i, make([]bool, len(p.Spec.Validations)))
		silent.Bindings = []*validating.PolicyBinding{binding}
		if p.Spec.ParamKind != nil {
			silent.Bindings = auditsOf(p.bindings)
		}
		j, err := by.plugin.Judge(l.Context(), []validating.PolicyHook{silent}, c.request)
		if err != nil {
			l.Fatal(err)
		}
		needed := make([]bool, len(p.Spec.Validations))
		for _, raw := range j.Failures {
			if f := failuresIn(l, raw)[0]; !strings.HasPrefix(f.Message, "expression '") && !strings.HasPrefix(f.Message, "compilation error: ") {
				needed[f.ExpressionIndex] = true
			}
		}
		all = append(all, c.withMessages(i, needed))
	}
	return all
}

// withMessages is a policy with the messageExpressions of some validations. It is compiled once.
func (w *world) withMessages(i int, of []bool) validating.PolicyHook {
	key := fmt.Sprint(i, of)
	if known, ok := w.variants[key]; ok {
		return known
	}
	p := w.policies[i].DeepCopy()
	for k := range p.Spec.Validations {
		if !of[k] {
			p.Spec.Validations[k].MessageExpression = ""
		}
	}
	w.variants[key] = compilePolicy(p, w.policies[i].bindings)
	return w.variants[key]
}

// compareDenials compares all denials with the denials of kube-apiserver, which names the first alone: it warns of all if the bindings say so.
func (l *laboratory) compareDenials(c experiment, j *judgement) string {
	l.Helper()
	hooks := slices.Clone(j.asked.hooks)
	for i := range hooks {
		hooks[i].Bindings = warnOf(hooks[i].Bindings)
	}
	all, err := j.asked.plugin.Judge(l.Context(), hooks, c.request)
	if err != nil {
		l.Fatal(err)
	}
	want, got := []string{}, []string{}
	seen := map[string]bool{}
	key := func(denial string) string { // bindings of a policy share it
		head, message, _ := strings.Cut(denial, " denied request: ")
		policy, _, _ := strings.Cut(head, " with binding ")
		return policy + message
	}
	var warned []string
	for _, text := range all.Warnings {
		warned = append(warned, strings.Replace(strings.TrimPrefix(text, "Validation failed for "), ": ", " denied request: ", 1))
	}
	for _, text := range j.denials {
		if beyondValidations(text) && !slices.Contains(warned, text) { // it may have the text of a validation
			seen[key(text)] = true
		} else {
			got = append(got, text)
		}
	}
	for _, text := range warned {
		if !seen[key(text)] {
			seen[key(text)] = true
			want = append(want, text)
		}
	}
	if len(strings.Join(j.denials, "")) > 15<<10 { // the last ones have found no space
		want = want[:min(len(want), len(got))]
	}
	return cmp.Diff(want, got)
}

// beyondValidations reports whether a denial is about no validation: kube-apiserver does not warn of it.
func beyondValidations(denial string) bool {
	_, message, _ := strings.Cut(denial, "denied request: ")
	return strings.HasPrefix(message, "failed to configure ") || strings.HasPrefix(message, "expression '") || strings.HasPrefix(message, "compilation error")
}

// auditsOf are bindings with the action Audit.
func auditsOf(bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) (all []*validating.PolicyBinding) {
	for _, b := range bindings {
		b = b.DeepCopy()
		b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		all = append(all, b)
	}
	return all
}

// warnOf are the bindings that deny, with the action Warn.
func warnOf(bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) (all []*validating.PolicyBinding) {
	for _, b := range bindings {
		if slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) {
			b = b.DeepCopy()
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
			all = append(all, b)
		}
	}
	return all
}

// shrink looks for a smaller case that still differs.
func (l *laboratory) shrink(c experiment, j judgement) (experiment, judgement) {
	l.Helper()
	return shrunk(c, j, func(c experiment) [][]bound { return reduced(c.policies) }, func(smaller []bound) (experiment, judgement, bool) {
		tried := experiment{world: l.world(smaller), request: c.request}
		found := l.judge(tried)
		return tried, found, found.difference != ""
	})
}

// shrunk takes things away from a case, one at a time, while the case still differs.
func shrunk[Case, Judgement, Policies any](
	c Case, j Judgement, reduced func(Case) []Policies, try func(Policies) (c Case, j Judgement, differs bool),
) (Case, Judgement) {
	attempts := 0
	for smaller := true; smaller; {
		smaller = false
		for _, candidate := range reduced(c) {
			if attempts++; attempts > maxShrinks {
				return c, j
			}
			if tried, found, differs := try(candidate); differs {
				c, j, smaller = tried, found, true
				break
			}
		}
	}
	return c, j
}

// reduced are the policies with one thing less.
func reduced(all []bound) (smaller [][]bound) {
	for i := range all {
		if len(all) > 1 {
			smaller = append(smaller, slices.Delete(slices.Clone(all), i, i+1))
		}
	}
	for i := range all {
		for j := range all[i].bindings {
			if len(all[i].bindings) > 1 {
				smaller = append(smaller, with(all, i, func(p *bound) { p.bindings = slices.Delete(p.bindings, j, j+1) }))
			}
			if all[i].bindings[j].Spec.ParamRef != nil {
				smaller = append(smaller, with(all, i, func(p *bound) { p.bindings[j].Spec.ParamRef = nil }))
			}
			if all[i].bindings[j].Spec.MatchResources != nil {
				smaller = append(smaller, with(all, i, func(p *bound) { p.bindings[j].Spec.MatchResources = nil }))
			}
		}
		smaller = append(smaller, fewer(all, i, func(p *bound) *[]admissionregistrationv1.MatchCondition { return &p.Spec.MatchConditions })...)
		smaller = append(smaller, fewer(all, i, func(p *bound) *[]admissionregistrationv1.Validation { return &p.Spec.Validations })...)
		smaller = append(smaller, fewer(all, i, func(p *bound) *[]admissionregistrationv1.AuditAnnotation { return &p.Spec.AuditAnnotations })...)
		smaller = append(smaller, fewer(all, i, func(p *bound) *[]admissionregistrationv1.NamedRuleWithOperations {
			return &p.Spec.MatchConstraints.ExcludeResourceRules
		})...)
		for k := range all[i].Spec.Validations {
			if all[i].Spec.Validations[k].MessageExpression != "" {
				smaller = append(smaller, with(all, i, func(p *bound) { p.Spec.Validations[k].MessageExpression = "" }))
			}
		}
		for _, selector := range []string{"namespace", "object"} {
			m := all[i].Spec.MatchConstraints
			if selector == "namespace" && len(m.NamespaceSelector.MatchExpressions)+len(m.NamespaceSelector.MatchLabels) > 0 {
				smaller = append(smaller, with(all, i, func(p *bound) { p.Spec.MatchConstraints.NamespaceSelector = nil }))
			}
			if selector == "object" && len(m.ObjectSelector.MatchExpressions)+len(m.ObjectSelector.MatchLabels) > 0 {
				smaller = append(smaller, with(all, i, func(p *bound) { p.Spec.MatchConstraints.ObjectSelector = nil }))
			}
		}
	}
	return smaller
}

// fewer leaves out one item of a list of a policy.
func fewer[P interface{ Clone() P }, T any](all []P, i int, list func(p *P) *[]T) (smaller [][]P) {
	for k := range *list(&all[i]) {
		smaller = append(smaller, with(all, i, func(p *P) { *list(p) = slices.Delete(*list(p), k, k+1) }))
	}
	return smaller
}

// with is a copy of policies of which one is changed.
func with[P interface{ Clone() P }](all []P, i int, change func(p *P)) []P {
	all = slices.Clone(all)
	all[i] = all[i].Clone()
	change(&all[i])
	return all
}

// Clone copies a policy and its bindings.
func (p bound) Clone() bound {
	c := bound{ValidatingAdmissionPolicy: p.DeepCopy(), configured: p.configured}
	for _, b := range p.bindings {
		c.bindings = append(c.bindings, b.DeepCopy())
	}
	return c
}
