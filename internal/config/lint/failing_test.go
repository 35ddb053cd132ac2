package lint

import (
	"math/rand/v2"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

// request is a concrete request of a situation.
func (s *situation) request(random *rand.Rand) *admission.VersionedAttributes {
	object := func() runtime.Object {
		metadata := map[string]any{"name": "x"}
		for _, field := range []string{"labels", "annotations"} {
			if random.IntN(2) == 0 {
				metadata[field] = map[string]any{"a": []any{"b", "c"}[random.IntN(2)]}
			}
		}
		content := map[string]any{"metadata": metadata}
		if random.IntN(2) == 0 {
			content["spec"] = map[string]any{"replicas": int64(random.IntN(3))}
		}
		return &unstructured.Unstructured{Object: content}
	}
	resource, sub, namespace := s.resource, s.subresource, ""
	if resource == "" {
		resource = []string{"pods", "nodes", "widgets"}[random.IntN(3)]
	}
	if sub == wildcard {
		sub = []string{"", "status"}[random.IntN(2)]
	}
	if !s.noNamespaces && random.IntN(4) > 0 {
		namespace = []string{"kube-system", "default"}[random.IntN(2)]
	}
	v := &admission.VersionedAttributes{VersionedKind: schema.GroupVersionKind{Version: "v1", Kind: "X"}}
	if s.operation != admissionregistrationv1.Delete {
		v.VersionedObject = object()
	}
	if s.operation == admissionregistrationv1.Update || s.operation == admissionregistrationv1.Delete {
		v.VersionedOldObject = object()
	}
	v.Attributes = admission.NewAttributesRecord(v.VersionedObject, v.VersionedOldObject, v.VersionedKind, namespace, "x",
		schema.GroupVersionResource{Version: "v1", Resource: resource}, sub, admission.Operation(s.operation), nil, random.IntN(2) == 0,
		&user.DefaultInfo{Name: "ann", Groups: []string{"system:masters"}})
	return v
}

// expression is a random condition.
func expression(random *rand.Rand, depth int) string {
	atoms := []string{
		"object.metadata.labels['a'] == 'b'", "oldObject.metadata.name == 'x'", "has(object.spec)", "has(oldObject.metadata.labels)", "object == null", "oldObject != null",
		"namespaceObject.metadata.name == 'x'", "namespaceObject == null", "has(namespaceObject.metadata)", "request.namespace == 'default'", "has(request.namespace)",
		"request.operation == 'DELETE'", "request.operation in ['CREATE', 'UPDATE']", "request.resource.resource == 'pods'", "request.subResource == 'status'",
		"request.userInfo.username.startsWith('a')", "'system:nodes' in request.userInfo.groups", "request.dryRun == true", "object.?spec.replicas.orValue(1) > 1",
		"object.spec.replicas > oldObject.spec.replicas", "dyn(object).metadata.name.find('[0-9]') == ''", "object.metadata.annotations.all(k, k != 'b')", "true", "false",
		"request.name.size() > 0", "variables.x", "int('x') > 0", "request.resource.group == ''",
	}
	if depth == 0 || random.IntN(3) == 0 {
		return atoms[random.IntN(len(atoms))]
	}
	a, b := expression(random, depth-1), expression(random, depth-1)
	switch random.IntN(4) {
	case 0:
		return "!(" + a + ")"
	case 1:
		return "(" + a + ") && (" + b + ")"
	case 2:
		return "(" + a + ") || (" + b + ")"
	default:
		return "(" + a + ") ? (" + b + ") : (" + expression(random, depth-1) + ")"
	}
}

// TestConditionsThatAreSaidToFailDoSoInKubernetes evaluates them with kube-apiserver's own matcher, on random requests of the situation.
func TestConditionsThatAreSaidToFailDoSoInKubernetes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	compiler := admissioncel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	situations := []situation{}
	for _, operation := range registration.Operations() {
		for _, resource := range []string{"", "pods", "nodes"} {
			for _, sub := range []string{"", wildcard, "status"} {
				situations = append(situations, situation{operation: operation, resource: resource, subresource: sub, noNamespaces: resource == "nodes"})
			}
		}
	}
	var c constants
	failed, passed := 0, 0
	for range citest.Cases(100, 3000, 30_000) {
		text := expression(random, 2)
		compiled := compiler.CompileCELExpression(&matchconditions.MatchCondition{Name: "a", Expression: text},
			admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		if compiled.Error != nil {
			continue
		}
		policy := admissionregistrationv1.Fail
		matcher := matchconditions.NewMatcher(admissioncel.NewCondition([]admissioncel.CompilationResult{compiled}), &policy, "webhook", "validating", "a")
		compiledHere := c.program(text)
		for range 4 {
			s := situations[random.IntN(len(situations))]
			errs, reached := evaluate([]*program{compiledHere}, &s)
			errored := 0
			const requests = 12
			for range requests {
				result := matcher.Match(t.Context(), s.request(random), nil, nil)
				switch {
				case result.Error != nil:
					errored++
				case reached && errs[0] != nil:
					t.Fatalf("%s is said to fail for every %s (%v), and is %t", text, &s, errs[0], result.Matches)
				}
				if !reached && (result.Error != nil || result.Matches) {
					t.Fatalf("%s is said to be false for every %s, and is %t (%v)", text, &s, result.Matches, result.Error)
				}
			}
			if reached && errs[0] != nil {
				failed++
			} else if errored == requests {
				passed++
			}
		}
	}
	t.Logf("%d found, %d that failed for a dozen random requests were not", failed, passed)
	if failed < 50 || passed > failed {
		t.Errorf("%d found, %d were not", failed, passed)
	}
}
