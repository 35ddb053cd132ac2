package policies_test

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/util/parsers"

	"github.com/portcullis-mesh/portcullis/internal/config/kinds"

	_ "github.com/portcullis-mesh/portcullis/conversion/builtin" // registers all groups
)

// TestImagesAreTakenApartAsKubernetesDoes compares with the parser of the kubelet.
func TestImagesAreTakenApartAsKubernetesDoes(t *testing.T) {
	e := expand(t, `
resources: [pods]
mode: enforce
validations:
- expression: "false"
  message: never
  messageExpression: images.map(i, [i.text, i.registry + '/' + i.repository, i.tag, i.digest].join(',')).join(';')
`, "")
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for _, text := range []string{
		"nginx", "nginx:1.27", "nginx@" + digest, "nginx:1.27@" + digest, "library/nginx", "team/app", "docker.io/nginx", "docker.io/team/app:v1",
		"index.docker.io/nginx", "registry.example.com/app", "registry.example.com/team/app:v1", "registry.example.com:5000/app",
		"registry.example.com:5000/app:5000", "registry.example.com:5000/app@" + digest, "localhost/app", "localhost:5000/app", "localhost.team/app", "Registry/app",
		"a/b/c/d:e", "10.0.0.1/app", "[::1]:5000/app",
	} {
		repository, tag, digest, err := parsers.ParseImageName(text)
		if err != nil {
			t.Fatal(text, err)
		}
		want := "denied: " + strings.Join([]string{text, repository, tag, digest}, ",")
		if got := judge(t, e, request{object: object("Pod", "default", "", image(text))}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestTheLibraryCausesNoWarnings has kube-apiserver's type checker look at expansions. It knows no field of an object but its metadata, so that each
// access to another one would be a warning.
func TestTheLibraryCausesNoWarnings(t *testing.T) {
	const all = "[string(pod), string(allContainers), string(images), string(labels), string(annotations), string(parameters)] == []"
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range legacyscheme.Scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	checker := validating.TypeChecker{SchemaResolver: metadataOnly{}, RestMapper: mapper}
	for _, resources := range []string{"[pods]", "[pods]\npodControllers: true", "[deployments, cronjobs, pods]\noperations: [DELETE]"} {
		e := expand(t, fmt.Sprintf("resources: %s\nvalidations: [{expression: %q, message: never}]", resources, strings.ReplaceAll(all, "string(", "dyn(")), "")
		for _, warning := range checker.Check(e.Policy) {
			t.Errorf("%s: %s: %s", resources, warning.FieldRef, warning.Warning)
		}
	}
}

type metadataOnly struct{}

// ResolveSchema implements [resolver.SchemaResolver].
func (metadataOnly) ResolveSchema(schema.GroupVersionKind) (*spec.Schema, error) {
	return spec.MapProperty(nil).WithProperties(map[string]spec.Schema{"metadata": *spec.MapProperty(nil)}), nil
}

// TestTheResourcesOfKubernetesExist looks each of them up among the types of Kubernetes.
func TestTheResourcesOfKubernetesExist(t *testing.T) {
	found := map[kinds.PolicyResource]bool{}
	types := legacyscheme.Scheme.AllKnownTypes()
	types[apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")] = nil
	for kind := range types {
		r, _ := meta.UnsafeGuessKindToResource(kind)
		found[kinds.PolicyResource{Group: r.Group, Version: r.Version, Resource: r.Resource}] = true
	}
	for _, r := range append(kinds.BuiltinResources(), kinds.PodControllers()...) {
		if !found[r] {
			t.Errorf("there is no %+v", r)
		}
	}
}
