package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// endpoint is something that can be asked for.
type endpoint struct {
	group, version, kind, resource, sub string
	cluster                             bool
	apiVersion                          string // of the kind, if it differs from the version of the resource
}

func endpoints() []endpoint {
	return []endpoint{
		{"", "v1", "Pod", "pods", "", false, ""}, {"", "v1", "Pod", "pods", "", false, ""}, {"", "v1", "Pod", "pods", "status", false, ""},
		{"", "v1", "PodExecOptions", "pods", "exec", false, ""}, {"", "v1", "Namespace", "namespaces", "", true, ""},
		{"", "v1", "Node", "nodes", "", true, ""},
		{"apps", "v1", "Deployment", "deployments", "", false, ""}, {"apps", "v1beta1", "Deployment", "deployments", "", false, ""},
		{"apps", "v1", "Scale", "deployments", "scale", false, "autoscaling/v1"}, {"apps", "v1beta1", "Scale", "deployments", "scale", false, ""},
		{"example.com", "v1", "Widget", "widgets", "", false, ""}, {"example.com", "v1beta1", "Widget", "widgets", "", false, ""},
		{"example.com", "v1", "Gadget", "gadgets", "", true, ""},
	}
}

func (e endpoint) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: e.group, Version: e.version, Resource: e.resource}
}

func (e endpoint) gvk() schema.GroupVersionKind {
	if e.apiVersion != "" {
		return schema.FromAPIVersionAndKind(e.apiVersion, e.kind)
	}
	return e.gvr().GroupVersion().WithKind(e.kind)
}

// served registers the endpoints.
func served() runtime.EquivalentResourceMapper {
	registry := runtime.NewEquivalentResourceRegistry()
	for _, e := range endpoints() {
		registry.RegisterKindFor(e.gvr(), e.sub, e.gvk())
	}
	return registry
}

// clusterNamespaces are the namespaces of the test cluster.
func clusterNamespaces() map[string]map[string]string {
	return map[string]map[string]string{"dev": {"env": "dev"}, "prod": {"env": "prod", "tier": "dev"}, "bare": nil}
}

// permissions are the permissions of the test cluster.
func permissions() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		switch {
		case a.GetPath() == "/broken":
			return authorizer.DecisionNoOpinion, "", errors.New("nobody knows")
		case a.GetPath() == "/open", a.IsResourceRequest() && a.GetUser().GetName() == "jane":
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "", nil
	})
}

// definitions are the custom resources of the test cluster: widgets have a schema for each version, gadgets have none.
func definitions(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	version := func(name, schema string) apiextensionsv1.CustomResourceDefinitionVersion {
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: name == "v1", Schema: &apiextensionsv1.CustomResourceValidation{}}
		if err := json.Unmarshal([]byte(schema), v.Schema); err != nil {
			t.Fatal(err)
		}
		return v
	}
	const (
		spec = `"size": {"type": "integer", "minimum": 0}, "port": {"x-kubernetes-int-or-string": true}, "replicas": {"type": "integer", "default": 1},
"tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, "sizes": {"type": "array", "items": {"type": "integer"}},
"fixed": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}`
		part  = `"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}, "kept": {"type": "boolean"}}}`
		begin = `{"openAPIV3Schema": {"type": "object", "properties": {"status": {"type": "object", "properties": {"phase": {"type": "string"}}},
"spec": {"type": "object", "properties": {`
	)
	return []*apiextensionsv1.CustomResourceDefinition{
		{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Widget", Plural: "widgets"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				version("v1", begin+spec+`, "parts": {`+part+`, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
"extra": {"type": "object", "additionalProperties": {"type": "string"}},
"template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}}}}`),
				version("v1beta1", begin+spec+`, "parts": {`+part+`}}}}}}`),
			},
		}},
		{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Gadget", Plural: "gadgets"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				version("v1", `{"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}`),
			},
		}},
	}
}

// newOracle is an API server of the test cluster.
func newOracle(t testing.TB) *oracle.Oracle {
	t.Helper()
	return oracle.New(t, oracle.Options{
		Namespaces: clusterNamespaces(), Authorizer: permissions(), Equivalents: served(), Definitions: definitions(t),
	})
}

// cluster is the test cluster, as the mesh knows it.
type cluster struct {
	match.Unknown

	codec   *builtin.Codec
	served  runtime.EquivalentResourceMapper
	defined []*custom.Definition
}

// newCluster is the test cluster.
func newCluster(t testing.TB) cluster {
	t.Helper()
	c := cluster{codec: builtin.New(builtin.Options{}), served: served()}
	for _, crd := range definitions(t) {
		d, err := custom.Compile(crd)
		if err != nil {
			t.Fatal(err)
		}
		c.defined = append(c.defined, d)
	}
	return c
}

func (c cluster) MergeType(kind schema.GroupVersionKind, book func(int64) error) (*typed.ParseableType, error) {
	if d := c.definition(kind); d != nil {
		return d.MergeType(kind, book)
	}
	return nil, nil //nolint:nilnil // as documented
}

// definition is the definition of a custom resource; nil for other kinds.
func (c cluster) definition(kind schema.GroupVersionKind) *custom.Definition {
	for _, d := range c.defined {
		if d.Kind() == kind.Kind && d.Group() == kind.Group {
			return d
		}
	}
	return nil
}

var _ match.Cluster = cluster{}

func (cluster) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	set, ok := clusterNamespaces()[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return set, nil
}

func (c cluster) Equivalents(resource schema.GroupVersionResource, subresource string) (all []conversion.ResourceKind, _ error) {
	for _, r := range c.served.EquivalentResourcesFor(resource, subresource) {
		all = append(all, conversion.ResourceKind{Resource: r, Subresource: subresource, Kind: c.served.KindFor(r, subresource)})
	}
	return all, nil
}

func (c cluster) Convert(ctx context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	if d := c.definition(to); d != nil {
		return d.Convert(ctx, object, to, nil)
	}
	return c.codec.Convert(object, to)
}

func (cluster) Authorizer() authorizer.Authorizer { return permissions() }

// sent is a request as the API server sends it, with its objects defaulted and encoded anew.
func sent(t testing.TB, o *oracle.Oracle, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	t.Helper()
	a, err := o.Attributes(req)
	if err != nil {
		t.Fatalf("%v: %v", err, req)
	}
	versioned, err := o.Versioned(a, a.GetKind())
	if err != nil {
		t.Fatal(err)
	}
	return &admissionv1.AdmissionRequest{
		Uid: "u", Cluster: "c", Kind: req.GetKind(), Resource: req.GetResource(), SubResource: req.GetSubResource(),
		RequestKind: req.GetKind(), RequestResource: req.GetResource(), RequestSubResource: req.GetSubResource(),
		Name: req.GetName(), Namespace: req.GetNamespace(), Operation: req.GetOperation(), UserInfo: req.GetUserInfo(),
		Object: encoded(t, versioned.VersionedObject), OldObject: encoded(t, versioned.VersionedOldObject), Options: req.GetOptions(), DryRun: req.DryRun,
	}
}

func encoded(t testing.TB, o runtime.Object) *admissionv1.Object {
	t.Helper()
	if o == nil {
		return nil
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return &admissionv1.Object{Raw: raw}
}

func written(content map[string]any, e endpoint) *admissionv1.Object {
	content["apiVersion"], content["kind"] = e.gvk().ToAPIVersionAndKind()
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err) // maps of strings can be marshalled
	}
	return &admissionv1.Object{Raw: raw}
}
