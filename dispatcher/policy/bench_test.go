package policy_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// benchExpression checks the images of a Pod.
const benchExpression = "object.spec.containers.all(c, !c.image.endsWith(':latest'))"

const benchPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default","labels":{"team":"a"}},
"spec":{"containers":[{"name":"a","image":"registry.example.com/a:1"},{"name":"b","image":"registry.example.com/b:1"}]}}`

// imagePolicy is a policy of one expression, with bindings.
func imagePolicy(c *policy.Compiler, name string, bindings int, variables ...admissionregistrationv1.Variable) match.Object {
	p, bound := imageDocuments(name, bindings, variables...)
	return match.Object{Policy: c.Compile(p).Bind(bound)}
}

func imageDocuments(
	name string, bindings int, variables ...admissionregistrationv1.Variable,
) (*admissionregistrationv1.ValidatingAdmissionPolicy, []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	scope, equivalent, failure := admissionregistrationv1.AllScopes, admissionregistrationv1.Equivalent, admissionregistrationv1.Fail
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &failure, Variables: variables, Validations: []admissionregistrationv1.Validation{{Expression: benchExpression}},
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy: &equivalent, NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: &scope},
				}}},
			},
		},
	}
	var bound []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for i := range bindings {
		bound = append(bound, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, i)},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		})
	}
	return p, bound
}

func benchRequest() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "u", Cluster: "c", Operation: "CREATE", Namespace: "default", Name: "a",
		Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:   &admissionv1.Object{Raw: []byte(benchPod)},
	}
}

// judge judges a request by all policies of a snapshot.
func judge(ctx context.Context, s *match.Snapshot) (denied int) {
	a, ctx := match.NewAttributes(benchRequest(), match.Unknown{}), policy.WithReview(ctx, nil)
	for _, h := range s.Candidates("c", admissionv1.Stage_STAGE_VALIDATE, a) {
		if d := h.ShouldCall(ctx, a); d.Match {
			if v, err := h.Policy.Judge(ctx, a, d.As, d.Unmatched); err != nil || !v.GetAllowed() {
				denied++
			}
		}
	}
	return denied
}

// BenchmarkPolicies has one object judged by policies and bindings, beside the bare program of their expression.
func BenchmarkPolicies(b *testing.B) {
	for _, size := range []struct{ policies, bindings int }{{1, 1}, {8, 1}, {64, 1}, {1, 64}, {1, 1024}} {
		b.Run(fmt.Sprintf("policies=%d/bindings=%d", size.policies, size.bindings), func(b *testing.B) {
			c, in := policy.NewCompiler(), match.Input{}
			for i := range size.policies {
				in.Objects = append(in.Objects, imagePolicy(c, fmt.Sprintf("p%d", i), size.bindings))
			}
			snapshot, _ := match.Compile(in)
			b.ReportAllocs()
			for b.Loop() {
				if n := judge(b.Context(), snapshot); n != 0 {
					b.Fatalf("%d denials", n)
				}
			}
		})
	}
	b.Run("bare program", func(b *testing.B) {
		compiled := cel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())).CompileCELExpression(
			&bareExpression{}, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		versioned, _, err := match.NewAttributes(benchRequest(), match.Unknown{}).Versioned(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		object := map[string]any{"object": match.Content(versioned.VersionedObject)}
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := compiled.Program.ContextEval(b.Context(), object); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkKubernetesPolicies is [BenchmarkPolicies] by the plugin of kube-apiserver.
func BenchmarkKubernetesPolicies(b *testing.B) {
	plugin := oracle.New(b, oracle.Options{Namespaces: map[string]map[string]string{"default": nil}}).Policies(nil)
	for _, size := range []struct{ policies, bindings int }{{1, 1}, {8, 1}, {1, 64}, {1, 1024}} {
		b.Run(fmt.Sprintf("policies=%d/bindings=%d", size.policies, size.bindings), func(b *testing.B) {
			var hooks []validating.PolicyHook
			for i := range size.policies {
				p, bound := imageDocuments(fmt.Sprintf("p%d", i), size.bindings)
				hooks = append(hooks, oracle.CompilePolicy(p, bound...))
			}
			b.ReportAllocs()
			for b.Loop() {
				if j, err := plugin.Judge(b.Context(), hooks, benchRequest()); err != nil || !j.Allowed {
					b.Fatal(j.Message, err)
				}
			}
		})
	}
}

type bareExpression struct{}

func (bareExpression) GetExpression() string      { return benchExpression }
func (bareExpression) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.BoolType} }

// BenchmarkCompiledPolicies has the memory of a policy in bytes: half of the policies have a variable, and with it an environment of their own.
func BenchmarkCompiledPolicies(b *testing.B) {
	for b.Loop() {
		const n = 200
		c, before := policy.NewCompiler(), liveBytes()
		objects := make([]match.Object, 0, n)
		for i := range n {
			var variables []admissionregistrationv1.Variable
			if i%2 == 1 {
				variables = append(variables, admissionregistrationv1.Variable{Name: "containers", Expression: "object.spec.containers"})
			}
			objects = append(objects, imagePolicy(c, fmt.Sprintf("p%d", i), 1, variables...))
		}
		snapshot, _ := match.Compile(match.Input{Objects: objects})
		b.ReportMetric(float64(liveBytes()-before)/n, "B/policy")
		runtime.KeepAlive(snapshot)
	}
}

// liveBytes is the memory in use after a collection.
func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
