// Package typecheck checks the types of expressions of policies by the schemas of the kinds that the policies match: a misspelt field is found before
// an object is reviewed. It is the TypeChecker of k8s.io/apiserver/pkg/admission/plugin/policy/validating, for all expressions of validating and mutating
// policies, with one environment of CEL for a kind in place of one for each expression. It refuses nothing, and no review waits for it.
package typecheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
)

const (
	// MaxKinds bounds the kinds that a policy is checked against.
	MaxKinds = 10
	// MaxWork bounds the work for one policy, in bytes of expressions, each counted once for each kind: 1 MB takes 1 to 2 seconds. Of a policy that would be
	// more, fewer kinds are checked.
	MaxWork = 256 << 10
	// MaxSchema bounds the schema of a custom resource without its descriptions, in bytes of JSON: 1 MB takes more than 1 s, and allocates 400 MB.
	// Kinds with a larger schema are not checked.
	MaxSchema = 256 << 10
	// MaxTotalWork bounds the work of a Checker, with the schemas of custom resources. Policies that would be more are not checked.
	MaxTotalWork = 2 << 20
	// expressionWork is the work for an expression of any length.
	expressionWork = 256
	// environmentWork is the work for an environment.
	environmentWork = 16 << 10
	// maxEnvironments bounds the environments that a Checker keeps. One is made in 10 ms, and has 3 MB.
	maxEnvironments = 16
)

// Policy is a policy whose expressions are valid.
type Policy struct {
	// Constraints select the kinds.
	Constraints *admissionregistrationv1.MatchResources
	// Params is the kind of the params; nil without any.
	Params *admissionregistrationv1.ParamKind
	// Expressions are checked in this order; a variable stands before the expressions that read it.
	Expressions []Expression
	// Names returns names that expressions have beside the names of Kubernetes, with their types, by the resource and the type of the object; nil for
	// none. All policies of a Checker that have any have the same function.
	Names func(resource schema.GroupResource, object *apiservercel.DeclType) map[string]*apiservercel.DeclType
}

// Expression is an expression of a policy.
type Expression struct {
	// Field is its field in the document.
	Field string
	// Text is CEL.
	Text string
	// Variable is the name of the variable that it defines; empty for other expressions.
	Variable string
	// Sets returns the steps that lead from an object of a resource to the field that gets the value; EachItem is a step to each item of a list. It is
	// nil for other expressions.
	Sets func(resource schema.GroupResource) []string
	// SetsIn is the field in the document that Sets is read from.
	SetsIn string
}

// EachItem is the step of [Expression.Sets] from a list to each of its items.
const EachItem = "[*]"

// Warning are the errors of the type checker about an expression.
type Warning struct {
	// Field is the field of the expression.
	Field string
	// Kinds are the kinds with the same errors.
	Kinds []schema.GroupVersionKind
	// Message has the words of the type checker, with their places in the expression.
	Message string
}

// String names the kinds too.
func (w *Warning) String() string {
	names := make([]string, len(w.Kinds))
	for i, kind := range w.Kinds {
		names[i] = fmt.Sprintf("%s (%s)", kind.Kind, kind.GroupVersion())
	}
	return "for " + strings.Join(names, ", ") + ": " + w.Message
}

// Checker checks policies. It keeps the environments of the kinds that it has seen, and is not for concurrent use.
type Checker struct {
	schemas      Schemas
	types        map[schema.GroupVersionKind]kindType
	environments map[envKey]*typedEnv
	work         int // done
}

// New returns a checker.
func New(s Schemas) *Checker {
	return &Checker{schemas: s, types: map[schema.GroupVersionKind]kindType{}, environments: map[envKey]*typedEnv{}}
}

// Check returns the warnings about a policy, by expression. ok is false if ctx has ended, or the policy would exceed MaxTotalWork.
func (c *Checker) Check(ctx context.Context, p *Policy) (all []Warning, ok bool) {
	targets := c.targets(p.Constraints)
	work := 1
	for _, x := range p.Expressions {
		work += len(x.Text) + expressionWork
	}
	targets = targets[:min(len(targets), MaxWork/work)]
	if c.book(work*len(targets)) != nil {
		return nil, false
	}
	byExpression := make([][]Warning, len(p.Expressions))
	for _, target := range targets {
		w, err := c.environment(p, target)
		if err != nil {
			return nil, false
		}
		if w == nil {
			continue
		}
		w.begin()
		for i, x := range p.Expressions {
			if ctx.Err() != nil {
				return nil, false
			}
			runtime.Gosched() // an expression takes a processor for 0.4 ms, and a policy has many
			message, value := w.check(x)
			if message != "" {
				byExpression[i] = add(byExpression[i], x.Field, target.kind, message)
			}
			if x.Sets == nil {
				continue
			}
			field, message := w.assign(x, x.Sets(target.resource), value)
			if message != "" {
				byExpression[i] = add(byExpression[i], field, target.kind, message)
			}
		}
	}
	return slices.Concat(byExpression...), true
}

