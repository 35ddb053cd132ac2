package policy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	kubepatch "k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// mutated is an object of a case.
type mutated struct {
	kind     schema.GroupVersionKind
	resource string
	raw      string
}

var mutatedObjects = []mutated{
	{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "pods", benchPod},
	{
		schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "configmaps",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","labels":{"team":"b"}},"data":{"a":"1"}}`,
	},
	{
		schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "deployments",
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"default"},"spec":{"replicas":2,
"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"a:1"}]}}}}`,
	},
}

// jsonPatchTexts and applyTexts are expressions of mutations; each fits some of the objects.
var (
	jsonPatchTexts = []string{
		`[JSONPatch{op: "add", path: "/metadata/labels", value: {"x": "1"}}]`,
		`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/x"), value: "1"}]`,
		`[JSONPatch{op: "test", path: "/metadata/labels/team", value: "a"}, JSONPatch{op: "replace", path: "/metadata/labels/team", value: "c"}]`,
		`[JSONPatch{op: "remove", path: "/metadata/labels/team"}]`,
		`[JSONPatch{op: "copy", from: "/metadata/name", path: "/metadata/annotations"}]`,
		`[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "added", image: "b:1"}}]`,
		`[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.wrong{name: "added"}}]`,
		`[JSONPatch{op: "add", path: "/spec/replicas", value: 3}]`,
		`[JSONPatch{op: "add", path: "/spec/nothing", value: 3}]`,
		`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"policy": string(object.metadata.name)}}]`,
		`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"policy": object.spec.containers[0].image}}]`,
		`object.metadata.name == "b" ? [JSONPatch{op: "remove", path: "/metadata"}] : []`,
		`has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels/seen", value: "s" + string(size(object.metadata.labels))}] : []`,
		`[JSONPatch{op: "move", from: "/data/a", path: "/data/b"}]`,
	}
	applyTexts = []string{
		`Object{metadata: Object.metadata{labels: {"y": "1"}}}`,
		`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: c.image + "x"})}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "sidecar", image: "c:1"}]}}`,
		`Object{spec: Object.spec{containers: [Object.spec.containers{name: "a", args: ["atomic"]}]}}`,
		`Object{spec: Object.spec{replicas: 5}}`,
		`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{nodeSelector: {"a": "b"}}}}}`,
		`Object{spec: Object.spec{unknown: 5}}`,
		`Object{data: {"c": object.data.a}}`,
		`Object{}`,
	}
	conditionTexts = []string{`!has(object.metadata.labels) || !("x" in object.metadata.labels)`, `true`, `object.spec.replicas == 2`, `request.operation == "CREATE"`}
)

func pickOne[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// mutatingCase returns a policy with bindings, and the policy of kube-apiserver.
func mutatingCase(r *rand.Rand, o mutated) (*admissionregistrationv1.MutatingAdmissionPolicy, []*admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	failure := pickOne(r, []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore})
	scope, equivalent := admissionregistrationv1.AllScopes, admissionregistrationv1.Equivalent
	resources := func(selector map[string]string) *admissionregistrationv1.MatchResources {
		return &admissionregistrationv1.MatchResources{
			MatchPolicy: &equivalent, NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{MatchLabels: selector},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{"*"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{o.kind.Group}, APIVersions: []string{"v1"}, Resources: []string{"*"}, Scope: &scope},
			}}},
		}
	}
	p := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: &failure, MatchConstraints: resources(nil),
			ReinvocationPolicy: pickOne(r, []admissionregistrationv1.ReinvocationPolicyType{"Never", "IfNeeded"}),
		},
	}
	if r.IntN(3) == 0 {
		p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: pickOne(r, conditionTexts)}}
	}
	if r.IntN(3) == 0 {
		p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: "object.metadata.name"}}
		p.Spec.Mutations = append(p.Spec.Mutations, admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/metadata/labels", value: {"v": variables.v}}]`},
		})
	}
	for range 1 + r.IntN(3) {
		m := admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch}
		if r.IntN(2) == 0 {
			m.JSONPatch = &admissionregistrationv1.JSONPatch{Expression: pickOne(r, jsonPatchTexts)}
		} else {
			m.PatchType, m.ApplyConfiguration = admissionregistrationv1.PatchTypeApplyConfiguration, &admissionregistrationv1.ApplyConfiguration{Expression: pickOne(r, applyTexts)}
		}
		p.Spec.Mutations = append(p.Spec.Mutations, m)
	}
	var bindings []*admissionregistrationv1.MutatingAdmissionPolicyBinding
	for i := range 1 + r.IntN(2) {
		b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)}}
		b.Spec.PolicyName = "p"
		if r.IntN(2) == 0 {
			b.Spec.MatchResources = resources(pickOne(r, []map[string]string{nil, {"team": "a"}, {"x": "1"}}))
		}
		bindings = append(bindings, b)
	}
	return p, bindings
}

