package policies_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/config/policies"

	// The kinds that requests are about, with their defaults.
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

// request is a write, as a test says it.
type request struct {
	operation   admission.Operation // empty means CREATE
	object, old string              // YAML
	subresource string
	user        string
	groups      []string
	exec        string // namespace of the Pod, if the object are options of it
}

// judge has kube-apiserver's dispatcher judge a request by an expansion. The answer is "allowed", or the consequence and the message of the policy.
func judge(t *testing.T, e *policies.Expansion, r request) string {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range []string{"default", "kube-system", "shop"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		if err := namespaces.Add(namespace); err != nil {
			t.Fatal(err)
		}
	}
	matcher := generic.NewPolicyMatcher(matching.NewMatcher(corelisters.NewNamespaceLister(namespaces), nil))
	scheme := legacyscheme.Scheme
	objects := &admission.RuntimeObjectInterfaces{
		ObjectCreater: scheme, ObjectTyper: scheme, ObjectDefaulter: scheme, ObjectConvertor: scheme,
		EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
	}
	a := &recorded{Attributes: attributes(t, r)}
	warnings := &warnings{}
	err := validating.NewDispatcher(nil, matcher).Dispatch(warning.WithWarningRecorder(context.Background(), warnings), a, objects, []validating.PolicyHook{{
		Policy: e.Policy, Bindings: []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{e.Binding}, Evaluator: validator(t, e.Policy),
	}})
	name := e.Policy.Name
	with := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%[1]s'", name)
	switch status := (*apierrors.StatusError)(nil); {
	case errors.As(err, &status):
		causes := status.ErrStatus.Details.Causes
		return "denied: " + cut(causes[len(causes)-1].Message, with+" denied request: ")
	case err != nil:
		t.Fatal(err)
	case warnings.text != "":
		return "warned: " + cut(warnings.text, "Validation failed for "+with+": ")
	case a.failures != "":
		var failed []validating.ValidationFailureValue
		if err := json.Unmarshal([]byte(a.failures), &failed); err != nil {
			t.Fatal(err)
		}
		return "recorded: " + failed[0].Message
	}
	return "allowed"
}

func cut(text, prefix string) string {
	if len(text) > len(prefix) && text[:len(prefix)] == prefix {
		return text[len(prefix):]
	}
	return text
}

// recorded are attributes that keep the audit annotation of failures.
type recorded struct {
	admission.Attributes

	failures string
}

// AddAnnotation implements [admission.Attributes].
func (r *recorded) AddAnnotation(_, value string) error {
	r.failures = value
	return nil
}

type warnings struct{ text string }

// AddWarning implements [warning.Recorder].
func (w *warnings) AddWarning(_, text string) { w.text = text }

// validator is compilePolicy of kube-apiserver's plugin, for a policy without params and audit annotations.
func validator(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := admissioncel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declared, mode := admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions
	var variables []admissioncel.NamedExpressionAccessor
	for _, v := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, declared, mode)
	var conditions, expressions []admissioncel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	messages := make([]admissioncel.ExpressionAccessor, len(p.Spec.Validations))
	for i, v := range p.Spec.Validations {
		expressions = append(expressions, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, declared, mode), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	return validating.NewValidator(compiler.CompileCondition(expressions, declared, mode), matcher, compiler.CompileCondition(nil, declared, mode),
		compiler.CompileCondition(messages, admissioncel.OptionalVariableDeclarations{}, mode), p.Spec.FailurePolicy, nil)
}

// attributes are a request as kube-apiserver hands it to admission.
func attributes(t *testing.T, r request) admission.Attributes {
	t.Helper()
	object, kind := decode(t, r.object)
	old, oldKind := decode(t, r.old)
	if r.object == "" {
		kind = oldKind
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	if r.exec != "" {
		resource.Resource = "pods"
	}
	namespace := r.exec
	for _, o := range []runtime.Object{object, old} {
		if o != nil && r.exec == "" {
			accessor, err := meta.Accessor(o)
			if err != nil {
				t.Fatal(err)
			}
			namespace = accessor.GetNamespace()
		}
	}
	return admission.NewAttributesRecord(object, old, kind, namespace, "x", resource, r.subresource, cmp.Or(r.operation, admission.Create), nil, false,
		&user.DefaultInfo{Name: r.user, Groups: r.groups})
}

// decode is an object with its defaults, in the version in which kube-apiserver handles it. No text is no object.
func decode(t *testing.T, text string) (runtime.Object, schema.GroupVersionKind) {
	t.Helper()
	if text == "" {
		return nil, schema.GroupVersionKind{}
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	custom := &unstructured.Unstructured{}
	if err := custom.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	kind := custom.GroupVersionKind()
	internal := schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(internal), raw)
	if err != nil {
		t.Fatal(err)
	}
	return object, kind
}
