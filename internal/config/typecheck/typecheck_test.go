package typecheck

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestTheWorkForAPolicyIsBounded has a policy whose expressions are too much work for all of its kinds, up to a policy that is too much for any kind.
func TestTheWorkForAPolicyIsBounded(t *testing.T) {
	wrong := "object.spec.x == '" + strings.Repeat("x", 10_000) + "'"
	kinds := func(expressions int) (n int) {
		p := podPolicy("pods", slices.Repeat([]string{wrong}, expressions)...)
		p.Constraints.ResourceRules[0].Resources = []string{"deployments", "pods", "services", "statefulsets"}
		warnings, ok := New(Builtin{}).Check(t.Context(), p)
		if !ok {
			t.Fatal("not checked")
		}
		if len(warnings) == 0 {
			return 0
		}
		return len(warnings[0].Kinds)
	}
	for expressions, want := range map[int]int{1: 4, 10: 2, 20: 1, 30: 0} {
		if got := kinds(expressions); got != want {
			t.Errorf("%d expressions of %d bytes are checked for %d kinds, want %d", expressions, len(wrong), got, want)
		}
	}
}

func TestTheWorkForAllPoliciesIsBounded(t *testing.T) {
	c, p := New(Builtin{}), podPolicy("pods", slices.Repeat([]string{"object.spec.x"}, 100)...)
	c.work = MaxTotalWork - 80_000
	for i, want := range []bool{true, true, false} {
		if _, ok := c.Check(t.Context(), p); ok != want {
			t.Errorf("policy %d: got %t", i, ok)
		}
	}
}

func TestAtMostTenKindsAreChecked(t *testing.T) {
	c, p := New(Builtin{}), podPolicy("pods")
	rule := &p.Constraints.ResourceRules[0]
	rule.APIGroups = []string{"apps", "batch", "rbac.authorization.k8s.io"}
	rule.Resources = []string{
		"clusterrolebindings", "clusterroles", "controllerrevisions", "cronjobs", "daemonsets", "deployments", "jobs", "replicasets", "rolebindings", "roles", "statefulsets",
	}
	first := c.targets(p.Constraints)
	p.Constraints.ResourceRules = append(p.Constraints.ResourceRules, podPolicy("pods").Constraints.ResourceRules...)
	if got := c.targets(p.Constraints); len(got) != MaxKinds || !slices.Equal(got, first) {
		t.Errorf("got %v, want the first %d kinds: %v", got, MaxKinds, first)
	}
}

// TestAKindWhoseTypesAreNotKnownIsNotChecked has subresources, wildcards and unknown resources too.
func TestAKindWhoseTypesAreNotKnownIsNotChecked(t *testing.T) {
	for _, resource := range []string{"*", "pods/*", "pods/exec", "widgets"} {
		if got := New(Builtin{}).targets(podPolicy(resource).Constraints); len(got) > 0 {
			t.Errorf("%s: got %v", resource, got)
		}
	}
	of, err := New(Builtin{}).typeOf(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	if err != nil || of.DeclType != nil {
		t.Errorf("got %v, %v", of, err)
	}
}

// TestTheSchemasOfCustomResourcesAreBounded has schemas at the bound and above it.
func TestTheSchemasOfCustomResourcesAreBounded(t *testing.T) {
	const empty = len(`{"type":"object","properties":{"":{"type":"string"}}}`)
	widgets := func(bytes int) *Custom {
		version := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				strings.Repeat("x", bytes-empty): {Type: "string", Description: "not counted"},
			}},
		}}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Spec.Group, crd.Spec.Names.Kind, crd.Spec.Names.Plural = "apps", "Widget", "widgets"
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
		c := NewCustom()
		c.Add(crd)
		return c
	}
	for _, test := range []struct {
		bytes, done int
		warnings    int
		ok          bool
	}{
		{1000, 0, 1, true},
		{MaxSchema, 0, 1, true},
		{MaxSchema + 1, 0, 0, true},
		{1000, MaxTotalWork - 1000, 0, false},
		{MaxSchema, MaxTotalWork - MaxSchema - environmentWork, 0, false}, // the schema, and no environment of it
	} {
		c := New(widgets(test.bytes))
		c.work = test.done
		if warnings, ok := c.Check(t.Context(), podPolicy("widgets", "object.wrong")); len(warnings) != test.warnings || ok != test.ok {
			t.Errorf("%+v: got %v, %t", test, warnings, ok)
		}
		if c.work > MaxTotalWork {
			t.Errorf("%+v: %d bytes of work", test, c.work)
		}
	}
}
