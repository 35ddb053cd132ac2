package typecheck

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// publishedSchemas are the schemas that an API server publishes, as kube-controller-manager reads them to check types.
type publishedSchemas struct {
	resolver.ClientDiscoveryResolver

	read map[schema.GroupVersionKind]*spec.Schema
}

func published(t testing.TB) *publishedSchemas {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		citest.Lacks(t, "no go command finds the sources of k8s.io/kubernetes")
	}
	files := openapitest.NewFileClient(filepath.Join(strings.TrimSpace(string(out)), "api", "openapi-spec", "v3"))
	return &publishedSchemas{
		resolver.ClientDiscoveryResolver{Discovery: discoveryOf{Client: files}}, map[schema.GroupVersionKind]*spec.Schema{},
	}
}

// ResolveSchema implements [resolver.SchemaResolver], and reads each kind once.
func (p *publishedSchemas) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	if p.read[kind] == nil {
		s, err := p.ClientDiscoveryResolver.ResolveSchema(kind)
		if err != nil {
			return nil, err
		}
		p.read[kind] = s
	}
	return p.read[kind], nil
}

// discoveryOf is the discovery of an API server that has OpenAPI documents alone.
type discoveryOf struct {
	discovery.DiscoveryInterface
	openapi.Client
}

func (d discoveryOf) OpenAPIV3() openapi.Client { return d.Client }

// TestTheSchemasOfGoTypesAreTheSchemasThatKubernetesPublishes compares all kinds of Kubernetes.
func TestTheSchemasOfGoTypesAreTheSchemasThatKubernetesPublishes(t *testing.T) {
	citest.Sequential(t)
	of, compared := published(t), 0
	for _, kind := range kindsOf() {
		theirs, err := of.ResolveSchema(kind)
		if err != nil {
			continue // an API server of this release does not serve it
		}
		ours, _ := Builtin{}.SchemaOf(kind, nil)
		got, want := evaluated(ours), evaluated(theirs)
		if compared++; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s", kind, strings.Join(differences("", &got, &want), "; "))
		}
	}
	if compared < 90 {
		t.Errorf("compared %d kinds", compared)
	}
}

func differences(path string, got, want *spec.Schema) (all []string) {
	if len(got.Properties) == 0 || len(want.Properties) == 0 {
		if reflect.DeepEqual(got, want) {
			return nil
		}
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		return []string{path + ": got " + string(g) + ", want " + string(w)}
	}
	for name := range got.Properties {
		g := got.Properties[name]
		w, ok := want.Properties[name]
		if !ok {
			all = append(all, path+"."+name+": not published")
			continue
		}
		all = append(all, differences(path+"."+name, &g, &w)...)
	}
	for name := range want.Properties {
		if _, ok := got.Properties[name]; !ok {
			all = append(all, path+"."+name+": is missing")
		}
	}
	slices.Sort(all)
	return all
}

func TestResourcesHaveTheirKinds(t *testing.T) {
	for resource, want := range map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "pods"}:                                                     "Pod",
		{Version: "v1", Resource: "endpoints"}:                                                "Endpoints",
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}:              "NetworkPolicy",
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}:                    "Ingress",
		{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}:                  "StorageClass",
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinition",
		{Version: "v1", Resource: "podlists"}:                                                 "",
		{Group: "example.com", Version: "v1", Resource: "pods"}:                               "",
	} {
		if got, ok := (Builtin{}).KindOf(resource); got.Kind != want || ok != (want != "") {
			t.Errorf("%s: got %v, want %q", resource, got, want)
		}
	}
}
