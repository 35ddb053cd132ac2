package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// random makes policies and requests out of few names, so that they meet often. The same seed makes the same.
type random struct {
	*rand.Rand

	configured bool // the params of its policies are in the configuration
}

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 0)), seed%2 == 0} }

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

// some picks one to three.
func some[T any](r random, from ...T) []T {
	var out []T
	for range 1 + r.IntN(3) {
		out = append(out, pick(r, from...))
	}
	return out
}

// in is true once in n cases.
func (r random) in(n int) bool { return r.IntN(n) == 0 }

// bound is a policy and the bindings that put it into force.
type bound struct {
	*admissionregistrationv1.ValidatingAdmissionPolicy

	bindings   []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	configured bool // its params are in the configuration
}

func (r random) policies() (all []bound) {
	for i := range 1 + r.IntN(4) {
		p := bound{ValidatingAdmissionPolicy: r.policy(fmt.Sprintf("p%d.example.com", i)), configured: r.configured}
		for j := range 1 + r.IntN(5) {
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d-%d", i, j)}}
			b.Spec.PolicyName, b.Spec.ValidationActions = p.Name, r.actions()
			b.Spec.ParamRef, b.Spec.MatchResources = r.binding(p.Spec.ParamKind)
			p.bindings = append(p.bindings, b)
		}
		all = append(all, p)
	}
	return all
}

// binding is the part of a binding that policies of both kinds have.
func (r random) binding(params *admissionregistrationv1.ParamKind) (ref *admissionregistrationv1.ParamRef, m *admissionregistrationv1.MatchResources) {
	if params != nil || r.in(20) { // without a kind it is ignored
		ref = r.paramRef()
	}
	if r.in(3) {
		m = r.criteria(4)
	}
	return ref, m
}

// actions are sets that the API server takes, and a set that it refuses.
func (r random) actions() []admissionregistrationv1.ValidationAction {
	const deny, warn, audit = admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit
	return pick(r, []admissionregistrationv1.ValidationAction{deny}, []admissionregistrationv1.ValidationAction{deny},
		[]admissionregistrationv1.ValidationAction{warn}, []admissionregistrationv1.ValidationAction{warn}, []admissionregistrationv1.ValidationAction{audit},
		[]admissionregistrationv1.ValidationAction{deny, audit}, []admissionregistrationv1.ValidationAction{audit, warn},
		[]admissionregistrationv1.ValidationAction{warn, deny, audit})
}

func (r random) policy(name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.MatchConstraints = r.criteria(3)
	if !r.in(3) {
		failure := pick(r, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
		p.Spec.FailurePolicy = &failure
	}
	x := expressions{random: r, variables: r.in(2), namespace: true}
	if x.params = r.in(4); x.params {
		p.Spec.ParamKind = r.paramKind()
	}
	if x.variables {
		p.Spec.Variables = x.declarations()
	}
	costly := x.variables && !x.params && r.in(2)
	if r.in(3) {
		for i, text := range some(r, x.conditions()...) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: text})
		}
		if costly && r.in(4) {
			for i := range 4 {
				p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("d%d", i), Expression: threeQuarters})
			}
		}
	}
	if costly && r.in(2) {
		costs := func(text string) admissionregistrationv1.Validation {
			return admissionregistrationv1.Validation{Expression: text, MessageExpression: pick(r, "", "", `string(`+threeQuarters+`)`)}
		}
		for range 11 + r.IntN(4) {
			p.Spec.Validations = append(p.Spec.Validations, costs(threeQuarters))
		}
		p.Spec.Validations = append(p.Spec.Validations, costs(`false`), costs(`false`))
	}
	for range 1 + r.IntN(3) {
		p.Spec.Validations = append(p.Spec.Validations, r.validation(x))
	}
	if r.in(3) {
		keys := []string{"one", "two", "three"}
		for i, text := range some(r, x.annotations()...) {
			p.Spec.AuditAnnotations = append(p.Spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{Key: keys[i], ValueExpression: text})
		}
		if costly && r.in(4) {
			for i := range 14 {
				p.Spec.AuditAnnotations = append(p.Spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{
					Key: fmt.Sprintf("d%d", i), ValueExpression: `string(` + threeQuarters + `)`,
				})
			}
		}
	}
	return p
}

