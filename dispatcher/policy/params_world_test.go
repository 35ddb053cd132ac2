package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
)

// Kinds of params: objects in namespaces, which kube-apiserver reads as Go types; custom resources in none; and custom resources that nobody serves.
var (
	configMapParams = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	limitParams     = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}
	missingParams   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Missing"}
)

// paramObjects are the params in the test cluster, in order.
func paramObjects() (all []runtime.Object) {
	configMap := func(namespace, name, tier, value string) {
		all = append(all, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"tier": tier}}, Data: map[string]string{"most": value},
		})
	}
	limit := func(name, tier string, value any) {
		all = append(all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Limit", "metadata": map[string]any{"name": name, "labels": map[string]any{"tier": tier}},
			"spec": map[string]any{"most": value},
		}})
	}
	configMap("dev", "limits", "a", "2")
	configMap("dev", "more", "a", "3")
	configMap("dev", "other", "b", "none")
	configMap("prod", "limits", "b", "1")
	limit("limits", "a", int64(2))
	limit("more", "a", int64(4))
	limit("other", "b", "none")
	return all
}

// selected are the params that a selection means.
func selected(s match.Selection) (all []runtime.Object) {
	by, err := labels.Parse(s.Selector)
	if err != nil {
		panic(err) // selectors of the mesh can be parsed
	}
	for _, o := range paramObjects() {
		_, custom := o.(*unstructured.Unstructured)
		m, err := meta.Accessor(o)
		if err != nil {
			panic(err) // objects have metadata
		}
		if custom == (s.Kind == limitParams) && m.GetNamespace() == s.Namespace && (s.Name == "" || s.Name == m.GetName()) && by.Matches(labels.Set(m.GetLabels())) {
			all = append(all, o)
		}
	}
	return all
}

// Namespaced implements [match.Cluster].
func (cluster) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	if kind == missingParams {
		return false, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	return kind == configMapParams, nil
}

// Objects implements [match.Cluster].
func (cluster) Objects(_ context.Context, s match.Selection) (all []*unstructured.Unstructured, _ error) {
	objects := selected(s)
	if s.Kind == match.NamespaceKind {
		objects = nil
		if set, ok := clusterNamespaces()[s.Name]; ok {
			objects = []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: set}}}
		}
	}
	for _, o := range objects {
		all = append(all, asRead(o, s.Kind))
	}
	return all, nil
}

// asRead is an object as the mesh reads it.
func asRead(o runtime.Object, kind schema.GroupVersionKind) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // objects have no fields that cannot be written
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	return u
}

// configured are the params of a kind in the configuration: the objects that the test cluster has, some of them for all clusters and others for this one,
// and an object for another cluster; nil for a kind of which there are none.
func configured(t testing.TB, k *admissionregistrationv1.ParamKind) *policy.Params {
	t.Helper()
	kind := kindOfParams(k)
	if kind == nil || *kind == missingParams {
		return nil
	}
	everywhere, here, elsewhere := policy.ParamSet{}, policy.ParamSet{Clusters: []string{"b", "c"}}, policy.ParamSet{Clusters: []string{"a"}}
	for i, o := range slices.Backward(paramObjects()) {
		if _, custom := o.(*unstructured.Unstructured); custom != (*kind == limitParams) {
			continue
		}
		into := &everywhere
		if i%2 == 0 {
			into = &here
		}
		into.Objects = append(into.Objects, asRead(o, *kind))
	}
	other := everywhere.Objects[0].DeepCopy()
	other.SetName("missing")
	elsewhere.Objects = append(elsewhere.Objects, other)
	p, conflicts := policy.NewParams([]policy.ParamSet{elsewhere, here, everywhere})
	if len(conflicts) > 0 {
		t.Fatal(conflicts)
	}
	return p
}

// unasked is the test cluster, which cannot be asked for params.
type unasked struct{ cluster }

func (u unasked) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	if kind != missingParams {
		return false, errors.New("the cluster was asked")
	}
	return u.cluster.Namespaced(kind)
}