// kubernetesHook compiles a policy as kube-apiserver does (compilePolicy of its mutating plugin).
func kubernetesHook(
	t *testing.T, p *admissionregistrationv1.MutatingAdmissionPolicy, bindings []*admissionregistrationv1.MutatingAdmissionPolicyBinding,
) mutating.PolicyHook {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declared, e := cel.OptionalVariableDeclarations{HasAuthorizer: true}, mutating.PolicyEvaluator{CompositedCompiler: compiler}
	var variables []cel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, declared, environment.StoredExpressions)
	if len(p.Spec.MatchConditions) > 0 {
		var conditions []cel.ExpressionAccessor
		for i := range p.Spec.MatchConditions {
			conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
		}
		e.Matcher = matchconditions.NewMatcher(compiler.CompileCondition(conditions, declared, environment.StoredExpressions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	declared.HasPatchTypes = true
	for _, m := range p.Spec.Mutations {
		if m.JSONPatch != nil {
			x := compiler.CompileMutatingEvaluator(&kubepatch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, declared, environment.StoredExpressions)
			e.Mutators = append(e.Mutators, kubepatch.NewJSONPatcher(x))
		} else {
			x := compiler.CompileMutatingEvaluator(
				&kubepatch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}, declared, environment.StoredExpressions)
			e.Mutators = append(e.Mutators, kubepatch.NewApplyConfigurationPatcher(x))
		}
	}
	return mutating.PolicyHook{Policy: p, Bindings: bindings, Evaluator: e}
}

// internalOf is an object as kube-apiserver holds it, and as it sends it.
func internalOf(t *testing.T, o mutated) (runtime.Object, string) {
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(schema.GroupVersion{Group: o.kind.Group, Version: runtime.APIVersionInternal}), []byte(o.raw))
	if err != nil {
		t.Fatal(err)
	}
	return object, externalOf(t, o, object)
}

func externalOf(t *testing.T, o mutated, object runtime.Object) string {
	raw, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(o.kind.GroupVersion()), object)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// mutationOutcome is the answer to a client.
type mutationOutcome struct {
	Object  any
	Code    int32
	Reason  string
	Message string
}

