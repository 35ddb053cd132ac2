package match

import (
	"github.com/google/cel-go/cel"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// requestOnly tells the expressions that look at the request alone: those that compile where there is neither object nor
// oldObject. What a later Kubernetes may add is not there either, and counts as the object.
type requestOnly struct {
	env *cel.Env // nil until needed
}

// holds reports whether an expression, which compiles, can see no object. An answer of false is always right.
func (r *requestOnly) holds(expression string) bool {
	if r.env == nil {
		env, err := newRequestEnv()
		if err != nil {
			return false
		}
		r.env = env
	}
	_, issues := r.env.Compile(expression)
	return issues.Err() == nil
}

// newRequestEnv is the environment of matchConditions without the objects. The compiler that counts has seen the types of
// the others; here it is their names that matter.
func newRequestEnv() (*cel.Env, error) {
	base, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
	if err != nil {
		return nil, err
	}
	return base.Extend(
		cel.Variable(admissioncel.RequestVarName, cel.DynType),
		cel.Variable(admissioncel.NamespaceVarName, cel.DynType),
		cel.Variable(admissioncel.AuthorizerVarName, cel.DynType),
	)
}
