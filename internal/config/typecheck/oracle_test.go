package typecheck

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// kubernetes is the type checker of kube-controller-manager, with objects as expressions see them (evaluated).
func kubernetes(t testing.TB) *validating.TypeChecker {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	for resource, kind := range kindsOf() {
		mapper.AddSpecific(kind, resource, resource, meta.RESTScopeNamespace)
	}
	return &validating.TypeChecker{SchemaResolver: evaluatedSchemas{published(t)}, RestMapper: mapper}
}

type evaluatedSchemas struct{ of *publishedSchemas }

func (e evaluatedSchemas) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	s, err := e.of.ResolveSchema(kind)
	if err != nil {
		return nil, err
	}
	out := evaluated(s)
	return &out, nil
}

var (
	issue    = regexp.MustCompile(`ERROR: <input>:(\d+):(\d+): (.*)`)
	typeName = regexp.MustCompile(`\b([A-Z][A-Za-z]+)\d+\b`)              // kube-apiserver adds a time
	place    = regexp.MustCompile(`^.* Kind=\w+: line \d+, column \d+: `) // with the kind
)

// theirs are the findings of Kubernetes about an expression: for each kind an error with its place.
func theirs(c *validating.TypeChecker, p *admissionregistrationv1.ValidatingAdmissionPolicy, expression string) (all []string) {
	for _, r := range c.CheckExpression(c.CreateContext(p), expression) {
		if r.Issues == nil {
			panic(r.Err)
		}
		for _, found := range issue.FindAllStringSubmatch(r.Issues.Error(), -1) {
			all = append(all, fmt.Sprintf("%s: line %s, column %s: %s", r.GVK, found[1], found[2], typeName.ReplaceAllString(found[3], "$1")))
		}
	}
	slices.Sort(all)
	return all
}