func objectOf(t *testing.T, raw string) (content any) {
	if err := utiljson.Unmarshal([]byte(raw), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// kubernetes has kube-apiserver's dispatcher change an object, and once more if it says so.
func kubernetes(t *testing.T, o mutated, hook mutating.PolicyHook) mutationOutcome {
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	d := mutating.NewDispatcher(nil, matching.NewMatcher(corev1listers.NewNamespaceLister(namespaces), fake.NewClientset()),
		kubepatch.NewTypeConverterManager(applyconfigurations.NewTypeConverter(scheme.Scheme), nil))
	object, _ := internalOf(t, o)
	a := admission.NewAttributesRecord(object, nil, o.kind, "default", "a", o.kind.GroupVersion().WithResource(o.resource), "", admission.Create,
		&metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "u"})
	interfaces := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	err := d.Dispatch(t.Context(), a, interfaces, []generic.PolicyHook[*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]{hook})
	if again := a.GetReinvocationContext(); err == nil && again.ShouldReinvoke() {
		again.SetIsReinvoke()
		err = d.Dispatch(t.Context(), a, interfaces, []generic.PolicyHook[*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]{hook})
	}
	if err != nil {
		status := err.(apierrors.APIStatus).Status()
		return mutationOutcome{Code: status.Code, Reason: string(status.Reason), Message: status.Message}
	}
	return mutationOutcome{Object: objectOf(t, externalOf(t, o, object))}
}

// portcullis has our policy change the object.
func portcullis(t *testing.T, o mutated, p match.Policy) mutationOutcome {
	_, raw := internalOf(t, o)
	codec := builtin.New(builtin.Options{}).NewPatchSession(nil)
	ctx := policy.WithCodec(policy.WithReview(context.Background(), nil), codec)
	snapshot, _ := match.Compile(match.Input{Objects: []match.Object{{Policy: p}}})
	a, object, changed := match.NewAttributes(mutatedRequest(o, raw), known{}), []byte(raw), false
	for range 2 {
		for _, h := range snapshot.Candidates("c", admissionv1.Stage_STAGE_MUTATE, a) {
			d := h.ShouldCall(ctx, a)
			if !d.Match {
				continue
			}
			v, err := p.Judge(ctx, a, d.As, d.Unmatched)
			if err != nil {
				continue
			}
			if !v.GetAllowed() {
				return mutationOutcome{Code: v.GetStatus().GetCode(), Reason: v.GetStatus().GetReason(), Message: v.GetStatus().GetMessage()}
			}
			if len(v.GetPatch()) == 0 {
				continue
			}
			if object, _, err = codec.Apply(object, v.GetPatch()); err != nil {
				t.Fatalf("patch %s: %v", v.GetPatch(), err)
			}
			a, changed = a.WithObject(object), true
		}
		if !changed || p.Reinvocation() != admissionregistrationv1.IfNeededReinvocationPolicy {
			break
		}
	}
	return mutationOutcome{Object: objectOf(t, string(object))}
}

// known is a cluster whose namespaces have no labels.
type known struct{ match.Unknown }

func (known) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}

func mutatedRequest(o mutated, raw string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Uid: "u", Cluster: "c", Operation: "CREATE", Namespace: "default", Name: "a", UserInfo: &admissionv1.UserInfo{Username: "u"},
		Kind:     &admissionv1.GroupVersionKind{Group: o.kind.Group, Version: o.kind.Version, Kind: o.kind.Kind},
		Resource: &admissionv1.GroupVersionResource{Group: o.kind.Group, Version: o.kind.Version, Resource: o.resource},
		Object:   &admissionv1.Object{Raw: []byte(raw)},
	}
}

// TestMutatingPoliciesChangeObjectsAsInKubernetes compares random policies with kube-apiserver's dispatcher.
func TestMutatingPoliciesChangeObjectsAsInKubernetes(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 100
	}
	c, changed, refused := policy.NewCompiler(), 0, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		o := pickOne(r, mutatedObjects)
		p, bindings := mutatingCase(r, o)
		want := kubernetes(t, o, kubernetesHook(t, p, bindings))
		if strings.Contains(want.Message, "strict decoding error") { // unknown fields are kept: docs/deviations.md
			continue
		}
		got := portcullis(t, o, c.CompileMutating(p).Bind(bindings))
		for _, o := range []*mutationOutcome{&want, &got} { // the messages of decoders and of patches that do not apply have other words
			for _, end := range []string{"JSON Patch: ", "Internal error occurred: "} {
				if before, _, ok := strings.Cut(o.Message, end); ok {
					o.Message = before + end
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d, %s, %d bindings: %+v\n%s", seed, o.kind.Kind, len(bindings), p.Spec.Mutations, diff)
		}
		if _, raw := internalOf(t, o); want.Object == nil {
			refused++
		} else if cmp.Diff(want.Object, objectOf(t, raw)) != "" {
			changed++
		}
	}
	if changed < n/5 || refused < n/5 {
		t.Errorf("of %d cases %d changed the object, and %d were refused", n, changed, refused)
	}
}
