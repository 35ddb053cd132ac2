package custom

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
)

func TestADefinitionKnowsWhatItDefines(t *testing.T) {
	crd := definition("v1")
	d := compiled(t, crd)
	crd.Spec.Group = "changed"
	if d.Group() != "example.com" || d.Plural() != "widgets" || d.Kind() != "Widget" {
		t.Errorf("%s %s %s", d.Group(), d.Plural(), d.Kind())
	}
	fromFile := definition("v1")
	fromFile.Status, fromFile.Spec.Conversion = apiextensionsv1.CustomResourceDefinitionStatus{}, nil
	if d = compiled(t, fromFile); d.Plural() != "widgets" || d.Kind() != "Widget" {
		t.Errorf("%s %s without a status", d.Plural(), d.Kind())
	}
	accepted := definition("v1")
	accepted.Spec.Names.Plural = "taken"
	if d = compiled(t, accepted); d.Plural() != "widgets" {
		t.Errorf("%s, which was not accepted", d.Plural())
	}
}

// register copies crdHandler.getOrCreateServingInfoFor of customresource_handler.go.
func register(crd *apiextensionsv1.CustomResourceDefinition) runtime.EquivalentResourceRegistry {
	registry := runtime.NewEquivalentResourceRegistry()
	for _, v := range crd.Spec.Versions {
		resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Status.AcceptedNames.Plural}
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Status.AcceptedNames.Kind}
		registry.RegisterKindFor(resource, "", kind)
		if v.Subresources == nil {
			continue
		}
		if v.Subresources.Status != nil {
			registry.RegisterKindFor(resource, "status", kind)
		}
		if v.Subresources.Scale != nil {
			registry.RegisterKindFor(resource, "scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
		}
	}
	return registry
}

func TestEquivalentsAreThoseOfTheAPIServer(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		names := []string{"v1", "v2", "v1beta1", "v1alpha1"}
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		crd := definition(names[:1+rng.IntN(len(names))]...)
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			v.Served = rng.IntN(3) > 0
			if rng.IntN(2) > 0 {
				v.Subresources = &apiextensionsv1.CustomResourceSubresources{}
			}
			if v.Subresources != nil && rng.IntN(2) > 0 {
				v.Subresources.Status = &apiextensionsv1.CustomResourceSubresourceStatus{}
			}
			if v.Subresources != nil && rng.IntN(2) > 0 {
				v.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{}
			}
		}
		registry, d := register(crd), compiled(t, crd)
		for _, subresource := range []string{"", "status", "scale", "other"} {
			first := schema.GroupVersionResource{Group: "example.com", Version: crd.Spec.Versions[0].Name, Resource: "widgets"}
			var want []conversion.ResourceKind
			for _, r := range registry.EquivalentResourcesFor(first, subresource) {
				want = append(want, conversion.ResourceKind{Resource: r, Subresource: subresource, Kind: registry.KindFor(r, subresource)})
			}
			if diff := cmp.Diff(want, d.Equivalents(subresource)); diff != "" {
				t.Fatalf("%q of %v (-want +got):\n%s", subresource, crd.Spec.Versions, diff)
			}
		}
	}
}

func TestADefinitionThatCannotBeServedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*apiextensionsv1.CustomResourceDefinition)
		want string
	}{
		"no group":          {func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Group = "" }, "its group, its plural or its kind is empty"},
		"no version":        {func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions = nil }, "no version"},
		"one version twice": {func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[1].Name = "v1" }, `"v1" is there twice`},
		"no names": {func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Status.AcceptedNames.Kind, crd.Spec.Names.Kind = "", ""
		}, "its group, its plural or its kind is empty"},
		"another strategy": {func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Conversion.Strategy = "CEL" }, `unknown conversion strategy "CEL"`},
		"a webhook without address": {func(crd *apiextensionsv1.CustomResourceDefinition) {
			withWebhook(crd, "", nil, "v1")
		}, "neither url nor service"},
		"a webhook without clientConfig": {func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Conversion.Strategy = apiextensionsv1.WebhookConverter
		}, "no webhook.clientConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			crd := definition("v1", "v2")
			c.edit(crd)
			_, err := Compile(crd)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "widgets.example.com") {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