// ours are our findings about the expression of a field.
func ours(warnings []Warning, field string) (all []string) {
	for _, w := range warnings {
		for _, kind := range w.Kinds {
			for found := range strings.SplitSeq(w.Message, "; ") {
				if w.Field == field {
					all = append(all, fmt.Sprintf("%s: %s", kind, found))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func withoutPlaces(all []string) (out []string) {
	for _, one := range all {
		kind, found, _ := strings.Cut(one, ": line ")
		_, found, _ = strings.Cut(found, ": ")
		out = append(out, kind+": "+found)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestPoliciesAreCheckedAsKubernetesDoes compares random policies. To Kubernetes a variable with an object may have any type: the expressions
// that read variables are compared with the same expressions in which the text of each variable stands in its place.
func TestPoliciesAreCheckedAsKubernetesDoes(t *testing.T) {
	citest.Sequential(t)
	their, our := kubernetes(t), New(Builtin{})
	r := rand.New(rand.NewPCG(3, 1))
	compared, found := 0, 0
	for range 60 {
		p := randomPolicy(r, our)
		checked, ok := our.Check(t.Context(), ofValidating(p))
		if !ok {
			our = New(Builtin{})
			checked, _ = our.Check(t.Context(), ofValidating(p))
		}
		inlined := inline(p)
		sound := true
		for i := range p.Spec.Variables {
			sound = sound && len(ours(checked, fmt.Sprintf("variables[%d]", i))) == 0
		}
		for i, v := range p.Spec.Validations {
			got := ours(checked, fmt.Sprintf("validations[%d]", i))
			compared, found = compared+1, found+len(got)
			if len(p.Spec.Variables) == 0 {
				if want := theirs(their, p, v.Expression); !slices.Equal(got, want) {
					t.Fatalf("%s\n%s\ngot  %q\nwant %q", rules(p), v.Expression, got, want)
				}
				continue
			}
			for _, want := range theirs(their, p, v.Expression) {
				at := place.FindString(want)
				if !slices.ContainsFunc(got, func(one string) bool { return strings.HasPrefix(one, at) }) {
					t.Fatalf("%s\n%s\n%+v\ngot  %q\nmisses %q", rules(p), v.Expression, p.Spec.Variables, got, want)
				}
			}
			if sound {
				if want := withoutPlaces(theirs(their, p, inlined[i])); !slices.Equal(withoutPlaces(got), want) {
					t.Fatalf("%s\n%s\n%s\ngot  %q\nwant %q", rules(p), v.Expression, inlined[i], withoutPlaces(got), want)
				}
			}
		}
	}
	t.Logf("compared %d expressions with %d errors", compared, found)
	if compared < 100 || found < 100 {
		t.Errorf("compared %d expressions with %d errors", compared, found)
	}
}

func rules(p *admissionregistrationv1.ValidatingAdmissionPolicy) string {
	var all []string
	for _, rule := range p.Spec.MatchConstraints.ResourceRules {
		all = append(all, fmt.Sprint(rule.APIGroups, rule.APIVersions, rule.Resources))
	}
	return strings.Join(all, ", ")
}

// ofValidating are the expressions that Kubernetes checks, and the variables.
func ofValidating(p *admissionregistrationv1.ValidatingAdmissionPolicy) *Policy {
	out := &Policy{Constraints: p.Spec.MatchConstraints, Params: p.Spec.ParamKind}
	for i, v := range p.Spec.Variables {
		out.Expressions = append(out.Expressions, Expression{Field: fmt.Sprintf("variables[%d]", i), Text: v.Expression, Variable: v.Name})
	}
	for i, v := range p.Spec.Validations {
		out.Expressions = append(out.Expressions, Expression{Field: fmt.Sprintf("validations[%d]", i), Text: v.Expression})
	}
	return out
}

// inline returns the validations with the text of each variable in its place.
func inline(p *admissionregistrationv1.ValidatingAdmissionPolicy) (all []string) {
	texts := map[string]string{}
	replace := func(text string) string {
		for name, of := range texts {
			text = strings.ReplaceAll(text, "variables."+name, "("+of+")")
		}
		return text
	}
	for _, v := range p.Spec.Variables {
		texts[v.Name] = replace(v.Expression)
	}
	for _, v := range p.Spec.Validations {
		all = append(all, replace(v.Expression))
	}
	return all
}

// randomPolicy is a policy about one or several kinds, some of which are not known.
func randomPolicy(r *rand.Rand, c *Checker) *admissionregistrationv1.ValidatingAdmissionPolicy {
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	m := &admissionregistrationv1.MatchResources{}
	pick := func(from ...[]string) []string { return from[r.IntN(len(from))] }
	for range 1 + r.IntN(2) {
		rule := admissionregistrationv1.NamedRuleWithOperations{}
		switch r.IntN(4) {
		case 0:
			rule.APIGroups, rule.APIVersions = pick([]string{""}, []string{"", "example.com"}), pick([]string{"v1"}, []string{"v1"}, []string{"*"})
			rule.Resources = pick([]string{"pods"}, []string{"services", "pods/status"}, []string{"secrets", "configmaps"}, []string{"nothing"}, []string{"*"})
		case 1:
			rule.APIGroups, rule.APIVersions = []string{"apps"}, pick([]string{"v1"}, []string{"v1", "v3"})
			rule.Resources = pick([]string{"deployments"}, []string{"statefulsets", "deployments"}, []string{"controllerrevisions", "daemonsets"})
		case 2:
			rule.APIGroups, rule.APIVersions = []string{"networking.k8s.io", "batch"}, []string{"v1"}
			rule.Resources = pick([]string{"ingresses"}, []string{"cronjobs", "jobs"}, []string{"networkpolicies", "ingresses"})
		default:
			rule.APIGroups, rule.APIVersions = []string{"rbac.authorization.k8s.io", "autoscaling"}, pick([]string{"v1"}, []string{"v1", "v2"})
			rule.Resources = pick([]string{"horizontalpodautoscalers"}, []string{"roles"}, []string{"rolebindings", "horizontalpodautoscalers"})
		}
		m.ResourceRules = append(m.ResourceRules, rule)
	}
	p.Spec.MatchConstraints = m
	if r.IntN(3) == 0 {
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: pick([]string{"ConfigMap"}, []string{"Nothing"})[0]}
	}
	roots := []string{"object", "object", "oldObject"}
	if p.Spec.ParamKind != nil {
		roots = append(roots, "params")
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"} // whose fields are named, right or not
	if targets := c.targets(m); len(targets) > 0 {
		kind = targets[r.IntN(len(targets))].kind
	}
	g := generator{r, c, kind}
	for i := range r.IntN(3) {
		name := fmt.Sprintf("v%d", i)
		text := g.path(roots[r.IntN(len(roots))])
		p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{Name: name, Expression: text})
		roots = append(roots, "variables."+name, "variables."+name)
	}
	for range 1 + r.IntN(3) {
		p.Spec.Validations = append(p.Spec.Validations, admissionregistrationv1.Validation{Expression: g.expression(roots)})
	}
	return p
}

// generator makes expressions that are right for a kind, and expressions that are not.
type generator struct {
	*rand.Rand

	checker *Checker
	kind    schema.GroupVersionKind
}

// path selects fields at random: mostly fields that there are.
func (g generator) path(root string) string {
	kind, text := g.kind, root
	if root == "params" {
		kind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	}
	typed, err := g.checker.typeOf(kind)
	if err != nil {
		panic(err)
	}
	of := typed.DeclType
	for range 1 + g.IntN(4) {
		switch {
		case of == nil:
			return text
		case of.IsObject():
			var names []string
			for name := range of.Fields {
				names = append(names, name)
			}
			slices.Sort(names)
			name := names[g.IntN(len(names))]
			if slices.Contains(names, "spec") && g.IntN(2) == 0 {
				name = "spec"
			}
			of = of.Fields[name].Type
			if g.IntN(12) == 0 {
				name += "x"
			}
			text += "." + name
		case of.IsList():
			of, text = of.ElemType, text+"[0]"
		case of.IsMap():
			of, text = of.ElemType, text+"['k']"
		default:
			return text
		}
	}
	return text
}

// expression is a condition about one or two paths.
func (g generator) expression(roots []string) string {
	path := func() string { return g.path(roots[g.IntN(len(roots))]) }
	one := path()
	switch g.IntN(9) {
	case 0:
		return one + " == " + path()
	case 1:
		return one + " != null"
	case 2:
		return one + " == 'text'"
	case 3:
		return one + " > 3"
	case 4:
		return one + ".all(x, x == 'text')"
	case 5:
		return one + ".exists(x, has(x.name) && x.name.startsWith('a'))"
	case 6:
		if !strings.Contains(one, ".") || strings.HasSuffix(one, "]") {
			return "string(" + one + ") == ''"
		}
		return "has(" + one + ") && " + one + ".matches('x')"
	case 7:
		return "timestamp(" + one + ") < timestamp('2020-01-01T00:00:00Z')\n  || size(" + path() + ") == 2"
	default:
		return one + ".orValue(1) == 2 || request.operatio == 'x' || " + path() + ".?x.orValue('y') == 'y'"
	}
}

// TestWhereKubernetesIsWrong has expressions about which Kubernetes warns though they are right, and the other way round: its types differ from the
// types of the objects that it evaluates.
func TestWhereKubernetesIsWrong(t *testing.T) {
	their := kubernetes(t)
	their.SchemaResolver = published(t)
	for _, test := range []struct{ group, resource, expression, theirs, ours string }{
		{"", "pods", "object.metadata.creationTimestamp.startsWith('2026')", "found no matching overload for 'startsWith' applied to 'timestamp.(string)'", ""},
		{"", "pods", "object.metadata.creationTimestamp.getFullYear() > 2000", "", "found no matching overload for 'getFullYear' applied to 'string.()'"},
		{"", "secrets", "object.data.all(k, object.data[k].startsWith('a'))", "found no matching overload for 'startsWith' applied to 'bytes.(string)'", ""},
		{"apps", "controllerrevisions", "object.data.spec != null", "undefined field 'spec'", ""},
		{"", "pods", "object.spec.containers.all(c, has(c.resources.limits))", "undefined field 'limits'", ""},
		{"", "pods", "authorizer.requestResource.check('get').allowed()", "unexpected failed resolution of 'kubernetes.authorization.Authorizer'", ""},
	} {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		rule := admissionregistrationv1.NamedRuleWithOperations{}
		rule.APIGroups, rule.APIVersions, rule.Resources = []string{test.group}, []string{"v1"}, []string{test.resource}
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}}
		p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: test.expression}}
		found, _ := New(Builtin{}).Check(t.Context(), ofValidating(p))
		for who, c := range map[string]struct {
			got  []string
			want string
		}{
			"theirs": {theirs(their, p, test.expression), test.theirs},
			"ours":   {ours(found, "validations[0]"), test.ours},
		} {
			if got := strings.Join(c.got, "; "); (got != "") != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("%s, %s: got %q, want %q", test.expression, who, got, c.want)
			}
		}
	}
}
