package lint_test

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

func TestAnyAuthority(t *testing.T) {
	const unbound = `apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec: {identities: [kube-apiserver]}
---
apiVersion: portcullis.dev/v1
kind: Role
metadata: {name: team}
spec: {role: viewer, identities: [ann]}
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: route}
spec: {configuration: c, stream: {}, hosts: ["spiffe://mesh/h"]}
`
	bound := strings.NewReplacer("]}\n", "], authorities: ['spiffe://mesh']}\n").Replace(unbound)
	nobody := strings.NewReplacer("[kube-apiserver]", "[]", "[ann]", "[]", `["spiffe://mesh/h"]`, "[]").Replace(unbound)
	trusts := func(callers, hosts int) func() lint.Authorities {
		return func() lint.Authorities { return lint.Authorities{Callers: callers, Hosts: hosts} }
	}
	all := []string{"Cluster/prod-1", "Role/team", "HookRoute/route"}
	for name, tc := range map[string]struct {
		documents string
		trusted   func() lint.Authorities
		want      []string
		number    string
	}{
		"One authority on each listener is no choice.":    {unbound, trusts(1, 1), nil, ""},
		"Several for hosts are, also for direct callers.": {unbound, trusts(1, 3), all, "each of the 3 authorities"},
		"Several for API servers are for clusters alone.": {unbound, trusts(2, 1), all[:1], "each of the 2 authorities"},
		"Authorities that are named are said already.":    {bound, trusts(2, 2), nil, ""},
		"What is granted to nobody needs no authority.":   {nobody, trusts(2, 2), nil, ""},
		"Where bundles are not known nothing is said.":    {unbound, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects, problems := configtest.Decode("", []byte(tc.documents))
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			snapshot, _ := config.Compile("1", objects)
			var got []string
			for _, p := range (lint.Options{Authorities: tc.trusted}).Inspect(t.Context(), snapshot, objects) {
				if p.Code == lint.CodeAnyAuthority {
					got = append(got, p.Key.String())
					if !strings.Contains(p.Message, tc.number) || p.Line == 0 {
						t.Errorf("said %v", p)
					}
				}
			}
			if strings.Join(got, " ") != strings.Join(tc.want, " ") {
				t.Errorf("found %v, want %v", got, tc.want)
			}
		})
	}
}
