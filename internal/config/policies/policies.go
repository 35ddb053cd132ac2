// Package policies expands documents of kind Policy into ValidatingAdmissionPolicies or MutatingAdmissionPolicies and their bindings. It is pure, and
// evaluates no policy: an expansion is evaluated as any other policy of Kubernetes.
package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// MaxExpansion bounds each expression of an expansion that is made of lists of a Policy, in bytes.
const MaxExpansion = 16 << 10

// Compiler checks Policies. It may be used concurrently.
type Compiler struct {
	validations *scope
	mutations   []*scope // by the number of lists that their field leads through
}

// NewCompiler returns a compiler. An error is a fault of the program.
func NewCompiler() (*Compiler, error) {
	c := &Compiler{}
	var err error
	if c.validations, err = newScope(nil); err != nil {
		return nil, err
	}
	for lists := range kinds.MaxPolicyFieldLists + 1 {
		s, err := newScope(mutationNames(lists))
		if err != nil {
			return nil, err
		}
		c.mutations = append(c.mutations, s)
	}
	return c, nil
}

// Policy is a valid Policy that can be expanded. It is immutable.
type Policy struct {
	document    *kinds.Policy
	resources   []kinds.PolicyResource // with the controllers
	names       []string               // of the library that are used, in its order
	own         []admissionregistrationv1.Variable
	validations []admissionregistrationv1.Validation
	mutations   []admissionregistrationv1.Mutation
	podPaths    bool // mutations have the variable namePodPath
	conditions  []admissionregistrationv1.MatchCondition
}

// Compile returns a Policy, or its errors with paths from the top of the document. The document must not be changed after.
func (c *Compiler) Compile(document *kinds.Policy) (*Policy, field.ErrorList) {
	errs := document.Validate()
	if len(errs) > 0 {
		return nil, errs
	}
	p := &Policy{document: document, resources: resourcesOf(&document.Spec)}
	p.conditions = matchConditions(&document.Spec)
	x := p.expressions()
	p.compileVariables(c, x)
	if document.Spec.Mutates() {
		p.compileMutations(c, x)
	} else {
		p.compileValidations(c, x)
	}
	p.names = namesFor(x.used, &document.Spec)
	return p, append(x.errs, p.checkSizes()...)
}

// Document is the document that was compiled. The caller must not change it.
func (p *Policy) Document() *kinds.Policy { return p.document }

// resourcesOf are the resources of a valid Policy.
func resourcesOf(s *kinds.PolicySpec) (all []kinds.PolicyResource) {
	for _, text := range s.Resources {
		r, _ := kinds.ParsePolicyResource(text) // Validate has checked it
		all = append(all, r)
	}
	if s.PodControllers {
		all = append(all, slices.DeleteFunc(kinds.PodControllers(), func(r kinds.PolicyResource) bool {
			return s.Mutates() && r.Resource == "replicasets"
		})...)
	}
	return all
}

func (p *Policy) compileVariables(c *Compiler, x *expressions) {
	path := field.NewPath("spec", "variables")
	for i, v := range p.document.Spec.Variables {
		at := path.Index(i)
		if slices.Contains(append(libraryNames(), namePodPath), v.Name) {
			x.errs = append(x.errs, field.Invalid(at.Child("name"), v.Name, "is a name of the library: take another one"))
			continue
		}
		e := x.parse(c.validations, v.Expression, nil, at.Child("expression"))
		p.own = append(p.own, admissionregistrationv1.Variable{Name: v.Name, Expression: e.qualified(nil)})
		x.declare(v.Name, e.of)
	}
}

func (p *Policy) compileValidations(c *Compiler, x *expressions) {
	s, path := &p.document.Spec, field.NewPath("spec", "validations")
	parse := func(text string, result *cel.Type, at *field.Path) string {
		e := x.parse(c.validations, text, result, at)
		return e.qualified(nil)
	}
	for i := range s.Validations {
		v, at := &s.Validations[i], path.Index(i)
		out := admissionregistrationv1.Validation{Expression: parse(v.Expression, cel.BoolType, at.Child("expression")), Message: v.Message}
		if v.MessageExpression != "" {
			out.MessageExpression = parse(v.MessageExpression, cel.StringType, at.Child("messageExpression"))
		}
		if v.Reason != "" {
			out.Reason = &v.Reason
		}
		p.validations = append(p.validations, p.about(v.Field, out))
	}
}

