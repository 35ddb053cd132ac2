package typecheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/portcullis-mesh/portcullis/internal/suggest"
)

// maxErrors bounds the errors that are reported about one expression.
const maxErrors = 5

// variablesType is the name of the type of variables.
const variablesType = "kubernetes.variables"

// typedEnv is an environment in which an object has the type of its kind. The variables are of one policy at a time.
type typedEnv struct {
	env       *celgo.Env
	object    *apiservercel.DeclType
	variables map[string]*types.Type
}

// newTypedEnv makes the environment of kube-apiserver for expressions of policies (createEnvForOpts of its compiler), in which names have types. It is nil
// if CEL refuses the types, which is a fault of the program.
func newTypedEnv(object *apiservercel.DeclType, names map[string]*apiservercel.DeclType) *typedEnv {
	w := &typedEnv{object: object}
	request, namespace := admissioncel.BuildRequestType(), admissioncel.BuildNamespaceType()
	declared := []*apiservercel.DeclType{request, namespace}
	options := []celgo.EnvOption{
		celgo.Variable(admissioncel.RequestVarName, request.CelType()), celgo.Variable(admissioncel.NamespaceVarName, namespace.CelType()),
		celgo.Variable(admissioncel.AuthorizerVarName, library.AuthorizerType),
		celgo.Variable(admissioncel.RequestResourceAuthorizerVarName, library.ResourceCheckType),
		celgo.Variable(admissioncel.VariableVarName, celgo.ObjectType(variablesType)),
	}
	for name, of := range names {
		declared = append(declared, of)
		options = append(options, celgo.Variable(name, of.CelType()))
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv()
	provider := apiservercel.NewDeclTypeProvider(declared...)
	provider.SetRecognizeKeywordAsFieldName(true)
	types, err := provider.EnvOptions(base.CELTypeProvider())
	if err == nil {
		options = append(append(options, types...), common.ResolverEnvOption(w), library.JSONPatch())
		w.env, err = base.Extend(options...)
	}
	if err != nil {
		return nil
	}
	return w
}

// begin forgets the variables of another policy.
func (w *typedEnv) begin() { w.variables = map[string]*types.Type{} }

// check returns the errors of the type checker, empty for none, and the type of the value, nil after an error. A variable with an error has any type for
// the expressions that read it.
func (w *typedEnv) check(x Expression) (message string, value *types.Type) {
	checked, issues := w.env.Compile(x.Text)
	if x.Variable != "" {
		w.variables[x.Variable] = celgo.DynType
		if issues.Err() == nil {
			w.variables[x.Variable] = checked.OutputType()
		}
	}
	var found []string
	for _, err := range issues.Errors() {
		if len(found) == maxErrors {
			break
		}
		found = append(found, fmt.Sprintf("line %d, column %d: %s", err.Location.Line(), err.Location.Column()+1, err.Message))
	}
	if issues.Err() != nil {
		return strings.Join(found, "; "), nil
	}
	return "", checked.OutputType()
}

// assign returns the error of a value in a field of the object, and the field of the document that has it; empty for none. value is nil if it is not known.
func (w *typedEnv) assign(x Expression, steps []string, value *types.Type) (field, message string) {
	of, last := w.object, ""
	for _, step := range steps {
		before := of
		switch {
		case step != EachItem:
			of = fieldOf(of, step)
		case of.IsList():
			of = of.ElemType
		default:
			return x.SetsIn, last + " is no list"
		}
		if of == nil && before.IsObject() && len(before.Fields) > 0 {
			return x.SetsIn, fmt.Sprintf("there is no field %s%s", step, suggest.DidYouMean(step, slices.Sorted(maps.Keys(before.Fields))))
		}
		if of == nil || of == apiservercel.DynType {
			return "", "" // any fields
		}
		if step != EachItem {
			last = step
		}
	}
	if to := given(of); value != nil && !isDynamic(value) && !to.IsAssignableType(value) {
		return x.Field, fmt.Sprintf("%s is of type %s, and the value of type %s", last, to, value)
	}
	return "", ""
}

// isDynamic reports whether the type of a value is known only when it is evaluated.
func isDynamic(t *types.Type) bool {
	return t.Kind() == types.DynKind || t.Kind() == types.NullTypeKind || slices.ContainsFunc(t.Parameters(), isDynamic)
}

// Resolve implements [common.TypeResolver] for the types that depend on the policy or the kind.
func (w *typedEnv) Resolve(name string) (common.ResolvedType, bool) {
	if name == variablesType {
		return variables{dynamic.NewObjectType(name), w}, true
	}
	path, isObject := strings.CutPrefix(name+".", mutation.ObjectTypeName+".")
	if !isObject {
		return (&mutation.DynamicTypeResolver{}).Resolve(name)
	}
	of := w.object
	for field := range strings.SplitSeq(strings.TrimSuffix(path, "."), ".") {
		if field == "" || of == nil {
			break
		}
		if of = fieldOf(of, field); of == nil {
			return nil, false
		}
		if of.IsList() { // the type of its items has the name of the field
			of = of.ElemType
		}
		if !of.IsObject() && !of.IsMap() {
			of = nil
		}
	}
	return constructor{dynamic.NewObjectType(name), of}, true
}

// variables is the type of variables.
type variables struct {
	*dynamic.ObjectType

	of *typedEnv
}

// Field implements [common.ResolvedType].
func (v variables) Field(name string) (*types.FieldType, bool) {
	t, ok := v.of.variables[name]
	return &types.FieldType{Type: t}, ok
}

// constructor is the type of an object that an expression makes: Object{}, or Object.spec{} for a field.
type constructor struct {
	*dynamic.ObjectType

	of *apiservercel.DeclType // nil for any fields
}

// Field implements [common.ResolvedType]. A field may get a part of the object itself, or an object that the expression makes.
func (c constructor) Field(name string) (*types.FieldType, bool) {
	if c.of == nil {
		return c.ObjectType.Field(name)
	}
	of := fieldOf(c.of, name)
	if of == nil {
		return nil, false
	}
	return &types.FieldType{Type: given(of)}, true
}

// given is the type of the values that a field may be given.
func given(of *apiservercel.DeclType) *types.Type {
	switch {
	case of.IsList():
		return types.NewListType(given(of.ElemType))
	case of.IsObject(), of.IsMap():
		return types.DynType
	}
	return of.CelType()
}

// fieldOf is the type of a field, or of the value of a key; nil for a field that there is not.
func fieldOf(of *apiservercel.DeclType, name string) *apiservercel.DeclType {
	if of.IsMap() {
		return of.ElemType
	}
	for _, written := range []string{name, "__" + name + "__"} { // a word that CEL reserves
		if f, ok := of.Fields[written]; ok {
			return f.Type
		}
	}
	return nil
}
