package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
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

// codes are the dangers that are found in a hook.
func codes(t *testing.T, policy, hook string) []string {
	t.Helper()
	text := fmt.Sprintf(hazardous, policy, strings.ReplaceAll(strings.TrimSpace(hook), "\n", "\n  "))
	objects, problems := configtest.Decode("policy.yaml", []byte(text))
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
		{"one with a condition that its entry has", "Fail", pods + `
matchConditions: [{name: others, expression: "request.namespace != 'kube-system'"}]`, "own-namespace"},
		{"one with a part of a condition that its entry has", "Fail", pods + `
matchConditions: [{name: others, expression: "has(object.spec) && !(request.namespace in ['kube-system', 'portcullis'])"}]`, ""},
		{"one with a condition about some users", "Fail", pods + `
matchConditions: [{name: others, expression: "request.userInfo.username != 'admin'"}]`, "kube-system own-namespace"},
		{"one with a condition about groups, which are not known", "Fail", pods + `
matchConditions: [{name: others, expression: "!('system:masters' in request.userInfo.groups)"}]`, "kube-system own-namespace"},
		{"one with a condition, which no API server knows while the mesh is down", "Fail", pods + `
matchConditions: [{name: others, expression: "object.metadata.namespace != 'kube-system'"}]`, "kube-system own-namespace"},
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
	objects, problems := configtest.Decode("policy.yaml", fmt.Appendf(nil, hazardous, "Fail",
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

// The condition of a hook counts if all hooks have it that stand in one entry with it, in each of its clusters.
func TestAConditionCountsIfItsEntriesHaveIt(t *testing.T) {
	const (
		rule      = "rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]"
		condition = rule + "\n  matchConditions: [{name: others, expression: \"request.namespace != 'kube-system'\"}]"
	)
	type hook struct{ name, policy, text, clusters string }
	for name, tt := range map[string]struct {
		hooks []hook
		want  []string
	}{
		"shared":                       {[]hook{{"a", "Fail", condition, ""}, {"b", "Fail", condition, ""}}, nil},
		"not shared":                   {[]hook{{"a", "Fail", condition, ""}, {"b", "Fail", rule, ""}}, []string{"a", "b"}},
		"a hook of the other entry":    {[]hook{{"a", "Fail", condition, ""}, {"b", "Ignore", rule, ""}}, nil},
		"another cluster":              {[]hook{{"a", "Fail", condition, "one"}, {"b", "Fail", rule, "two"}}, []string{"b"}},
		"one of two clusters":          {[]hook{{"a", "Fail", condition, "one, two"}, {"b", "Fail", rule, "two"}}, []string{"a", "b"}},
		"every cluster, and one alone": {[]hook{{"a", "Fail", condition, ""}, {"b", "Fail", rule, "two"}}, []string{"a", "b"}},
		"one alone, and every cluster": {[]hook{{"a", "Fail", condition, "one"}, {"b", "Fail", rule, ""}}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []config.Object
			for _, h := range tt.hooks {
				text := strings.ReplaceAll(fmt.Sprintf(hazardous, h.policy, h.text), "policy.example.com", h.name+".example.com")
				text = strings.ReplaceAll(text, "name: policy}", "name: "+h.name+"}")
				text += fmt.Sprintf("---\napiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: %s}\n"+
					"spec: {configuration: %s, stream: {}, hosts: [h], clusters: [%s]}\n", h.name, h.name, h.clusters)
				read, problems := configtest.Decode(h.name+".yaml", []byte(text))
				if err := problems.Err(); err != nil {
					t.Fatal(err)
				}
				objects = append(objects, read...)
			}
			snapshot, _ := config.Compile("1", objects)
			var got []string
			for _, f := range lint.Dangers(t.Context(), snapshot, "", everyHook) {
				name, _, _ := strings.Cut(strings.TrimPrefix(f.Path, "ValidatingWebhookConfiguration/"), " ")
				got = append(got, name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("hooks that are dangers (-want +got):\n%s", diff)
			}
		})
	}
}
