package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// Expansion are the documents that a Policy stands for in a cluster. They have the name, labels and annotations of the Policy, and the defaults of
// kube-apiserver. The caller owns them.
type Expansion struct {
	// Policy has the rules, and Binding the mode, of a Policy with validations.
	Policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// MutatingPolicy has the changes of a Policy with mutations. MutatingBinding is nil in mode shadow, which Kubernetes does not have.
	MutatingPolicy  *admissionregistrationv1.MutatingAdmissionPolicy
	MutatingBinding *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Expand returns the documents for a cluster; nil if the policy is not in force there. An empty name is a cluster that the policy does not name.
func (p *Policy) Expand(cluster string) *Expansion {
	s := &p.document.Spec
	if !s.AppliesIn(cluster) {
		return nil
	}
	failurePolicy := admissionregistrationv1.Fail
	if s.FailurePolicy != "" {
		failurePolicy = s.FailurePolicy
	}
	if s.Mutates() {
		return p.expandMutations(cluster, &failurePolicy)
	}
	policy := admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta: typeMeta("ValidatingAdmissionPolicy"), ObjectMeta: p.metadata(),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &failurePolicy, MatchConstraints: p.constraints(), MatchConditions: p.conditions, Variables: p.variables(cluster),
			Validations: p.validations,
		},
	}
	binding := admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: typeMeta("ValidatingAdmissionPolicyBinding"), ObjectMeta: p.metadata(),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: p.document.Metadata.Name, ValidationActions: []admissionregistrationv1.ValidationAction{action(s.ModeIn(cluster))},
		},
	}
	return &Expansion{Policy: policy.DeepCopy(), Binding: binding.DeepCopy()}
}

// expandMutations has kube-apiserver invoke the policy again if others change the object after it, unless it overwrites: a value that is made of the
// present one would be made twice.
func (p *Policy) expandMutations(cluster string, failurePolicy *admissionregistrationv1.FailurePolicyType) *Expansion {
	reinvocation := admissionregistrationv1.IfNeededReinvocationPolicy
	if slices.ContainsFunc(p.document.Spec.Mutations, func(m kinds.PolicyMutation) bool { return m.Overwrite }) {
		reinvocation = admissionregistrationv1.NeverReinvocationPolicy
	}
	policy := admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: typeMeta("MutatingAdmissionPolicy"), ObjectMeta: p.metadata(),
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: failurePolicy, MatchConstraints: p.constraints(), MatchConditions: p.conditions, Variables: p.variables(cluster),
			Mutations: p.mutations, ReinvocationPolicy: reinvocation,
		},
	}
	e := &Expansion{MutatingPolicy: policy.DeepCopy()}
	if p.document.Spec.ModeIn(cluster) == kinds.ModeEnforce {
		e.MutatingBinding = (&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			TypeMeta: typeMeta("MutatingAdmissionPolicyBinding"), ObjectMeta: p.metadata(),
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: p.document.Metadata.Name},
		}).DeepCopy()
	}
	return e
}

// Variant is a Policy in one cluster, or in all clusters where it is the same. It is immutable.
type Variant struct {
	// Cluster is the cluster; empty in the variant of the other clusters.
	Cluster string
	// Clusters are the other clusters; empty for all clusters but Except.
	Clusters []string
	// Except are the clusters that have a variant of their own, if Clusters is empty.
	Except []string
	// Mode is the mode there.
	Mode kinds.PolicyMode
	// Parameters is the expression of the variable ParametersVariable.
	Parameters string
}

// AnyCluster is a cluster of the variant; empty for a cluster that the policy does not name.
func (v *Variant) AnyCluster() string {
	if len(v.Clusters) > 0 {
		return v.Clusters[0]
	}
	return v.Cluster
}

// ParametersVariable is the variable of an expansion that has the parameters. In all else the expansions for two clusters have the same policy.
const ParametersVariable = nameParameters

// Variants returns the variants of the policy, at least one: each cluster in which it is in force has exactly one.
func (p *Policy) Variants() []Variant {
	s := &p.document.Spec
	variant := func(cluster string) Variant {
		return Variant{Cluster: cluster, Mode: s.ModeIn(cluster), Parameters: p.parameters(cluster)}
	}
	var all []Variant
	own := s.Differing()
	others := variant("")
	others.Clusters = slices.DeleteFunc(slices.Clone(s.Clusters), func(cluster string) bool { return slices.Contains(own, cluster) })
	if len(s.Clusters) == 0 {
		others.Except = own
	}
	if len(s.Clusters) == 0 || len(others.Clusters) > 0 {
		all = append(all, others)
	}
	for _, cluster := range own {
		all = append(all, variant(cluster))
	}
	return all
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

func (p *Policy) metadata() metav1.ObjectMeta {
	m := &p.document.Metadata
	return metav1.ObjectMeta{Name: m.Name, Labels: m.Labels, Annotations: m.Annotations}
}

func action(mode kinds.PolicyMode) admissionregistrationv1.ValidationAction {
	switch mode {
	case kinds.ModeEnforce:
		return admissionregistrationv1.Deny
	case kinds.ModeWarn:
		return admissionregistrationv1.Warn
	case kinds.ModeShadow:
	}
	return admissionregistrationv1.Audit
}

// constraints are the rules, one for each group and version, and the selectors.
func (p *Policy) constraints() *admissionregistrationv1.MatchResources {
	s := &p.document.Spec
	equivalent, all := admissionregistrationv1.Equivalent, admissionregistrationv1.AllScopes
	m := &admissionregistrationv1.MatchResources{
		MatchPolicy: &equivalent, NamespaceSelector: namespaceSelector(s.Exclude), ObjectSelector: objectSelector(s.Exclude),
	}
	for _, r := range p.resources {
		i := slices.IndexFunc(m.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
			return rule.APIGroups[0] == r.Group && rule.APIVersions[0] == r.Version
		})
		if i < 0 {
			i = len(m.ResourceRules)
			m.ResourceRules = append(m.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: s.EffectiveOperations(),
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{r.Group}, APIVersions: []string{r.Version}, Scope: &all},
			}})
		}
		names := namesOf(r)
		if s.Mutates() || !slices.Contains(s.EffectiveOperations(), admissionregistrationv1.Update) {
			names = names[:1] // the subresources lead to updates of Pods
		}
		m.ResourceRules[i].Resources = append(m.ResourceRules[i].Resources, names...)
	}
	return m
}

