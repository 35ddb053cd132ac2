package serve

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/analyze"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	configcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	policycli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/policy"
	reviewcli "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/shadow"
)

const labelledPods = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: team-label}
spec:
  resources: [deployments]
  exclude: {namespaces: [kube-system]}
  modeByCluster: {dev: MODE}
  parameters:
  - {name: labels, default: [owner], byCluster: {dev: [team], other: [squad]}}
  validations:
  - expression: parameters.labels.all(l, l in labels)
    message: missing labels
    messageExpression: "'set the labels ' + parameters.labels.join(', ')"
`

// TestAPolicyFollowsItsModeInACluster goes through all modes of a Policy, and has every command show it.
func TestAPolicyFollowsItsModeInACluster(t *testing.T) {
	r := newRotated(t)
	request := strings.NewReplacer(`"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment").Replace(clitest.Review)
	explain := func(code int, want ...string) {
		t.Helper()
		r.prints(code, reviewcli.NewCommand(), request, []string{"-f", "-", "--stage", "validate", "--explain"}, want...)
	}
	apply := func(mode string) {
		t.Helper()
		if got := r.run(configcli.NewApply(), strings.ReplaceAll(labelledPods, "MODE", mode), "-f", "-", "--wait"); got.Code != 0 {
			t.Fatal(got.Notes)
		}
	}

	apply("shadow")
	const values = `Policy/team-label: validations\[0\] is false:\n.* = false\n.*parameters.labels = \["team"\]\n`
	explain(0, `validate: allowed\n`, ` team-label Policy/team-label 0 shadow: denied .* set the labels team\n`, values)
	r.prints(0, shadow.NewCommand(), "", []string{"report", "--hook", "team-label"}, ` deny 1 .* CREATE deployments.*set the labels team\n`)
	r.prints(0, analyze.NewCommand(), "", nil, `cluster dev: hook team-label decides nothing \(shadow\): of 1 requests it would have denied 1 `)

	r.prints(0, shadow.NewCommand(), "", []string{"report", "--hook", "team-label"}, `\nteam-label dev 1 0 1 0 0 0 .* shadow\n`)
	promote := []string{"promote", "team-label", "--cluster", "dev", "--mode"}
	r.prints(cli.ExitDenied, policycli.NewCommand(), "", append(promote, "warn"), `stays in shadow: in cluster dev it would have denied 1 of 1 requests within 24h`, ` deny 1 `)
	r.prints(0, policycli.NewCommand(), "", append(promote, "warn", "--force", "--dry-run"), `Policy/team-label updated \(dry run\)`)
	explain(0, ` team-label Policy/team-label 0 shadow: denied `)
	r.prints(0, policycli.NewCommand(), "", append(promote, "warn", "--force"), `Policy/team-label updated\n`)
	explain(0, `validate: allowed\n`, `Policy 'team-label': set the labels team`)
	r.prints(0, policycli.NewCommand(), "", append(promote, "enforce"), `Policy/team-label updated\n`)
	explain(cli.ExitDenied, `Policy 'team-label' denied request: set the labels team`)
	r.prints(cli.ExitDenied, policycli.NewCommand(), "", []string{"promote", "team-lable", "--cluster", "dev", "--mode", "warn"}, `there is no Policy/team-lable`)
	r.prints(0, shadow.NewCommand(), "", []string{"report", "--hook", "team-label"}, `\nteam-label dev 2 .* decides\n`)

	apply("warn")
	explain(0, `validate: allowed\n`, `Policy 'team-label': set the labels team`, values)

	apply("enforce")
	explain(cli.ExitDenied, `validate: denied`, `Policy 'team-label' denied request: set the labels team`, values)
	r.shows([]string{"hooks"}, `team-label validate `)
	r.shows([]string{"policy", "team-label"}, `MODE SOURCE\nPolicy/team-label .* shadow; enforce in dev etcd\n`)
	r.shows([]string{"policies", "-o", "jsonpath={.items[*].status.mode} {.items[*].status.modeByCluster}"}, `^shadow {"dev":"enforce"}`)
	r.shows([]string{"policies", "team-label", "-o", "yaml"}, `modeByCluster:\n`)
	r.prints(0, configcli.NewExplain(), "", []string{"policy", "team-label"}, `is in force everywhere`)

	if got := r.run(configcli.NewDelete(), "", "policy", "team-label", "--wait"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	explain(0, `validate: allowed\n`)
}

