package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/config"
	"github.com/portcullis-mesh/portcullis/config/lint"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

const hazardous = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
- name: policy.example.com
  failurePolicy: %s
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {}
  %s
`

// codes are what is found dangerous in a hook.
func codes(t *testing.T, policy, hook string) []string {
	t.Helper()
	text := fmt.Sprintf(hazardous, policy, strings.ReplaceAll(strings.TrimSpace(hook), "\n", "\n  "))
	objects, problems := config.Decode("policy.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, problems := config.Compile("1", objects)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range lint.Dangers(t.Context(), snapshot, "portcullis", everyHook) {
		if f.Path != "ValidatingWebhookConfiguration/policy webhooks[0].failurePolicy" || f.Severity != match.SeverityWarning {
			t.Errorf("finding %v", f)
		}
		if !lint.IsDanger(f.Code) {
			t.Errorf("%s is not told from other codes", f.Code)
		}
		out = append(out, strings.TrimPrefix(f.Code, "danger-"))
	}
	return out
}

func everyHook(*match.Hook) bool { return true }

func TestDangers(t *testing.T) {
	const everything = "rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}]"
	const pods = "rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]"
	for _, tt := range []struct {
		name, policy, hook string
		want               string
	}{
		{"a hook for everything", "Fail", everything, "nodes certificates kube-system own-namespace"},
		{"one that names what wildcards leave out", "Fail", "rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: [leases, events]}]",
			"leases events"},
		{"one that fails open", "Ignore", everything, ""},
		{"one for Pods", "Fail", pods, "kube-system own-namespace"},
		{"one for Pods of other namespaces", "Fail", pods + `
namespaceSelector:
  matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, portcullis]}]`, ""},
		{"one for Pods of namespaces that ask for it", "Fail", pods + `
namespaceSelector: {matchLabels: {policy: strict}}`, ""},
		{"one with a condition, which no API server knows while the mesh is down", "Fail", pods + `
matchConditions: [{name: others, expression: "request.namespace != 'kube-system'"}]`, "kube-system own-namespace"},
		{"one for objects that ask for it", "Fail", everything + `
objectSelector: {matchLabels: {policy: strict}}`, ""},
		{"one for the status of nodes", "Fail",
			"rules: [{operations: [UPDATE], apiGroups: [''], apiVersions: [v1], resources: [nodes/status]}]", "nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, strings.Join(codes(t, tt.policy, tt.hook), " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHookThatIsPendingIsADangerAlready(t *testing.T) {
	objects, problems := config.Decode("policy.yaml", fmt.Appendf(nil, hazardous, "Fail",
		"rules: [{operations: ['*'], apiGroups: [coordination.k8s.io], apiVersions: [v1], resources: [leases]}]"))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	objects[0].Pending = []string{"policy.example.com"}
	snapshot, _ := config.Compile("1", objects)
	if !snapshot.Hooks()[0].Pending {
		t.Fatal("the hook is not pending")
	}
	if got := lint.Dangers(t.Context(), snapshot, "", everyHook); len(got) != 1 || got[0].Code != "danger-leases" {
		t.Errorf("findings %v", got)
	}
}