func (r random) validation(x expressions) admissionregistrationv1.Validation {
	v := admissionregistrationv1.Validation{Expression: pick(r, x.validations()...)}
	if r.in(2) {
		v.Message = pick(r, "it must not be", " with spaces ", "two\nlines", "é")
	}
	if r.in(2) {
		v.MessageExpression = pick(r, x.messages()...)
	}
	if r.in(3) {
		reason := pick(r, metav1.StatusReasonForbidden, metav1.StatusReasonUnauthorized, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)
		v.Reason = &reason
	}
	return v
}

// criteria cover everything but once in n cases.
func (r random) criteria(n int) *admissionregistrationv1.MatchResources {
	m := &admissionregistrationv1.MatchResources{NamespaceSelector: r.selector(), ObjectSelector: r.selector()}
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	m.MatchPolicy = pick(r, nil, &exact, &equivalent, &equivalent)
	switch {
	case !r.in(n):
		m.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")}
	case r.in(2):
		m.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{pick(r,
			rule([]string{"example.com"}, []string{pick(r, "v1", "v1beta1")}, []string{"widgets"}, "*"),
			rule([]string{"apps"}, []string{pick(r, "v1", "v1beta1")}, []string{"deployments", "deployments/scale"}, "*"))}
		m.MatchPolicy = pick(r, &exact, &equivalent, &equivalent)
	default:
		m.ResourceRules = r.rules()
	}
	if r.in(3) {
		m.ResourceRules[0].ResourceNames = some(r, "x", "dev", "other")
	}
	if r.in(4) {
		m.ExcludeResourceRules = r.rules()[:1]
		if r.in(2) {
			m.ExcludeResourceRules[0].ResourceNames = some(r, "x", "dev", "other")
		}
	}
	return m
}

func rule(groups, versions, resources []string, operations ...admissionregistrationv1.OperationType) (n admissionregistrationv1.NamedRuleWithOperations) {
	n.Operations, n.APIGroups, n.APIVersions, n.Resources = operations, groups, versions, resources
	return n
}

func (r random) rules() (rules []admissionregistrationv1.NamedRuleWithOperations) {
	for range 1 + r.IntN(3) {
		n := rule(some(r, "*", "", "apps", "example.com"), some(r, "*", "v1", "v1", "v1beta1"),
			some(r, "*", "*/*", "pods", "pods/*", "pods/exec", "*/status", "namespaces", "nodes", "deployments", "*/scale", "widgets", "gadgets"),
			some[admissionregistrationv1.OperationType](r, "*", "CREATE", "UPDATE", "DELETE", "CONNECT")...)
		if r.in(2) {
			scope := pick(r, admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope)
			n.Scope = &scope
		}
		rules = append(rules, n)
	}
	return rules
}

