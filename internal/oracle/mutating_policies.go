package oracle

import (
	"context"
	"encoding/json"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// MutatingPolicies is kube-apiserver's MutatingAdmissionPolicy plugin, in the cluster of an [Oracle].
type MutatingPolicies struct {
	oracle     *Oracle
	matcher    generic.PolicyMatcher
	dispatcher generic.Dispatcher[mutating.PolicyHook]
	objects    admission.ObjectInterfaces
	apart      bool
	carried    bool
}

// MutatingPolicies returns the plugin. It reads namespaces as the webhook plugins do.
func (o *Oracle) MutatingPolicies(a authorizer.Authorizer) *MutatingPolicies {
	matcher := matching.NewMatcher(o.wiring.informers.Core().V1().Namespaces().Lister(), o.wiring.client)
	return &MutatingPolicies{
		oracle: o, matcher: generic.NewPolicyMatcher(matcher), dispatcher: mutating.NewDispatcher(a, matcher, o.types), objects: o.objects,
	}
}

// Apart returns the plugin with a dispatch for each policy: a policy is matched with the object as the policies before it left it, and the failure of one
// ends the request.
func (p *MutatingPolicies) Apart() *MutatingPolicies {
	apart := *p
	apart.apart = true
	return &apart
}

// Carried returns the plugin of Apart in which a built-in object stays in the version that a policy takes, and so is carried over to the next policy: the
// plugin itself makes it an object of the version of the request after the first mutation, or fails to do so. The final object has the defaults of the
// version of the request, as objects of webhooks have.
func (p *MutatingPolicies) Carried() *MutatingPolicies {
	carried := p.Apart()
	carried.carried = true
	return carried
}

// keptVersions convert an object to no other external version, and give it no defaults before a mutation has changed it.
type keptVersions struct {
	admission.ObjectInterfaces

	latest  runtime.Object // the object that the next mutation sees
	changed bool
}

// GetObjectConvertor implements [admission.ObjectInterfaces].
func (k *keptVersions) GetObjectConvertor() runtime.ObjectConvertor {
	return keptVersion{k.ObjectInterfaces.GetObjectConvertor(), k}
}

// GetObjectDefaulter implements [admission.ObjectInterfaces].
func (k *keptVersions) GetObjectDefaulter() runtime.ObjectDefaulter { return k }

// Default implements [runtime.ObjectDefaulter].
func (k *keptVersions) Default(o runtime.Object) {
	if k.changed {
		k.ObjectInterfaces.GetObjectDefaulter().Default(o)
	}
}

type keptVersion struct {
	runtime.ObjectConvertor

	of *keptVersions
}

// Convert implements [runtime.ObjectConvertor].
func (k keptVersion) Convert(in, out, context any) error {
	if err := k.ObjectConvertor.Convert(in, out, context); err != nil {
		return err
	}
	k.of.latest = out.(runtime.Object).DeepCopyObject()
	return nil
}

// ConvertToVersion implements [runtime.ObjectConvertor].
func (k keptVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(in)
	if err != nil {
		return nil, err
	}
	out, err := k.ObjectConvertor.ConvertToVersion(in, kinds[0].GroupVersion())
	if err == nil {
		k.of.latest.GetObjectKind().SetGroupVersionKind(out.GetObjectKind().GroupVersionKind())
		k.of.changed = k.of.changed || !equality.Semantic.DeepEqual(k.of.latest, out)
	}
	return out, err
}

// Elsewhere reports whether any policy takes a request in another version than it came in.
func (p *MutatingPolicies) Elsewhere(policies []mutating.PolicyHook, req *admissionv1.AdmissionRequest) (bool, error) {
	attributes, err := p.oracle.Attributes(req)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(policies, func(hook mutating.PolicyHook) bool {
		matches, _, kind, err := p.matcher.DefinitionMatches(attributes, p.objects, mutating.NewMutatingAdmissionPolicyAccessor(hook.Policy))
		return err == nil && matches && kind != attributes.GetKind()
	}), nil
}

// typeConverters are the schemas of the API server: of built-in kinds, and of custom resources.
type typeConverters struct {
	builtin managedfields.TypeConverter
	custom  map[schema.GroupVersionKind]managedfields.TypeConverter
}

var _ patch.TypeConverterManager = typeConverters{}

// newTypeConverters has the schemas of definitions as the API server publishes them, and as the plugin reads them.
func newTypeConverters(definitions []*apiextensionsv1.CustomResourceDefinition) (patch.TypeConverterManager, error) {
	t := typeConverters{applyconfigurations.NewTypeConverter(scheme.Scheme), map[schema.GroupVersionKind]managedfields.TypeConverter{}}
	for _, crd := range definitions {
		for i := range crd.Spec.Versions {
			published, err := builder.BuildOpenAPIV3(crd, crd.Spec.Versions[i].Name, builder.Options{})
			if err != nil {
				return nil, err
			}
			raw, err := json.Marshal(published)
			if err != nil {
				return nil, err
			}
			var read spec3.OpenAPI
			if err := json.Unmarshal(raw, &read); err != nil {
				return nil, err
			}
			of, err := managedfields.NewTypeConverter(read.Components.Schemas, false)
			if err != nil {
				return nil, err
			}
			t.custom[schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[i].Name, Kind: crd.Spec.Names.Kind}] = of
		}
	}
	return t, nil
}