// add adds a message about a kind to the warnings about an expression.
func add(all []Warning, field string, kind schema.GroupVersionKind, message string) []Warning {
	for i := range all {
		if all[i].Message == message && all[i].Field == field {
			all[i].Kinds = append(all[i].Kinds, kind)
			return all
		}
	}
	return append(all, Warning{field, []schema.GroupVersionKind{kind}, message})
}

// target is a kind that a policy is checked against.
type target struct {
	resource schema.GroupResource
	kind     schema.GroupVersionKind
}

// targets are the kinds of the resources that rules name without a wildcard, sorted (typesToCheck of kube-apiserver).
func (c *Checker) targets(m *admissionregistrationv1.MatchResources) (all []target) {
	if m == nil {
		return nil
	}
	for i := range m.ResourceRules {
		for _, resource := range named(&m.ResourceRules[i].Rule) {
			kind, ok := c.schemas.KindOf(resource)
			if ok && len(all) < MaxKinds && !slices.ContainsFunc(all, func(t target) bool { return t.kind == kind }) {
				all = append(all, target{resource.GroupResource(), kind})
			}
		}
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(strings.Compare(a.kind.Group, b.kind.Group), strings.Compare(a.kind.Version, b.kind.Version), strings.Compare(a.kind.Kind, b.kind.Kind))
	})
	return all
}

// named are the resources that a rule names without a wildcard. The object of a subresource may be of another kind.
func named(r *admissionregistrationv1.Rule) (all []schema.GroupVersionResource) {
	isWildcard := func(text string) bool { return strings.Contains(text, "*") }
	if slices.ContainsFunc(r.APIGroups, isWildcard) || slices.ContainsFunc(r.APIVersions, isWildcard) {
		return nil
	}
	for _, group := range slices.Sorted(slices.Values(r.APIGroups)) {
		for _, version := range slices.Sorted(slices.Values(r.APIVersions)) {
			for _, resource := range slices.Sorted(slices.Values(r.Resources)) {
				if !strings.ContainsAny(resource, "*/") {
					all = append(all, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
				}
			}
		}
	}
	return all
}

// errWork: MaxTotalWork is spent.
var errWork = errors.New("too much work")

// book counts work before it is done.
func (c *Checker) book(work int) error {
	if c.work+work > MaxTotalWork {
		return errWork
	}
	c.work += work
	return nil
}

// kindType is the type of a kind, and the length of the text of its schema in bytes.
type kindType struct {
	*apiservercel.DeclType // nil if it is not known, or may have any fields

	bytes int
}

// typeOf is the type of a kind. The error is errWork.
func (c *Checker) typeOf(kind schema.GroupVersionKind) (of kindType, err error) {
	of, known := c.types[kind]
	if known {
		return of, nil
	}
	s, err := c.schemas.SchemaOf(kind, func(bytes int) error {
		if of.bytes = bytes; bytes > MaxSchema {
			return errWork
		}
		return c.book(bytes)
	})
	if err != nil && of.bytes <= MaxSchema {
		return of, err
	}
	if s != nil {
		seen := evaluated(s)
		if of.DeclType = common.SchemaDeclType(&openapi.Schema{Schema: &seen}, true); of.DeclType != nil && of.IsObject() {
			of.DeclType = of.MaybeAssignTypeName(kind.Kind)
		} else {
			of.DeclType = nil
		}
	}
	c.types[kind] = of
	return of, nil
}

// envKey is all that environments depend on.
type envKey struct {
	kind, params     schema.GroupVersionKind
	hasParams, names bool
}

// environment returns the environment of a policy for a kind; nil if the kind has no type. The error is errWork.
func (c *Checker) environment(p *Policy, t target) (*typedEnv, error) {
	key := envKey{kind: t.kind, hasParams: p.Params != nil, names: p.Names != nil}
	if p.Params != nil {
		if gv, err := schema.ParseGroupVersion(p.Params.APIVersion); err == nil {
			key.params = gv.WithKind(p.Params.Kind)
		}
	}
	w, known := c.environments[key]
	if known {
		return w, nil
	}
	object, err := c.typeOf(t.kind)
	if err != nil {
		return nil, err
	}
	if object.DeclType != nil {
		params, err := c.typeOf(key.params)
		if err == nil {
			err = c.book(environmentWork + object.bytes + params.bytes)
		}
		if err != nil {
			return nil, err
		}
		names := map[string]*apiservercel.DeclType{admissioncel.ObjectVarName: object.DeclType, admissioncel.OldObjectVarName: object.DeclType}
		if p.Params != nil {
			names[admissioncel.ParamsVarName] = cmp.Or(params.DeclType, apiservercel.DynType)
		}
		if p.Names != nil {
			maps.Copy(names, p.Names(t.resource, object.DeclType))
		}
		w = newTypedEnv(object.DeclType, names)
	}
	if len(c.environments) == maxEnvironments {
		clear(c.environments)
	}
	c.environments[key] = w
	return w, nil
}
