package typecheck

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func podPolicy(resource string, expressions ...string) *Policy {
	rule := admissionregistrationv1.NamedRuleWithOperations{}
	rule.APIGroups, rule.APIVersions, rule.Resources = []string{"", "apps"}, []string{"v1"}, []string{resource}
	p := &Policy{Constraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}}}
	for _, x := range expressions {
		p.Expressions = append(p.Expressions, Expression{Text: x})
	}
	return p
}

// BenchmarkChecker has the work for the first policy about a kind, and for each other.
func BenchmarkChecker(b *testing.B) {
	const expression = "object.spec.containers.all(c, has(c.securityContext) && has(c.securityContext.privileged) && !c.securityContext.privileged)"
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			New(Builtin{}).Check(b.Context(), podPolicy("pods", expression))
		}
	})
	c := New(Builtin{})
	b.Run("further", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.work = 0
			c.Check(b.Context(), podPolicy("pods", expression))
		}
	})
	long := strings.TrimSuffix(strings.Repeat("object.spec.hostNetwork && ", 600), " && ")
	b.Run("longest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.work = 0
			c.Check(b.Context(), podPolicy("pods", long))
		}
	})
}