// TestAPolicyHasVariables of the Pod template in a Deployment.
func TestAPolicyHasVariables(t *testing.T) {
	r := newRotated(t)
	const text = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: no-latest}
spec:
  resources: [pods]
  podControllers: true
  exclude: {namespaces: [kube-system]}
  mode: enforce
  variables:
  - {name: untagged, expression: "images.filter(i, i.tag == 'latest').map(i, i.text)"}
  validations:
  - expression: variables.untagged == []
    message: untagged
    messageExpression: "'give a tag to ' + variables.untagged.join(', ')"
`
	if got := r.run(configcli.NewApply(), text, "-f", "-", "--wait"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	request := strings.NewReplacer(`"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment", `"apiVersion":"v1"`, `"apiVersion":"apps/v1"`,
		`{"n":1.0}`, `{"template":{"spec":{"containers":[{"name":"a","image":"web"}]}}}`).Replace(clitest.Review)
	r.prints(cli.ExitDenied, reviewcli.NewCommand(), request, []string{"-f", "-", "--stage", "validate", "--explain"},
		`Policy 'no-latest' denied request: give a tag to web`, `\n +variables.untagged == \[\] = false\n +variables.untagged = \["web"\]\n`)
}

// TestGetShowsTheActionsOfPoliciesOfKubernetes has two bindings of a policy, and then puts the policy in shadow.
func TestGetShowsTheActionsOfPoliciesOfKubernetes(t *testing.T) {
	const policies = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: named}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: object.metadata.name != 'x'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: unbound}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: object.metadata.name != 'x'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: denies}
