package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// A write is a danger unless each cluster of the hook lets it pass whatever fails.
func TestWritesThatClustersLetPassAreNoDangers(t *testing.T) {
	const leases = "rules: [{operations: ['*'], apiGroups: [coordination.k8s.io], apiVersions: [v1], resources: [leases]}]"
	const pods = "rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [pods]}, " +
		"{operations: ['*'], apiGroups: [apps], apiVersions: [v1], resources: ['*']}]"
	const opens, exempts = "{failOpen: [{apiGroups: [coordination.k8s.io], resources: [leases]}]}", "{namespaces: [kube-system]}"
	const glass = "{breakGlass: {until: '9999-01-01T00:00:00Z', reason: r}}"
	for name, tt := range map[string]struct {
		hook, route string
		clusters    []string // the bypass of each: c0, c1
		want        string
	}{
		"without a cluster":                   {leases, "", nil, "leases"},
		"in a cluster without a bypass":       {leases, "", []string{"{}"}, "leases"},
		"in a cluster where leases fail open": {leases, "", []string{opens}, ""},
		"in one of two":                       {leases, "", []string{opens, "{}"}, "leases"},
		"in both":                             {leases, "", []string{opens, opens}, ""},
		"in the cluster of the hook":          {leases, "[c0]", []string{opens, "{}"}, ""},
		"in the other one":                    {leases, "[c1]", []string{opens, "{}"}, "leases"},
		"in a cluster that is not declared":   {leases, "[c0, c9]", []string{opens}, "leases"},
		"in a break-glass, which ends":        {leases, "", []string{glass}, "leases"},
		"where the namespace is exempt":       {pods, "", []string{exempts}, ""},
		"where another resource fails open":   {pods, "", []string{opens}, "kube-system"},
		"where one of two dangers is let pass": {
			strings.TrimSuffix(leases, "]") + ", {operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [nodes]}]", "", []string{opens}, "nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			documents := []string{fmt.Sprintf(hazardous, "Fail", tt.hook)}
			for i, bypass := range tt.clusters {
				documents = append(documents, fmt.Sprintf(
					"apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: c%d}\nspec: {identities: [a], bypass: %s}", i, bypass))
			}
			if tt.route != "" {
				documents = append(documents, fmt.Sprintf(
					"apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: r}\nspec: {configuration: policy, stream: {}, hosts: [h], clusters: %s}", tt.route))
			}
			objects, problems := configtest.Decode("", []byte(strings.Join(documents, "\n---\n")))
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			snapshot, _ := config.Compile("1", objects)
			var got []string
			for _, f := range lint.Dangers(t.Context(), snapshot, "", everyHook) {
				got = append(got, strings.TrimPrefix(f.Code, "danger-"))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("dangers (-want +got):\n%s", diff)
			}
		})
	}
}
