package match_test

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// clusterNamespaces are the namespaces of the test cluster. "broken" cannot be read, all others are missing.
func clusterNamespaces() map[string]map[string]string {
	return map[string]map[string]string{"dev": {"env": "dev"}, "prod": {"env": "prod", "tier": "dev"}, "bare": nil}
}

// errBroken has a status of its own, which the client must not get to see as the status of its write.
func errBroken() error {
	return apierrors.NewForbidden(corev1.Resource("namespaces"), "broken", errors.New("not for you"))
}

// namespaces is a cluster of which the namespaces are known.
type namespaces struct{ match.Unknown }

func (namespaces) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	if name == "broken" {
		return nil, errBroken()
	}
	set, ok := clusterNamespaces()[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return set, nil
}

// cluster is the whole of the test cluster.
type cluster struct {
	namespaces
	served

	authorizer authorizer.Authorizer
}

// served are the resources of the test cluster.
type served struct {
	runtime.EquivalentResourceMapper

	// unknown has no kind, which no API server has ever managed, and for which it is prepared all the same.
	unknown schema.GroupVersionResource
}

// serve registers the endpoints, in random order: it is the order in which equivalents are tried.
func (r random) serve() served {
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(resource schema.GroupResource) string {
		if resource.Group == "extensions" {
			return "apps/" + resource.Resource
		}
		return resource.Group + "/" + resource.Resource
	})
	all := endpoints()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, e := range all {
		registry.RegisterKindFor(e.gvr(), e.sub, e.gvk())
	}
	s := served{EquivalentResourceMapper: registry}
	if r.maybe(2) {
		s.unknown = all[0].gvr()
	}
	return s
}

// KindFor is a look-up of the API server.
func (s served) KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	if resource == s.unknown {
		return schema.GroupVersionKind{}
	}
	return s.EquivalentResourceMapper.KindFor(resource, subresource)
}

// Equivalents implements [match.Cluster].
func (s served) Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	var ways []conversion.ResourceKind
	for _, r := range s.EquivalentResourcesFor(resource, subresource) {
		ways = append(ways, conversion.ResourceKind{Resource: r, Subresource: subresource, Kind: s.KindFor(r, subresource)})
	}
	return ways, nil
}

// Convert implements [match.Cluster] with the conversions of the API server.
func (cluster) Convert(_ context.Context, object []byte, to schema.GroupVersionKind) ([]byte, error) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(object); err != nil {
		return nil, err
	}
	from, in := u.GroupVersionKind(), runtime.Object(u)
	if legacyscheme.Scheme.Recognizes(from) {
		internal := schema.GroupVersion{Group: from.Group, Version: runtime.APIVersionInternal}
		var err error
		if in, err = runtime.Decode(legacyscheme.Codecs.UniversalDecoder(internal), object); err != nil {
			return nil, err
		}
	}
	out, err := admission.ConvertToGVK(in, to, objectInterfaces(nil))
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// Authorizer implements [match.Cluster].
func (c cluster) Authorizer() authorizer.Authorizer { return c.authorizer }

// permissions are the permissions of the test cluster: all users may read /open, and Jane may change the object of the request.
func permissions() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		switch {
		case a.GetPath() == "/broken":
			return authorizer.DecisionNoOpinion, "", errors.New("nobody knows")
		case a.GetPath() == "/open", a.IsResourceRequest() && a.GetUser().GetName() == "jane" && a.GetAPIVersion() != "v1beta1":
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, "", nil
	})
}

// objectInterfaces are the interfaces that the handlers of the test cluster hand to admission: built-in kinds are Kubernetes' own.
func objectInterfaces(equivalents runtime.EquivalentResourceMapper) admission.ObjectInterfaces {
	scheme := legacyscheme.Scheme
	return &admission.RuntimeObjectInterfaces{
		ObjectCreater: maker{scheme}, ObjectTyper: scheme, ObjectDefaulter: scheme, ObjectConvertor: convertor{scheme},
		EquivalentResourceMapper: equivalents,
	}
}

// maker makes custom resources too.
type maker struct{ runtime.ObjectCreater }

func (c maker) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if kind.Group == "example.com" {
		return &unstructured.Unstructured{}, nil
	}
	return c.ObjectCreater.New(kind)
}

// convertor converts custom resources too, but for those that are large.
type convertor struct{ runtime.ObjectConvertor }

var errLarge = errors.New("it is too large to be converted")

func (c convertor) Convert(in, out, context any) error {
	from, custom := in.(*unstructured.Unstructured)
	if !custom {
		return c.ObjectConvertor.Convert(in, out, context)
	}
	if size, _, _ := unstructured.NestedFieldNoCopy(from.Object, "spec", "size"); size == "large" {
		return errLarge
	}
	out.(*unstructured.Unstructured).Object = from.DeepCopy().Object
	return nil
}
