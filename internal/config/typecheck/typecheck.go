// Package typecheck checks the types of expressions of policies by the schemas of the kinds that the policies match: a misspelt field is found before
// an object is reviewed. It is the TypeChecker of k8s.io/apiserver/pkg/admission/plugin/policy/validating, for all expressions of validating and mutating policies,
// with one environment of CEL for a kind in place of one for each expression. It refuses nothing, and no review waits for it.
package typecheck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	// MaxTotalWork bounds the work of a Checker. Policies that would be more are not checked.
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
}

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
	types        map[schema.GroupVersionKind]*apiservercel.DeclType
	environments map[envKey]*typedEnv
	work         int // done
}

// New returns a checker.
func New(s Schemas) *Checker {
	return &Checker{schemas: s, types: map[schema.GroupVersionKind]*apiservercel.DeclType{}, environments: map[envKey]*typedEnv{}}
}

// Check returns the warnings about a policy, by expression. ok is false if ctx has ended, or the policy would exceed MaxTotalWork.
func (c *Checker) Check(ctx context.Context, p *Policy) (all []Warning, ok bool) {
	targets := c.targets(p.Constraints)
	work := 1
	for _, x := range p.Expressions {
		work += len(x.Text) + expressionWork
	}
	targets = targets[:min(len(targets), MaxWork/work)]
	if work *= len(targets); c.work+work > MaxTotalWork {
		return nil, false
	}
	c.work += work
	byExpression := make([][]Warning, len(p.Expressions))
	for _, target := range targets {
		w := c.environment(p, target)
		if w == nil {
			continue
		}
		w.begin()
		for i, x := range p.Expressions {
			if ctx.Err() != nil {
				return nil, false
			}
			if message := w.check(x); message != "" {
				byExpression[i] = add(byExpression[i], x.Field, target.kind, message)
			}
		}
	}
	return slices.Concat(byExpression...), true
}

// add adds a message about a kind to the warnings about an expression.
func add(all []Warning, field string, kind schema.GroupVersionKind, message string) []Warning {
	for i := range all {
		if all[i].Message == message {
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

// typeOf is the type of a kind; nil if it is not known, or may have any fields.
func (c *Checker) typeOf(kind schema.GroupVersionKind) *apiservercel.DeclType {
	of, known := c.types[kind]
	if known {
		return of
	}
	if s := c.schemas.SchemaOf(kind); s != nil {
		seen := evaluated(s)
		of = common.SchemaDeclType(&openapi.Schema{Schema: &seen}, true)
		if of != nil && of.IsObject() {
			of = of.MaybeAssignTypeName(kind.Kind)
		} else {
			of = nil
		}
	}
	c.types[kind] = of
	return of
}

// envKey is all that environments depend on.
type envKey struct {
	kind, params     schema.GroupVersionKind
	hasParams, names bool
}

// environment returns the environment of a policy for a kind; nil if the kind has no type.
func (c *Checker) environment(p *Policy, t target) *typedEnv {
	key := envKey{kind: t.kind, hasParams: p.Params != nil, names: p.Names != nil}
	if p.Params != nil {
		if gv, err := schema.ParseGroupVersion(p.Params.APIVersion); err == nil {
			key.params = gv.WithKind(p.Params.Kind)
		}
	}
	w, known := c.environments[key]
	if known {
		return w
	}
	if object := c.typeOf(t.kind); object != nil {
		c.work += environmentWork
		names := map[string]*apiservercel.DeclType{admissioncel.ObjectVarName: object, admissioncel.OldObjectVarName: object}
		if p.Params != nil {
			names[admissioncel.ParamsVarName] = cmp.Or(c.typeOf(key.params), apiservercel.DynType)
		}
		if p.Names != nil {
			maps.Copy(names, p.Names(t.resource, object))
		}
		w = newTypedEnv(object, names)
	}
	if len(c.environments) == maxEnvironments {
		clear(c.environments)
	}
	c.environments[key] = w
	return w
}