// namesOf are the names of a resource in a rule.
func namesOf(r kinds.PolicyResource) []string {
	if r.Subresource != "" {
		return []string{r.Resource + "/" + r.Subresource}
	}
	names := []string{r.Resource}
	if r.Group == "" && r.Resource == "pods" {
		for _, subresource := range kinds.PodSubresources() {
			names = append(names, r.Resource+"/"+subresource)
		}
	}
	return names
}

func namespaceSelector(e *kinds.PolicyExclusion) *metav1.LabelSelector {
	if e == nil || len(e.Namespaces) == 0 {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: e.Namespaces},
	}}
}

// objectSelector has a requirement for each label: an object is selected if it has none of them.
func objectSelector(e *kinds.PolicyExclusion) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	if e == nil {
		return selector
	}
	for _, label := range e.Labels {
		key, value, hasValue := kinds.CutLabel(label)
		requirement := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}
		if hasValue {
			requirement.Operator, requirement.Values = metav1.LabelSelectorOpNotIn, []string{value}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

// excludePrefix begins the names of conditions that exclude requests. The field of PolicyExclusion follows.
const excludePrefix = "exclude-"

func matchConditions(s *kinds.PolicySpec) (all []admissionregistrationv1.MatchCondition) {
	add := func(name, expression string) {
		all = append(all, admissionregistrationv1.MatchCondition{Name: name, Expression: expression})
	}
	if slices.Contains(s.EffectiveOperations(), admissionregistrationv1.Update) {
		add("not-being-deleted", "request.operation != 'UPDATE' || !has(object.metadata.deletionTimestamp)")
	}
	if s.Exclude == nil {
		return all
	}
	if users := s.Exclude.Users; len(users) > 0 {
		add(excludePrefix+"users", fmt.Sprintf("!has(request.userInfo.username) || !(request.userInfo.username in %s)", literal(users)))
	}
	if groups := s.Exclude.Groups; len(groups) > 0 {
		add(excludePrefix+"groups", fmt.Sprintf("!has(request.userInfo.groups) || !request.userInfo.groups.exists(group, group in %s)", literal(groups)))
	}
	return all
}

func (p *Policy) variables(cluster string) (all []admissionregistrationv1.Variable) {
	for _, name := range p.names {
		if name == nameParameters {
			all = append(all, admissionregistrationv1.Variable{Name: name, Expression: p.parameters(cluster)})
			continue
		}
		all = append(all, variable(name, &p.document.Spec, p.resources))
	}
	if p.podPaths {
		all = append(all, variable(namePodPath, &p.document.Spec, p.resources))
	}
	return append(all, p.own...)
}

// parameters is the variable of that name: a map, whose values may have different types.
func (p *Policy) parameters(cluster string) string {
	var entries []string
	for i := range p.document.Spec.Parameters {
		parameter := &p.document.Spec.Parameters[i]
		entries = append(entries, fmt.Sprintf("%s: dyn(%s)", literal(parameter.Name), literal(parameter.ValueIn(cluster))))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// named are the clusters that the policy names, and "" for all others.
func (p *Policy) named() map[string]bool {
	s, names := &p.document.Spec, map[string]bool{"": true}
	for _, cluster := range s.Clusters {
		names[cluster] = true
	}
	for i := range s.Parameters {
		for cluster := range s.Parameters[i].ByCluster {
			names[cluster] = true
		}
	}
	for cluster := range names {
		if !s.AppliesIn(cluster) {
			delete(names, cluster)
		}
	}
	return names
}

// literal is a value of a parameter in CEL.
func literal(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(v)
	case []string:
		items := make([]any, len(v))
		for i := range v {
			items[i] = v[i]
		}
		return literal(items)
	case float64:
		return strconv.FormatFloat(v, 'e', -1, 64) // never as a whole number
	case []any:
		float := slices.ContainsFunc(v, func(item any) bool { _, ok := item.(float64); return ok })
		items := make([]string, len(v))
		for i, item := range v {
			if whole, ok := item.(int64); ok && float {
				item = float64(whole) // the items of a list are of one type
			}
			items[i] = literal(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}
