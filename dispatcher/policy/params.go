package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// param is an object by which a policy is evaluated; nil for none. Its pointer identifies it.
type param = *unstructured.Unstructured

// withoutParam is the list for a policy, or a binding, that has no params.
//
//nolint:gochecknoglobals // a constant
var withoutParam = []param{nil}

// paramKindOf is spec.paramKind of a policy; nil without one.
func paramKindOf(k *admissionregistrationv1.ParamKind) *schema.GroupVersionKind {
	if k == nil {
		return nil
	}
	kind := schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)
	return &kind
}

// paramRef is spec.paramRef of a binding.
type paramRef struct {
	*admissionregistrationv1.ParamRef

	selector labels.Selector
	err      error
}

// newParamRef reads a spec.paramRef; nil without one.
func newParamRef(r *admissionregistrationv1.ParamRef) *paramRef {
	if r == nil {
		return nil
	}
	ref := &paramRef{ParamRef: r}
	switch {
	case r.Name != "" && r.Selector != nil:
		ref.err = errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case r.Name == "" && r.Selector == nil:
		ref.err = errors.New("one of name or selector must be provided")
	case r.Selector != nil:
		ref.selector, ref.err = metav1.LabelSelectorAsSelector(r.Selector)
	}
	return ref
}

// paramSource is where a policy finds its params for one request.
type paramSource struct {
	attributes *match.Attributes
	kind       *schema.GroupVersionKind // nil without params
	namespaced bool
	shelves    []*shelf // of the configuration; none for the objects of the cluster
}

// paramsFor looks the kind of the params up in the configuration, or else in the cluster of a request (ensureParamsForPolicyLocked of k8s.io/apiserver's
// policy source).
func (p *compiled) paramsFor(a *match.Attributes) (s paramSource, err error) {
	s = paramSource{attributes: a, kind: p.paramKind}
	if s.kind == nil {
		return s, nil
	}
	if s.shelves, err = p.configured.in(a.ClusterName()); len(s.shelves) > 0 {
		if err != nil {
			err = fmt.Errorf("the params of kind %s: %w", s.kind.Kind, err)
		}
		s.namespaced = s.shelves[0].items[0].namespace != ""
		return s, err
	}
	switch s.namespaced, err = a.Cluster().Namespaced(*s.kind); {
	case meta.IsNoMatchError(err):
		return s, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", *s.kind)
	case err != nil:
		return s, fmt.Errorf("the params of kind %s: %w", s.kind.Kind, err)
	}
	return s, nil
}

// collect returns the params of a binding: none if there are none and the binding allows that (CollectParams of k8s.io/apiserver's policy dispatcher).
func (s *paramSource) collect(ctx context.Context, ref *paramRef) ([]param, error) {
	if s.kind == nil || ref == nil {
		return withoutParam, nil
	}
	namespace := ""
	switch {
	case s.namespaced:
		if namespace = cmp.Or(ref.Namespace, s.attributes.Namespace()); namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	case ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	}
	if ref.err != nil {
		return nil, ref.err
	}
	params, err := s.selected(ctx, match.Selection{Kind: *s.kind, Namespace: namespace, Name: ref.Name}, ref.selector)
	if err != nil {
		return nil, err
	}
	if action := ref.ParameterNotFoundAction; len(params) == 0 && action != nil && *action == admissionregistrationv1.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return params, nil
}

// selected are the params that a selection means. by selects them by label, without a name.
func (s *paramSource) selected(ctx context.Context, of match.Selection, by labels.Selector) ([]param, error) {
	if len(s.shelves) > 0 {
		return selected(s.shelves, of, by), nil
	}
	if by != nil {
		of.Selector = by.String()
	}
	return s.attributes.Cluster().Objects(ctx, of) //nolint:wrapcheck // it names the cluster and the kind
}

// withParam is the request with a param.
func (in *input) withParam(p param) *input {
	if p == nil && in.params == nil {
		return in
	}
	changed := *in
	if changed.params = nil; p != nil {
		changed.params, changed.longest = p.Object, in.longest.Or(conversion.LongestOf(p.Object))
	}
	return &changed
}

