package casetest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/bench"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// TestParamRefsAreResolvedAsInAMesh has custom resources as params, by selector in the namespace of the object and by name in another one.
func TestParamRefsAreResolvedAsInAMesh(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policies.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  paramKind: {apiVersion: example.com/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}
  validations: [{expression: object.spec.replicas <= params.spec.most, messageExpression: "'at most ' + string(params.spec.most)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limits}
spec: {policyName: limits, validationActions: [Deny], paramRef: {selector: {matchLabels: {env: prod}}, parameterNotFoundAction: Allow}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}
  reinvocationPolicy: IfNeeded
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"team": params.data.team}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team, paramRef: {name: teams, namespace: settings, parameterNotFoundAction: Deny}}
`)
	write(t, dir, "params.yaml", `apiVersion: example.com/v1
kind: Limit
metadata: {name: a, namespace: shop, labels: {env: prod}}
spec: {most: 9}
---
apiVersion: example.com/v1
kind: Limit
metadata: {name: b, namespace: shop, labels: {env: test}}
spec: {most: 1}
---
apiVersion: example.com/v1
kind: Limit
metadata: {name: c, namespace: bank, labels: {env: prod}}
spec: {most: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: teams, namespace: settings}
data: {team: web}
`)
	write(t, dir, "cases.yaml", `
defaults:
  policy: limits
  params: params.yaml
  object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 4}}
  namespace: shop
  verdict: allowed
cases:
- name: The param with the label in the namespace counts
- name: Each namespace has its own params
  namespace: bank
  verdict: denied
  message: at most 1
- name: A namespace without params is left alone
  namespace: lab
  verdict: unmatched
- name: Two params judge
  params:
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: a, namespace: shop, labels: {env: prod}}, spec: {most: 9}}
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: b, namespace: shop, labels: {env: prod}}, spec: {most: 3}}
  verdict: denied
  message: at most 3
- name: A kind that the cluster does not have denies
  params: []
  verdict: denied
  message: failed to find resource referenced by paramKind
- name: A mutation has the value of its param
  policy: team
  changes: {metadata.labels.team: web}
- name: A param that is missing refuses the mutation
  policy: team
  params: []
  verdict: denied
  message: no params found for policy binding with `+"`Deny`"+` parameterNotFoundAction
`)
	for _, args := range [][]string{{dir, "--coverage-min", "100"}, {dir, "--once"}} {
		if r := test(t, args...); r.Code != 0 || !strings.HasSuffix(r.Out, "ok: 7 cases passed\n") {
			t.Errorf("%q: exit code %d\n%s%s", args, r.Code, r.Out, r.Notes)
		}
	}
}

// TestCasesHaveTheParamsOfTheConfiguration unless they have a list of their own.
func TestCasesHaveTheParamsOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policies.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limits}
spec:
  paramKind: {apiVersion: example.com/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}
  validations: [{expression: object.spec.replicas <= params.spec.most, messageExpression: "'at most ' + string(params.spec.most)"}]
---
apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: limits}
spec:
  objects:
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: a}, spec: {most: 3}}
---
apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: more}
spec:
  clusters: [prod]
  objects:
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: b}, spec: {most: 2}}
`)
	write(t, dir, "cases.yaml", `
defaults:
  object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3}}
cases:
- {name: The params of all clusters allow it, verdict: allowed}
- {name: A cluster has others too, cluster: prod, policy: limits, verdict: denied, message: at most 2}
- name: A list takes their place
  params: [{apiVersion: example.com/v1, kind: Limit, metadata: {name: a}, spec: {most: 1}}]
  verdict: denied
  message: at most 1
- {name: An empty list too, params: [], verdict: denied, message: failed to find resource referenced by paramKind}
`)
	for _, args := range [][]string{{dir}, {dir, "--once"}} {
		if r := test(t, args...); r.Code != 0 || !strings.HasSuffix(r.Out, "ok: 4 cases passed\n") {
			t.Errorf("%q: exit code %d\n%s%s", args, r.Code, r.Out, r.Notes)
		}
	}
}

