// Package policies expands documents of kind Policy into ValidatingAdmissionPolicies and their bindings. It is pure, and evaluates
// no policy: an expansion is evaluated as any other ValidatingAdmissionPolicy.
package policies

import (
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
type Compiler struct{ env *cel.Env }

// NewCompiler returns a compiler. An error is a fault of the program.
func NewCompiler() (*Compiler, error) {
	env, err := newEnvironment()
	return &Compiler{env}, err
}

// Policy is a valid Policy that can be expanded. It is immutable.
type Policy struct {
	document    *kinds.Policy
	resources   []kinds.PolicyResource // with the controllers
	names       []string               // of the library that are used, in its order
	validations []admissionregistrationv1.Validation
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
	errs = append(errs, p.compileValidations(c)...)
	errs = append(errs, p.checkSizes()...)
	return p, errs
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
		all = append(all, kinds.PodControllers()...)
	}
	return all
}

func (p *Policy) compileValidations(c *Compiler) (errs field.ErrorList) {
	s, path := &p.document.Spec, field.NewPath("spec", "validations")
	parameters := make([]string, len(s.Parameters))
	for i := range s.Parameters {
		parameters[i] = s.Parameters[i].Name
	}
	used := map[string]bool{}
	parse := func(text string, result *cel.Type, at *field.Path) string {
		e, problems := c.parse(text, result, parameters)
		for _, u := range e.uses {
			if !used[u.name] {
				problems = append(problems, p.withoutPod(u.name)...)
			}
			used[u.name] = true
		}
		for _, problem := range problems {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, problem))
		}
		return e.qualified()
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
		p.validations = append(p.validations, about(v.Field, out))
	}
	p.names = namesFor(used, s)
	return errs
}

// about lets the messages of a validation begin with a field.
func about(name string, v admissionregistrationv1.Validation) admissionregistrationv1.Validation {
	if name == "" {
		return v
	}
	v.Message = name + ": " + v.Message
	if v.MessageExpression != "" {
		v.MessageExpression = fmt.Sprintf("%s + (%s\n)", literal(name+": "), v.MessageExpression) // the line ends a comment
	}
	return v
}

// withoutPod is the problem of a name that is about Pods, if an object of the policy has none.
func (p *Policy) withoutPod(name string) []string {
	if !needsPod(name) {
		return nil
	}
	for i, r := range p.resources {
		if _, ok := r.PodTemplate(); !ok {
			return []string{fmt.Sprintf("%s is about Pods, and %s of spec.resources has none that is known: write a Policy of its own for %[2]s", name,
				p.document.Spec.Resources[i])}
		}
	}
	return nil
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