// GetTypeConverter implements [patch.TypeConverterManager].
func (t typeConverters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	if scheme.Scheme.IsGroupRegistered(kind.Group) {
		return t.builtin
	}
	return t.custom[kind]
}

// Run implements [patch.TypeConverterManager].
func (typeConverters) Run(context.Context) {}

// Judge admits one request by compiled policies, in their order, and once more if the plugin asks for it (reinvoker of k8s.io/apiserver/pkg/admission).
func (p *MutatingPolicies) Judge(ctx context.Context, policies []mutating.PolicyHook, req *admissionv1.AdmissionRequest) (Outcome, error) {
	attributes, err := p.oracle.Attributes(req)
	if err != nil {
		return Outcome{}, err
	}
	r := &recorder{Attributes: attributes, annotations: map[string]string{}}
	var refusal error
	if admission.NewHandler(admission.Create, admission.Update, admission.Connect).Handles(attributes.GetOperation()) { // NewPlugin
		ctx = warning.WithWarningRecorder(ctx, r)
		refusal = p.dispatch(ctx, r, policies)
		if again := r.GetReinvocationContext(); refusal == nil && again.ShouldReinvoke() {
			again.SetIsReinvoke()
			refusal = p.dispatch(ctx, r, policies)
		}
	}
	o, err := r.outcome(refusal, nil, gvkOf(req))
	if err == nil && p.carried && o.FinalObject != nil {
		o.FinalObject, err = p.oracle.Received(req, o.FinalObject)
	}
	return o, err
}

func (p *MutatingPolicies) dispatch(ctx context.Context, r *recorder, policies []mutating.PolicyHook) error {
	if !p.apart {
		return p.dispatcher.Dispatch(ctx, r, p.objects, policies)
	}
	for i := range policies {
		objects := p.objects
		if p.carried {
			objects = &keptVersions{ObjectInterfaces: objects}
		}
		if err := p.dispatcher.Dispatch(ctx, r, objects, policies[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// CompileMutatingPolicy compiles a policy as compilePolicy of the plugin does, which is not exported.
func CompileMutatingPolicy(p *mutating.Policy, bindings ...*mutating.PolicyBinding) mutating.PolicyHook {
	hook := mutating.PolicyHook{Policy: p, Bindings: bindings}
	compiler, err := cel.NewCompositedCompiler(baseEnvironment())
	if err != nil {
		hook.ConfigurationError = err
		return hook
	}
	c := policyCompiler{compiler, cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}}
	e := mutating.PolicyEvaluator{CompositedCompiler: compiler}
	for _, v := range p.Spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, c.declared, environment.StoredExpressions)
	}
	if len(p.Spec.MatchConditions) > 0 {
		var conditions []cel.ExpressionAccessor
		for i := range p.Spec.MatchConditions {
			conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
		}
		e.Matcher = matchconditions.NewMatcher(c.compile(conditions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	c.declared.HasPatchTypes = true
	for _, m := range p.Spec.Mutations {
		if m.JSONPatch != nil {
			e.Mutators = append(e.Mutators, patch.NewJSONPatcher(c.mutation(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression})))
		} else {
			e.Mutators = append(e.Mutators, patch.NewApplyConfigurationPatcher(
				c.mutation(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression})))
		}
	}
	hook.Evaluator = e
	return hook
}

func (c policyCompiler) mutation(x cel.ExpressionAccessor) cel.MutatingEvaluator {
	return c.CompileMutatingEvaluator(x, c.declared, environment.StoredExpressions)
}

// Received is an object that a patch has made of the object of a request, as the API server reads it and writes it again. A built-in object need not say
// its kind.
func (o *Oracle) Received(req *admissionv1.AdmissionRequest, raw []byte) ([]byte, error) {
	kind := gvkOf(req)
	if o.custom || !legacyscheme.Scheme.Recognizes(kind) {
		return raw, (&unstructured.Unstructured{}).UnmarshalJSON(raw)
	}
	object, _, err := legacyscheme.Codecs.UniversalDecoder(internal(kind)).Decode(raw, &kind, nil)
	if err != nil {
		return nil, err
	}
	return encode(object, kind)
}