func (u unasked) Objects(ctx context.Context, s match.Selection) ([]*unstructured.Unstructured, error) {
	if s.Kind != match.NamespaceKind {
		return nil, errors.New("the cluster was asked")
	}
	return u.cluster.Objects(ctx, s)
}

// informer is the informer of a kind of params, as kube-apiserver has it.
type informer struct {
	cache.SharedIndexInformer

	kind      schema.GroupVersionKind
	namespace string
	named     bool // its objects have the kind, which objects of Go types have not
}

var (
	_ informers.GenericInformer    = informer{}
	_ cache.GenericLister          = informer{}
	_ cache.GenericNamespaceLister = informer{}
)

func (i informer) Informer() cache.SharedIndexInformer { return i }

func (i informer) HasSynced() bool { return true }

func (i informer) Lister() cache.GenericLister { return i }

func (i informer) ByNamespace(namespace string) cache.GenericNamespaceLister {
	i.namespace = namespace
	return i
}

func (i informer) List(selector labels.Selector) ([]runtime.Object, error) {
	return i.objects(match.Selection{Kind: i.kind, Namespace: i.namespace, Selector: selector.String()}), nil
}

func (i informer) Get(name string) (runtime.Object, error) {
	if found := i.objects(match.Selection{Kind: i.kind, Namespace: i.namespace, Name: name}); len(found) > 0 {
		return found[0], nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "params"}, name)
}

func (i informer) objects(s match.Selection) []runtime.Object {
	all := selected(s)
	for _, o := range all {
		if i.named {
			o.GetObjectKind().SetGroupVersionKind(i.kind)
		}
	}
	return all
}

// kindOfParams is the kind of a paramKind; nil without one.
func kindOfParams(k *admissionregistrationv1.ParamKind) *schema.GroupVersionKind {
	if k == nil {
		return nil
	}
	kind := schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)
	return &kind
}

// informerOf is the knowledge of kube-apiserver's policy source about the params of a policy.
func informerOf(k *admissionregistrationv1.ParamKind) (of informers.GenericInformer, scope meta.RESTScope, err error) {
	switch kind := kindOfParams(k); {
	case kind == nil:
		return nil, nil, nil
	case *kind == missingParams:
		return nil, nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", *kind)
	case *kind == configMapParams:
		return informer{kind: *kind}, meta.RESTScopeNamespace, nil
	default:
		return informer{kind: *kind}, meta.RESTScopeRoot, nil
	}
}

// paramKind is a kind of params, or none.
func (r random) paramKind() *admissionregistrationv1.ParamKind {
	kind := pick(r, configMapParams, configMapParams, configMapParams, limitParams, limitParams, missingParams)
	if kind == missingParams && !r.in(4) {
		kind = configMapParams
	}
	version, name := kind.ToAPIVersionAndKind()
	return &admissionregistrationv1.ParamKind{APIVersion: version, Kind: name}
}

// paramRef names params, or a selector, or nothing.
func (r random) paramRef() *admissionregistrationv1.ParamRef {
	if r.in(6) {
		return nil
	}
	action := pick(r, admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction)
	ref := &admissionregistrationv1.ParamRef{ParameterNotFoundAction: &action}
	if r.in(3) {
		ref.Namespace = pick(r, "dev", "prod")
	}
	if r.in(2) {
		ref.Name = pick(r, "limits", "more", "other", "missing")
	} else {
		ref.Selector = pick(r, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "a"}},
			&metav1.LabelSelector{MatchLabels: map[string]string{"tier": "c"}},
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}}})
	}
	return ref
}

// paramTexts are boolean expressions about params, and namespaceTexts about the namespace of the request.
func paramTexts() []string {
	return []string{
		`params == null`, `params != null && params.metadata.name == "limits"`, `params.data.most != "2"`, `int(params.data.most) > 2`, `params.spec.most == 2`,
		`params.spec.most > 2`, `params.kind == "ConfigMap"`, `params.apiVersion == "v1"`, `!has(params.metadata.namespace) || params.metadata.namespace == request.namespace`,
		`params.metadata.labels.tier == "a"`,
	}
}