// selector is empty, or a selector, or now and then none that can be parsed.
func (r random) selector() *metav1.LabelSelector {
	switch {
	case !r.in(4):
		return nil
	case r.in(20):
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Near"}}}
	case r.in(3):
		return &metav1.LabelSelector{MatchLabels: map[string]string{"env": pick(r, "dev", "prod")}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{pick(r,
		metav1.LabelSelectorRequirement{Key: pick(r, "env", "tier", "skip"), Operator: pick(r, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)},
		metav1.LabelSelectorRequirement{Key: "env", Operator: pick(r, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: some(r, "dev", "prod", "")},
	)}}
}

// expressions are the pools from which policies take their expressions.
type expressions struct {
	random

	variables bool // the policy has them
	params    bool // it has a paramKind
	namespace bool // it may read namespaceObject
}

const (
	// quarter costs a quarter of the most that an expression may, in no time.
	quarter = `variables.long.contains(variables.long)`
	// threeQuarters and tooMuch are about that limit.
	threeQuarters = quarter + ` && ` + quarter + ` && ` + quarter
	tooMuch       = threeQuarters + ` && ` + threeQuarters
)

// declarations are variables, of the same names and types in each policy.
func (x expressions) declarations() []admissionregistrationv1.Variable {
	flags := []string{`object != null`, `variables.size > 0`, `object.spec.missing == 1`, `authorizer.requestResource.check("get").allowed()`, tooMuch}
	if x.namespace {
		flags = append(flags, `namespaceObject == null`, `has(namespaceObject.metadata.labels)`)
	}
	return []admissionregistrationv1.Variable{
		{Name: "long", Expression: `"` + strings.Repeat("x", 5000) + `"`},
		{Name: "text", Expression: pick(x.random, `request.name`, `string(object.metadata.name)`, `"é" + request.userInfo.username`, `string(dyn(request).missing)`)},
		{Name: "size", Expression: pick(x.random, `1`, `variables.text.size()`, `1 / request.name.size()`, `int(variables.text)`)},
		{Name: "flag", Expression: pick(x.random, flags...)},
	}
}

// conditions are expressions with a boolean value.
func (x expressions) conditions() []string {
	all := []string{
		`true`, `1 < 2`, `request.operation != "DELETE"`, `object == null || object.metadata.name != ""`, `oldObject == null || has(oldObject.metadata)`,
		`request.userInfo.username == "jane"`, `"ops" in request.userInfo.groups`, `request.userInfo.extra["team"][0] == "a"`,
		`request.resource.version == "v1"`, `request.requestKind.version == request.kind.version`, `request.requestResource.version == "v1"`,
		`request.kind.version == "v1"`, `request.subResource == ""`, `request.dryRun != true`, `request.namespace != "prod"`,
		`has(request.options) && request.options.kind == "CreateOptions"`, `object == null || object.apiVersion.endsWith("v1")`,
		`authorizer.group("").resource("pods").namespace("dev").check("get").allowed()`, `authorizer.path("/open").check("get").allowed()`,
		`authorizer.path("/broken").check("get").allowed()`, `authorizer.path("/broken").check("get").errored()`,
		`authorizer.requestResource.check("update").reason() == ""`, `object.metadata.labels.env == "dev"`, `object.missing.missing == 1`,
	}
	if x.variables {
		all = append(all, `variables.flag`, `variables.size > 1`, `variables.text != "x"`, `variables.flag || variables.size == 1`, threeQuarters, tooMuch)
	}
	if x.namespace && x.in(4) {
		all = append(all, namespaceTexts()...)
	}
	if x.params {
		all = append(all, paramTexts()...)
		all = append(all, paramTexts()...)
	}
	if !x.variables && x.in(6) {
		all = []string{`syntax error`, `"not a bool"`, `nobody.knows`} // types are left unchecked beside variables: Kubernetes' validation has checked them
	}
	return all
}

func (x expressions) validations() []string {
	if x.in(2) {
		return x.conditions()
	}
	all := []string{
		`true`, `false`, `false`, "1 >\n2", ` 1 > 2 `, `object.spec.replicas <= 2`, `object.spec.containers.all(c, c.image.startsWith("main"))`,
		`object.spec.size == "large"`, `object.spec.size < 3`, `1 / object.spec.size > 0`, `dyn(object) == dyn(oldObject)`,
		`oldObject.spec == object.spec`, `object.metadata.generateName == "x-"`, `has(object.metadata.creationTimestamp)`, `has(object.status)`,
		`"stdin" in object`, `object == null`, `oldObject != null`, `request.name == ""`, "object.\nmissing == 1", `[1, 2][request.name.size()] == 1`,
		`quantity("1Gi").isGreaterThan(quantity("1Mi")) && ip.isCanonical("::1")`, `dyn(1) == dyn("1")`, `int(dyn(object).metadata.name) == 1`,
	}
	return all
}

func (x expressions) messages() []string {
	all := []string{
		`"computed"`, `" with spaces "`, `"  "`, `"two\nlines"`, `"ends\n"`, `"é of " + request.userInfo.username`, `string(object.missing)`,
		`string(object.metadata.name)`, `"size " + string(object.spec.size)`, `request.operation`, `string(1 / 0)`,
		`"` + strings.Repeat("m", 300) + `"`,
	}
	switch {
	case x.variables:
		all = append(all, `variables.text`, `string(variables.size)`, `string(variables.flag)`, `string(`+threeQuarters+`)`, `string(`+tooMuch+`)`,
			`variables.long`, `variables.long`, `variables.long`, `variables.long + variables.long`)
	case x.params:
		all = append(all, `params.metadata.name`, `"at most " + string(params.spec.most)`, `string(params.data.most)`)
	default:
		all = append(all, `1`, `syntax error`, `object.metadata.name`, `authorizer.path("/open").check("get").reason()`)
	}
	return all
}

func (x expressions) annotations() []string {
	all := []string{
		`"value"`, `null`, `""`, `" padded "`, `request.operation`, `request.requestKind.version`, `string(object.metadata.name)`, `string(object.missing)`,
		`string(1 / 0)`, `request.userInfo.username + " é"`, `string(authorizer.path("/open").check("get").allowed())`, `string(has(object.spec))`,
		`"two\nlines"`, `string(namespaceObject.metadata.name)`,
	}
	if x.params {
		all = append(all, `string(params.metadata.name)`, `params == null ? "none" : string(dyn(params).kind)`)
	}
	if x.variables {
		all = append(all, `variables.text`, `string(variables.flag)`, `string(variables.size)`, `variables.long`, `variables.long + variables.long`,
			`string(`+threeQuarters+`)`, `string(`+tooMuch+`)`)
	} else {
		all = append(all, `1`, `syntax error`, `object.metadata.name`)
	}
	return all
}

// request is a request as a client makes it: its objects are not defaulted yet.
func (r random) request() *admissionv1.AdmissionRequest { return r.requestOf(pick(r, endpoints()...)) }

func (r random) requestOf(e endpoint) *admissionv1.AdmissionRequest {
	req := &admissionv1.AdmissionRequest{
		Kind:        &admissionv1.GroupVersionKind{Group: e.gvk().Group, Version: e.gvk().Version, Kind: e.kind},
		Resource:    &admissionv1.GroupVersionResource{Group: e.group, Version: e.version, Resource: e.resource},
		SubResource: e.sub, Name: pick(r, "", "dev", "x"), Operation: pick(r, "CREATE", "CREATE", "UPDATE", "UPDATE", "DELETE"),
		UserInfo: &admissionv1.UserInfo{
			Username: pick(r, "jane", "joe"), Groups: some(r, "ops", "dev"), Extra: map[string]*admissionv1.ExtraValue{"team": {Items: some(r, "a", "b")}},
		},
	}
	if dryRun := r.in(2); dryRun || r.in(2) {
		req.DryRun = &dryRun
	}
	if !e.cluster || e.resource == "namespaces" {
		req.Namespace = pick(r, "dev", "dev", "dev", "prod", "bare", "missing")
	}
	if e.kind == "PodExecOptions" {
		req.Operation, req.Object = "CONNECT", written(map[string]any{"stdin": true, "command": []any{"sh"}}, e)
		return req
	}
	if req.Operation != "DELETE" {
		req.Object = written(r.content(e), e)
	}
	if req.Operation != "CREATE" {
		req.OldObject = written(r.content(e), e)
	}
	kind := map[string]string{"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[req.Operation]
	req.Options = &admissionv1.Object{Raw: []byte(`{"kind":"` + kind + `","apiVersion":"meta.k8s.io/v1"}`)}
	return req
}

func (r random) content(e endpoint) map[string]any {
	metadata := map[string]any{"name": pick(r, "x", "7")}
	if r.in(4) {
		metadata = map[string]any{"generateName": "x-"}
	}
	if !r.in(3) {
		metadata["labels"] = pick(r, map[string]string{"env": "dev"}, map[string]string{"env": "prod", "skip": ""}, map[string]string{})
	}
	content := map[string]any{"metadata": metadata}
	switch e.kind {
	case "Pod":
		content["spec"] = map[string]any{"containers": []any{map[string]any{"name": "c", "image": pick(r, "main:1", "other:1")}}}
	case "Deployment":
		content["spec"] = map[string]any{"replicas": 1 + r.IntN(4), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}
	case "Scale":
		content["spec"] = map[string]any{"replicas": 1 + r.IntN(4)}
	case "Widget", "Gadget":
		content["spec"] = map[string]any{"size": pick[any](r, 0, 1, 3, 1.5, "large")}
	}
	return content
}
