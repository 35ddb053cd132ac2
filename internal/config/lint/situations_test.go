package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestNothingIsSaidOfSituationsThatAreNotLookedAt: 32 of a hook are. With one more, no condition fails for every request, and no hook is never called.
func TestNothingIsSaidOfSituationsThatAreNotLookedAt(t *testing.T) {
	const fails = "condition-fails: *webhooks[0].matchConditions[0].expression: it fails for every "
	for name, test := range map[string]struct {
		resources int
		condition string
		want      []string
	}{
		"a condition that fails":                 {32, "object.metadata.name != 'x'", []string{fails + "request: "}},
		"a condition that fails, one more":       {33, "object.metadata.name != 'x'", []string{fails + "DELETE of r0s, and every DELETE of r1s, and every DELETE of r2s, and every 29 more: "}},
		"a condition that is false":              {32, "request.resource.resource == 'r32s'", []string{"never-matches: *webhooks[0].matchConditions: for each operation of the rules one of them is false"}},
		"a condition that is false, but for one": {33, "request.resource.resource == 'r32s'", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var resources []string
			for i := range test.resources {
				resources = append(resources, fmt.Sprintf("r%ds", i))
			}
			rules := `rules: [{operations: ["DELETE"], apiGroups: ["example.com"], apiVersions: ["*"], resources: [` + strings.Join(resources, ", ") + `]}]`
			got := found(t, configuration("Validating", "p", hook("p", "failurePolicy: Ignore", rules, fmt.Sprintf("matchConditions: [{name: a, expression: %q}]", test.condition))))
			got = slices.DeleteFunc(got, func(text string) bool {
				return !strings.HasPrefix(text, "condition-fails") && !strings.HasPrefix(text, "never-matches")
			})
			expect(t, got, test.want...)
		})
	}
}