// lookUpNamespace sets namespaceObject to the namespace of the request. It stays null for an object in none, and for a Namespace itself. A namespace that
// does not exist refuses the request, whatever the failurePolicy.
func (in *input) lookUpNamespace(ctx context.Context, a *match.Attributes) (refused *admissionv1.AdmissionResponse, err error) {
	name := a.Namespace()
	if in.namespace != nil || name == "" || a.Requested().Kind == match.NamespaceKind {
		return nil, nil //nolint:nilnil // no refusal
	}
	found, err := a.Cluster().Objects(ctx, match.Selection{Kind: match.NamespaceKind, Name: name})
	switch {
	case err != nil:
		return nil, fmt.Errorf("the namespaceObject: %w", err)
	case len(found) == 0:
		s := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name).ErrStatus
		return &admissionv1.AdmissionResponse{Status: &admissionv1.Status{
			Status: s.Status, Code: s.Code, Reason: string(s.Reason), Message: s.Message,
			Details: &admissionv1.StatusDetails{
				Kind: s.Details.Kind, Name: s.Details.Name, Causes: []*admissionv1.StatusCause{{Message: s.Message}},
			},
		}}, nil
	}
	namespace := namespaceObject(found[0])
	in.namespace, in.longest = namespace, in.longest.Or(conversion.LongestOf(namespace))
	return nil, nil //nolint:nilnil // no refusal
}

// namespaceFor is lookUpNamespace for a policy that may read it.
func (p *compiled) namespaceFor(ctx context.Context, in *input, a *match.Attributes) (refused *admissionv1.AdmissionResponse, err error) {
	if !p.readsNamespace {
		return nil, nil //nolint:nilnil // no refusal
	}
	return in.lookUpNamespace(ctx, a)
}

// namespaceObject is a namespace as expressions see it (CreateNamespaceObject of k8s.io/apiserver's plugin/cel).
func namespaceObject(namespace *unstructured.Unstructured) map[string]any {
	metadata := map[string]any{}
	of, _ := namespace.Object["metadata"].(map[string]any)
	for _, field := range []string{
		"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
	} {
		if value, ok := of[field]; ok {
			metadata[field] = value
		}
	}
	object := map[string]any{"metadata": metadata, "spec": map[string]any{}, "status": map[string]any{}}
	for _, field := range []string{"spec", "status"} {
		if value, ok := namespace.Object[field]; ok {
			object[field] = value
		}
	}
	return object
}

// asked is an expression of a policy, and its field below the spec.
type asked struct{ field, text string }

// ask notes an expression.
func (p *compiled) ask(text, format string, i int) {
	x := asked{fmt.Sprintf(format, i), text}
	p.expressions = append(p.expressions, x)
	p.readsNamespace = p.readsNamespace || x.asks(match.CodeNamespaceObject)
}

// asks reports whether an expression may ask the cluster something. matchConditions have no namespaceObject.
func (x *asked) asks(code string) bool {
	if code == match.CodeNamespaceObject {
		return strings.Contains(x.text, cel.NamespaceVarName) && !strings.HasPrefix(x.field, ".matchConditions")
	}
	return strings.Contains(x.text, cel.AuthorizerVarName)
}

// Asks implements [match.Policy].
func (p *compiled) Asks(cluster string) (all []match.Question) {
	if known, _ := p.configured.in(cluster); p.paramKind != nil && len(known) == 0 {
		all = append(all, match.Question{Code: match.CodeParams, Field: ".paramKind", Kind: *p.paramKind})
	}
	for _, code := range []string{match.CodeNamespaceObject, match.CodeAuthorizer} {
		if i := slices.IndexFunc(p.expressions, func(x asked) bool { return x.asks(code) }); i >= 0 {
			all = append(all, match.Question{Code: code, Field: p.expressions[i].field})
		}
	}
	return all
}
