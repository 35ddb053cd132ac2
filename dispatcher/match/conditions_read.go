package match

import (
	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// requestOnly tells the conditions that look at the request alone: those that compile where there is neither object nor
// oldObject. What a later Kubernetes may add is not there either, and counts as the object.
type requestOnly struct {
	env *cel.Env // nil until needed
}

// all reports whether none of the conditions, which compile, can see an object. An answer of false is always right.
func (r *requestOnly) all(written []admissionregistrationv1.MatchCondition) bool {
	if r.env == nil {
		env, err := newRequestEnv()
		if err != nil {
			return false
		}
		r.env = env
	}
	for _, c := range written {
		if _, issues := r.env.Compile(c.Expression); issues.Err() != nil {
			return false
		}
	}
	return true
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