// TestMutationsHaveTheParametersOfTheirCase looks for dependence on the order, which the parameters of a case decide.
func TestMutationsHaveTheParametersOfTheirCase(t *testing.T) {
	const parameter = "  parameters: [{name: team, default: web}]\n  mutations"
	policies := strings.ReplaceAll(mutation("a", "metadata.labels.team", "parameters.team", overwrite)+
		mutation("b", "metadata.labels.team", "'web'", overwrite), "  mutations", parameter)
	const object = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}"
	cases := "defaults: {object: " + object + ", verdict: allowed}\ncases:\n- name: Both set one value\n"
	dir := t.TempDir()
	write(t, dir, "policies.yaml", policies)
	write(t, dir, "cases.yaml", cases)
	if r := test(t, dir); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	write(t, dir, "cases.yaml", cases+"- {name: One has another value, params: {team: shop}}\n- {name: And without the other, policy: a, params: {team: shop}, changes: {metadata.labels.team: shop}}\n")
	r := test(t, dir)
	r.Ends(t, 1)
	const want = "order: the result of Policy/a and Policy/b depends on their order:\n" +
		"    metadata.labels.team: \"web\" in the order of their names, \"shop\" in the opposite order\n"
	if !strings.Contains(r.Out, want) || !strings.Contains(r.Out, "FAIL: 1 of 3 cases failed") {
		t.Errorf("it lacks %q:\n%s", want, r.Out)
	}
	if r := test(t, dir, "--once", "--coverage-min", "100"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
}

// TestAPolicyOfSomeClustersHasParametersThere also has more cases than selections that are kept.
func TestAPolicyOfSomeClustersHasParametersThere(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policies.yaml", `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: few}
spec:
  resources: [deployments]
  clusters: [prod]
  parameters: [{name: most, byCluster: {prod: 3}}]
  validations: [{expression: object.spec.replicas <= parameters.most, message: too many}]
`)
	var cases strings.Builder
	cases.WriteString(`
defaults:
  cluster: prod
  object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 500}}
  verdict: denied
cases:
- {name: Another cluster has no policy, cluster: dev, params: {most: 1}, verdict: unmatched}
- {name: The value counts, params: {most: 500}, verdict: allowed}
`)
	for i := range 70 {
		fmt.Fprintf(&cases, "- {name: At most %d, params: {most: %d}}\n", i, i)
	}
	write(t, dir, "cases.yaml", cases.String())
	if r := test(t, dir); r.Code != 0 {
		t.Errorf("%+v", r)
	}
}

func TestTheCostOfACaseHasItsParameters(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policies.yaml", `apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: teams}
spec:
  resources: [pods]
  parameters: [{name: teams, default: [web]}]
  validations: [{expression: "parameters.teams.all(team, team != 'none')", message: none is no team}]
`)
	write(t, dir, "cases.yaml", `
defaults: {object: {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {}}, verdict: allowed}
cases:
- {name: One team}
- {name: Five teams, params: {teams: [a, b, c, d, e]}}
`)
	r := clitest.Execute(t, bench.NewCommand(), nil, dir)
	if r.Code != 0 || !strings.Contains(r.Out, "Five teams") {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}

func TestParamsOfCaseFilesOfKyvernoAreRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "policy.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few-replicas}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]}
  validations: [{expression: object.spec.replicas <= int(params.data.most), message: too many}]
`)
	write(t, dir, "resource.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 4}\n")
	write(t, dir, "params.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata: {most: '4'}\n")
	write(t, dir, "kyverno-test.yaml", `
policies: [policy.yaml]
resources: [resource.yaml]
paramResources: [params.yaml]
results: [{policy: few-replicas, kind: Deployment, resources: [web], result: pass}]
`)
	if r := test(t, dir); r.Code != 0 || !strings.HasSuffix(r.Out, "ok: 1 case passed\n") {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Out, r.Notes)
	}
}
