package typecheck

import (
	"slices"
	"strings"
	"testing"

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
	p.Constraints.ResourceRules[0].Resources = []string{
		"bindings", "configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "secrets", "services",
	}
	p.Constraints.ResourceRules = append(p.Constraints.ResourceRules, podPolicy("deployments").Constraints.ResourceRules...)
	if got := c.targets(p.Constraints); len(got) != MaxKinds {
		t.Errorf("got %d kinds", len(got))
	}
}

// TestAKindWhoseTypesAreNotKnownIsNotChecked has subresources, wildcards and unknown resources too.
func TestAKindWhoseTypesAreNotKnownIsNotChecked(t *testing.T) {
	for _, resource := range []string{"*", "pods/*", "pods/exec", "widgets"} {
		if got := New(Builtin{}).targets(podPolicy(resource).Constraints); len(got) > 0 {
			t.Errorf("%s: got %v", resource, got)
		}
	}
	if of := New(Builtin{}).typeOf(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}); of != nil {
		t.Errorf("got %v", of)
	}
}
