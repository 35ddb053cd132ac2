package casetest_test

import (
	"strings"
	"testing"
)

// mutation is a Policy with a mutation.
func mutation(name, field, value, more string) string {
	return "apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: " + name + "}\nspec:\n  resources: [pods]\n  mutations:\n  - field: " + field +
		"\n    value: \"" + value + "\"\n" + more + "---\n"
}

const overwrite = "    overwrite: true\n"

func TestPoliciesAreAppliedTwiceAndInBothOrders(t *testing.T) {
	const cases = `
defaults: {object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}, verdict: allowed}
cases: [{name: A Pod is changed}, {name: It is told once, with: {metadata.name: other}}]
`
	grow := mutation("grow", "metadata.annotations.times", "(current == null ? '' : current) + 'x'", overwrite)
	for name, of := range map[string]struct {
		policies string
		want     []string
	}{
		"each field has one policy": {mutation("a", "metadata.labels.a", "'a'", "") + mutation("b", "metadata.labels.b", "'b'", ""), nil},
		"one reads the result of the other": {
			mutation("a", "metadata.labels.a", "'a'", "") + mutation("b", "metadata.labels.b", "'b'", "    when: \"'a' in object.metadata.?labels.orValue({})\"\n"),
			nil, // the mesh invokes it again
		},
		"a policy that changes its own result": {grow + mutation("b", "metadata.labels.b", "'b'", ""), []string{
			"repetition: Policy/grow changes its own result again (- first, + second time):", "-    times: x", "+    times: xx",
		}},
		"two values of one label": {
			mutation("a", "metadata.labels.team", "'a'", overwrite) + mutation("b", "metadata.labels.team", "'b'", overwrite) +
				mutation("c", "metadata.labels.c", "'c'", ""),
			[]string{"order: the result of Policy/a and Policy/b depends on their order:", `metadata.labels.team: "b" in the order of their names, "a" in the opposite order`},
		},
		"two defaults of one label": {
			mutation("a", "metadata.labels['example.com/team']", "'a'", "") + mutation("b", "metadata.labels['example.com/team']", "'b'", ""),
			[]string{`metadata.labels["example.com/team"]: "a" in the order of their names, "b" in the opposite order`},
		},
		"one refuses the result of the other": {
			mutation("a", "metadata.labels.a", "'a'", "") + mutation("b", "metadata.labels.b", "object.metadata.labels.a", ""),
			[]string{"order: the result of Policy/a and Policy/b depends on their order:", "refused: nothing in the order of their names, \"Policy 'b' failed:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "policies.yaml", of.policies)
			write(t, dir, "cases.yaml", cases)
			r := test(t, dir)
			if of.want == nil {
				if r.Code != 0 {
					t.Errorf("%+v", r)
				}
				return
			}
			r.Ends(t, 1)
			for _, want := range append(of.want, "FAIL: 1 of 2 cases failed") {
				if !strings.Contains(r.Out, want) {
					t.Errorf("no %q in:\n%s", want, r.Out)
				}
			}
			if strings.Contains(r.Out, "Policy/c") {
				t.Errorf("a policy without a fault is named:\n%s", r.Out)
			}
			if r := test(t, dir, "--once"); r.Code != 0 {
				t.Errorf("--once: %+v", r)
			}
		})
	}
}
