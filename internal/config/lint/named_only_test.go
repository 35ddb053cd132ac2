package lint_test

import "testing"

func TestWildcardsThatDoNotStandForLeasesAndEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		rule string
		want []string
	}{
		"of every group":         {rule("CREATE", "*", "*/*", ""), []string{"wildcard: *rules[0].resources: the hook is not called for leases and events, "}},
		"of the core group":      {rule("CREATE", "", "*", ""), []string{"wildcard: *not called for events, "}},
		"of the group of leases": {rule("CREATE", "coordination.k8s.io", "*", ""), []string{"wildcard: *not called for leases, "}},
		"of another group":       {rule("CREATE", "apps", "*/*", ""), nil},
		"of subresources":        {rule("CREATE", "*", "*/status", ""), nil},
		"of groups with a name":  {rule("CREATE", "*", "events", ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, found(t, configuration("Validating", "a", hook("x", tt.rule, "failurePolicy: Ignore"))), tt.want...)
		})
	}
}