// expressions collects the names and the errors of the expressions of a Policy.
type expressions struct {
	policy     *Policy
	parameters []string
	variables  []string // that are declared so far
	types      []cel.EnvOption
	scopes     map[*scope]*scope // with these variables
	used       map[string]bool
	errs       field.ErrorList
}

func (p *Policy) expressions() *expressions {
	x := &expressions{policy: p, scopes: map[*scope]*scope{}, used: map[string]bool{}}
	for i := range p.document.Spec.Parameters {
		x.parameters = append(x.parameters, p.document.Spec.Parameters[i].Name)
	}
	return x
}

// declare lets the expressions that follow name a variable. of is its type; nil for a variable that is refused.
func (x *expressions) declare(name string, of *cel.Type) {
	if of == nil {
		of = cel.DynType
	}
	x.variables = append(x.variables, name)
	x.types = append(x.types, cel.Variable(variableOf(name), of))
	clear(x.scopes)
}

// declared is a scope with the variables so far.
func (x *expressions) declared(s *scope) *scope {
	if len(x.types) == 0 {
		return s
	}
	if x.scopes[s] == nil {
		env, err := s.env.Extend(x.types...)
		if err != nil { // their names and types are valid
			return s
		}
		x.scopes[s] = &scope{env, s.names, s.own}
	}
	return x.scopes[s]
}

func (x *expressions) parse(s *scope, text string, result *cel.Type, at *field.Path) expression {
	e, problems := x.declared(s).parse(text, result, x.parameters, x.variables)
	for _, u := range e.uses {
		if !x.used[u.name] {
			x.checkPod(u.name, at)
		}
		x.used[u.name] = true
	}
	for _, problem := range problems {
		x.errs = append(x.errs, field.Invalid(at, field.OmitValueType{}, problem))
	}
	return e
}

// checkPod refuses a name that is about Pods if an object of the policy has none.
func (x *expressions) checkPod(name string, at *field.Path) {
	if problem := x.policy.withoutPod(name); problem != "" {
		x.errs = append(x.errs, field.Invalid(at, field.OmitValueType{}, problem))
	}
}

// about lets the messages of a validation begin with a field. With PodControllers it is a field of the Pod, and its path depends on the kind of the object.
func (p *Policy) about(name string, v admissionregistrationv1.Validation) admissionregistrationv1.Validation {
	if name == "" {
		return v
	}
	begin, s := literal(name+": "), &p.document.Spec
	if s.PodControllers {
		begin = "(" + byPodTemplate(subject(s), p.resources, func(path string) string {
			return literal(strings.TrimPrefix(path+"."+name+": ", "."))
		}) + ")"
		v.MessageExpression = cmp.Or(v.MessageExpression, literal(v.Message))
	}
	v.Message = name + ": " + v.Message
	if v.MessageExpression != "" {
		v.MessageExpression = fmt.Sprintf("%s + (%s\n)", begin, v.MessageExpression) // the line ends a comment
	}
	return v
}

// withoutPod is the problem of a name that is about Pods, if an object of the policy has none.
func (p *Policy) withoutPod(name string) string {
	if !needsPod(name) {
		return ""
	}
	for i, r := range p.resources {
		if _, ok := r.PodTemplate(); !ok {
			return fmt.Sprintf("%s is about Pods, and %s of spec.resources has none that is known: write a Policy of its own for %[2]s", name,
				p.document.Spec.Resources[i])
		}
	}
	return ""
}

// namesFor are the names that are used, and the names that their variables read.
func namesFor(used map[string]bool, s *kinds.PolicySpec) (names []string) {
	for name := range used {
		names = append(append(names, name), reads(name, s)...)
	}
	return slices.DeleteFunc(libraryNames(), func(name string) bool { return !slices.Contains(names, name) })
}

// checkSizes bounds the expressions that are made of lists.
func (p *Policy) checkSizes() (errs field.ErrorList) {
	spec := field.NewPath("spec")
	for _, c := range p.conditions {
		if len(c.Expression) > MaxExpansion {
			errs = append(errs, field.TooLong(spec.Child("exclude", strings.TrimPrefix(c.Name, excludePrefix)), "", MaxExpansion))
		}
	}
	for cluster := range p.named() {
		if size := len(p.parameters(cluster)); size > MaxExpansion {
			where := "in clusters that the policy does not name"
			if cluster != "" {
				where = "in cluster " + cluster
			}
			errs = append(errs, field.Invalid(spec.Child("parameters"), field.OmitValueType{},
				fmt.Sprintf("have %d bytes together %s, and at most %d are read", size, where, MaxExpansion)))
			break
		}
	}
	return errs
}
