package lint_test

import (
	"fmt"
	"testing"
)

func TestWhatAlwaysFailsOpenIsNarrow(t *testing.T) {
	failing := func(items string) string {
		return fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: prod-1}\nspec: {identities: [a], authorities: [spiffe://a], bypass: {failOpen: [%s]}}", items)
	}
	for items, want := range map[string][]string{
		`{apiGroups: [coordination.k8s.io], resources: [leases]}, {apiGroups: [""], resources: [nodes/status, configmaps]}`: nil,
		`{apiGroups: [apps], resources: [secrets]}`: nil,
		`{apiGroups: [coordination.k8s.io], resources: [leases]}, {apiGroups: [""], resources: [pods, secrets, serviceaccounts/token]}`: {`wide-fail-open: *Cluster "prod-1": spec.bypass.failOpen[1]: "secrets", "serviceaccounts/token" always fail open`},
		`{apiGroups: [apps], resources: ["*"]}`:                                                                     {`wide-fail-open: *of group "apps" always*`},
		`{apiGroups: ["*"], resources: [leases]}`:                                                                   {`wide-fail-open: *"leases" of group*`},
		`{apiGroups: [""], resources: ["*/status"]}`:                                                                {`wide-fail-open: *`},
		`{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}`:                                       {`wide-fail-open: *"rolebindings" of group "rbac.authorization.k8s.io"*`},
		`{apiGroups: [admissionregistration.k8s.io, portcullis.dev], resources: [validatingwebhookconfigurations]}`: {`wide-fail-open: *"admissionregistration.k8s.io"*"portcullis.dev"*`},
	} {
		t.Run(items, func(t *testing.T) { expect(t, found(t, failing(items)), want...) })
	}
}