spec: {policyName: named, validationActions: [Audit, Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: warns}
spec: {policyName: named, validationActions: [Warn]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: labelled}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/data', value: {'a': 'b'}}]"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: labelled}
spec: {policyName: labelled}
`
	r := newRotated(t)
	apply := func(text string) {
		t.Helper()
		if got := r.run(configcli.NewApply(), text, "-f", "-", "--wait"); got.Code != 0 {
			t.Fatal(got.Notes)
		}
	}
	apply(policies)
	r.shows([]string{"validatingadmissionpolicy"}, `/named .* Deny,Warn,Audit etcd\n`, `/unbound .* - etcd\n`)
	r.shows([]string{"validatingadmissionpolicybinding"}, `/denies .* Deny,Audit etcd\n`, `/warns .* Warn etcd\n`)
	r.shows([]string{"mutatingadmissionpolicy,mutatingadmissionpolicybinding"}, `Policy/labelled .* Deciding etcd\n`, `Binding/labelled .* Deciding etcd\n`)
	const reason = `-o=jsonpath={.status.conditions[?(@.type=="Deciding")].reason}`
	r.shows([]string{"validatingadmissionpolicy/named", reason}, `^Deny,Warn,Audit`)

	apply("apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: named}\nspec: {configuration: ValidatingAdmissionPolicy/named, shadow: true}\n")
	r.shows([]string{"validatingadmissionpolicy/named"}, ` Shadow etcd\n`)
	r.shows([]string{"validatingadmissionpolicybinding"}, `/denies .* Shadow etcd\n`, `/warns .* Shadow etcd\n`)

	// The same documents as the kinds of portcullis.dev.
	ours := strings.NewReplacer("admissionregistration.k8s.io", "portcullis.dev", "AdmissionPolicy", "HookPolicy").Replace(policies)
	r.prints(cli.ExitDenied, configcli.NewDiff(), ours, []string{"-f", "-"}, `-kind: ValidatingAdmissionPolicy\n.*\n.*\+kind: ValidatingHookPolicy\n`,
		`-kind: MutatingAdmissionPolicyBinding\n.*\n.*\+kind: MutatingHookPolicyBinding\n`, `no ValidatingHookPolicyBinding puts the policy into force`)
	apply(ours)
	r.shows([]string{"validatinghookpolicies"}, `/named .* Shadow etcd\n`, `/unbound .* - etcd\n`)
	r.shows([]string{"vhpolicy", "-o", "name"}, `validatinghookpolicy.portcullis.dev/named\n`)
	r.shows([]string{"mhpolicy,mhbinding"}, `Policy/labelled .* Deciding etcd\n`, `Binding/labelled .* Deciding etcd\n`)
	r.prints(0, configcli.NewExplain(), "", []string{"validatinghookpolicy.portcullis.dev/named"}, `ValidatingAdmissionPolicy/named`)
	r.prints(0, configcli.NewDelete(), "", []string{"vhbinding", "denies", "warns"}, `ValidatingAdmissionPolicyBinding/denies is being removed`)
	r.shows([]string{"vhbinding"}, `there are none`)
}

// TestAnApplyWarnsOfTypesThatDoNotFit has a policy with a misspelt field, which is no reason to refuse it.
func TestAnApplyWarnsOfTypesThatDoNotFit(t *testing.T) {
	r := newRotated(t)
	misspelt := strings.NewReplacer("MODE", "warn", "parameters.labels.all(l, l in labels)", "object.spec.replicsa > 0").Replace(labelledPods)
	const want = "Policy/team-label: spec.validations[0].expression: for Deployment (apps/v1): line 1, column 12: undefined field 'replicsa' (type-check)"
	got := r.run(configcli.NewApply(), misspelt, "-f", "-", "--wait")
	if got.Code != 0 || !strings.Contains(got.Out+got.Notes, want) {
		t.Fatalf("exit code %d, no %q in %s%s", got.Code, want, got.Out, got.Notes)
	}
}

// TestAPolicyChangesObjectsByItsModeInACluster goes from shadow to enforcement.
func TestAPolicyChangesObjectsByItsModeInACluster(t *testing.T) {
	const text = `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: defaults}
spec:
  resources: [deployments]
  exclude: {namespaces: [kube-system]}
  parameters:
  - {name: team, default: web, byCluster: {dev: data}}
  mutations:
  - {field: metadata.labels.team, value: parameters.team}
`
	r := newRotated(t)
	if got := r.run(configcli.NewApply(), text, "-f", "-", "--wait"); got.Code != 0 {
		t.Fatal(got.Notes)
	}
	request := strings.NewReplacer(`"apiVersion":"v1"`, `"apiVersion":"apps/v1"`, `"group":"",`, `"group":"apps",`, "pods", "deployments", "Pod", "Deployment").Replace(clitest.Review)
	explain := func(want ...string) {
		t.Helper()
		r.prints(0, reviewcli.NewCommand(), request, []string{"-f", "-", "--stage", "mutate", "--explain"}, want...)
	}
	explain(`mutate: allowed\n`, ` defaults Policy/defaults 0 shadow: `)
	r.prints(0, shadow.NewCommand(), "", []string{"report", "--hook", "defaults"}, `\ndefaults dev 1 0 0 1 0 `)
	promote := []string{"promote", "defaults", "--cluster", "dev", "--mode"}
	r.prints(cli.ExitError, policycli.NewCommand(), "", append(promote, "warn"), `spec.modeByCluster\[dev\]: Unsupported value: "warn": supported values: "shadow", "enforce"`)
	r.prints(0, policycli.NewCommand(), "", append(promote, "enforce"), `in shadow Policy/defaults would have changed 1 of 1 requests of cluster dev`,
		`Policy/defaults updated\n`)
	explain(`mutate: allowed, with changes\n`, ` add /metadata/labels/team "data"\n`, `idempotent: yes`)
	r.shows([]string{"hooks"}, `defaults mutate dev Fail the mesh InRotation Policy/defaults`)
}