func namespaceTexts() []string {
	return []string{
		`namespaceObject == null`, `namespaceObject != null`, `namespaceObject.metadata.name == request.namespace`, `namespaceObject.metadata.labels["env"] == "dev"`,
		`has(namespaceObject.metadata.labels)`, `has(namespaceObject.metadata.annotations)`, `namespaceObject.status.phase == "Active"`,
		`has(namespaceObject.spec.finalizers)`, `has(dyn(namespaceObject).kind)`, `dyn(namespaceObject).metadata.uid == ""`,
	}
}

// TestPoliciesFailWhereTheClusterCannotBeAsked has policies that need more of the cluster than labels, and a cluster of which nothing is known.
func TestPoliciesFailWhereTheClusterCannotBeAsked(t *testing.T) {
	l := newLaboratory(t)
	for name, change := range map[string]func(p *admissionregistrationv1.ValidatingAdmissionPolicySpec){
		"failed to configure policy: the params of kind ConfigMap: its objects are unknown: give the Cluster document spec.kubeconfig or spec.bridge": func(
			p *admissionregistrationv1.ValidatingAdmissionPolicySpec,
		) {
			p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		},
		"failed to configure policy: the namespaceObject: its objects are unknown: give the Cluster document spec.kubeconfig or spec.bridge": func(
			p *admissionregistrationv1.ValidatingAdmissionPolicySpec,
		) {
			p.Validations[0].MessageExpression = "namespaceObject.metadata.name"
		},
	} {
		for _, failure := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			r := newRandom(1)
			p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule([]string{"*"}, []string{"*"}, []string{"*/*"}, "*")},
			}
			p.Spec.FailurePolicy, p.Spec.Validations = &failure, []admissionregistrationv1.Validation{{Expression: "false"}}
			change(&p.Spec)
			compiled := l.compile.Compile(p).Bind([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{{
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{ParamRef: r.paramRef()},
			}})
			request := r.request()
			request.Namespace = "dev"

			v, err := compiled.Judge(t.Context(), match.NewAttributes(sent(t, l.oracle, request), match.Unknown{}), nil, nil)

			said := ""
			switch {
			case failure == admissionregistrationv1.Fail:
				said = v.GetStatus().GetMessage()
			case v.GetAllowed() && err != nil:
				said = err.Error()
			}
			if !strings.HasSuffix(said, name) {
				t.Errorf("%s: allowed %t, %q, want %q", failure, v.GetAllowed(), said, name)
			}
		}
	}
}

// counted is a cluster that counts the questions of policies.
type counted struct {
	cluster

	asked []match.Selection
}

func (c *counted) Objects(ctx context.Context, s match.Selection) ([]*unstructured.Unstructured, error) {
	c.asked = append(c.asked, s)
	return c.cluster.Objects(ctx, s)
}

// TestParamsThatDoNotMatchAreNotAskedFor has bindings of which one in a hundred is for the request.
func TestParamsThatDoNotMatchAreNotAskedFor(t *testing.T) {
	l := newLaboratory(t)
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "params.metadata.name == 'limits'"}}
	var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for i := range 100 {
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)}}
		b.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "limits"}
		b.Spec.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(i)}}}
		bindings = append(bindings, b)
	}
	request, known := sent(t, l.oracle, newRandom(1).request()), &counted{cluster: l.known}
	request.Namespace, request.Object = "dev", written(map[string]any{"metadata": map[string]any{"name": "x", "labels": map[string]string{"team": "7"}}}, endpoints()[0])

	v, err := l.compile.Compile(p).Bind(bindings).Judge(t.Context(), match.NewAttributes(request, known), nil, nil)

	if want := []match.Selection{{Kind: configMapParams, Namespace: "dev", Name: "limits"}}; !v.GetAllowed() || err != nil || !slices.Equal(known.asked, want) {
		t.Errorf("allowed %t, %v, asked for %+v", v.GetAllowed(), err, known.asked)
	}
}
