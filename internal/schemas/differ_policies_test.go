package schemas

import (
	"fmt"
	"strings"
	"testing"
)

// hookPolicies are documents of the kinds of policies and bindings, with most of their fields.
var hookPolicies = map[string]string{
	"ValidatingHookPolicy": `
  paramKind: {apiVersion: example.com/v1, kind: Limits}
  failurePolicy: Fail
MATCH  matchConditions: [{name: one, expression: request.name != ''}, {name: example.com/two, expression: 'true'}]
  variables: [{name: team, expression: object.metadata.name}]
  validations:
  - {expression: variables.team != '', message: no team, messageExpression: "'no ' + 'team'", reason: Forbidden}
  auditAnnotations: [{key: team, valueExpression: string(variables.team)}]
`,
	"MutatingHookPolicy": `
  paramKind: {apiVersion: v1, kind: ConfigMap}
  failurePolicy: Ignore
  reinvocationPolicy: Never
MATCH  matchConditions: [{name: one, expression: request.name != ''}, {name: example.com/two, expression: 'true'}]
  variables: [{name: team, expression: object.metadata.name}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/metadata/labels'}]"}
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{}"}
`,
	"ValidatingHookPolicyBinding": `
  policyName: p
  validationActions: [Deny, Audit]
  paramRef: {name: limits, namespace: ns, parameterNotFoundAction: Deny}
MATCH`,
	"MutatingHookPolicyBinding": `
  policyName: p
  paramRef: {selector: {matchLabels: {env: prod}}, parameterNotFoundAction: Allow}
MATCH`,
}

// hookPolicy is the document of a kind of hookPolicies.
func hookPolicy(kind string) string {
	field := "matchConstraints"
	if strings.HasSuffix(kind, "Binding") {
		field = "matchResources"
	}
	match := "  " + field + ":\n" +
		`    namespaceSelector: {matchLabels: {env: prod}, matchExpressions: [{key: tier, operator: In, values: [gold]}]}
    matchPolicy: Exact
    excludeResourceRules: [{apiGroups: [apps], apiVersions: ["*"], operations: ["*"], resources: ["*"], resourceNames: [a]}]
    resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced, resourceNames: [b, c]}]
`
	return "apiVersion: portcullis.dev/v1\nkind: " + kind + "\nmetadata: {name: a}\nspec:" + strings.Replace(hookPolicies[kind], "MATCH", match, 1)
}

func TestTheSchemasOfPoliciesRefuseAsTheDecoderDoes(t *testing.T) {
	server := newAPIServer(t)
	for _, tc := range []struct {
		old, new     string
		decoderAlone bool
	}{
		{}, // as it is
		{old: "  paramKind: {apiVersion: example.com/v1, kind: Limits}\n"},
		{old: "apiVersion: v1, kind: ConfigMap", new: "apiVersion: /v1, kind: ConfigMap"},
		{old: "apiVersion: v1, kind: ConfigMap", new: "apiVersion: a/b/v1, kind: ConfigMap"},
		{old: "apiVersion: v1, kind: ConfigMap", new: "apiVersion: V1, kind: ConfigMap"},
		{old: "apiVersion: v1, kind: ConfigMap", new: "apiVersion: v1"},
		{old: "apiVersion: v1, kind: ConfigMap", new: "kind: ConfigMap"},
		{old: "kind: Limits", new: "kind: a.b", decoderAlone: true}, // a letter that is an ASCII letter in lower case alone is accepted
		{old: "kind: Limits", new: "kind: ''"},
		{old: "failurePolicy: Fail", new: "failurePolicy: Open"},
		{old: "  failurePolicy: Fail\n"},
		{old: "failurePolicy: Ignore", new: "failurePolicy: ''"},
		{old: "Exact", new: "Similar"},
		{old: "    matchPolicy: Exact\n"},
		{old: "matchConstraints:", new: "matchConstrains:"},
		{old: "env: prod", new: "env: a b"},
		{old: "operator: In", new: "operator: Near"},
		{old: "values: [gold]", new: "values: []", decoderAlone: true},
		{old: "    resourceRules: [{operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods], scope: Namespaced, resourceNames: [b, c]}]\n"},
		{old: "{operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods], scope: Namespaced, resourceNames: [b, c]}"},
		{old: "[CREATE]", new: "[]"},
		{old: "[CREATE]", new: "['*']"},
		{old: "[CREATE]", new: "['*', CREATE]"},
		{old: "[CREATE]", new: "[CREATE, UPDATE, CONNECT]"},
		{old: "[CREATE]", new: "[DELETE]"},
		{old: `operations: ["*"]`, new: "operations: [DELETE]"},
		{old: "operations: [CREATE], "},
		{old: `apiGroups: [""], `},
		{old: "apiVersions: [v1]", new: `apiVersions: [""]`},
		{old: "[pods]", new: "[]"},
		{old: "Namespaced", new: "Both"},
		{old: "[b, c]", new: "[b, a/c]"},
		{old: "[b, c]", new: "['..']", decoderAlone: true},
		{old: "[b, c]", new: "[b, b]", decoderAlone: true}, // sets of two writers would be merged
		{old: "[b, c]", new: "['']"},
		{old: "name: one", new: `name: ""`},
		{old: "name: example.com/two", new: "name: one"},
		{old: "name: example.com/two", new: "name: a/b/c"},
		{old: "expression: request.name != ''", new: "expression: ''"},
		{old: "expression: request.name != ''", new: "expression: request.", decoderAlone: true},
		{old: "name: team, e", new: "name: a-b, e"},
		{old: "name: team, e", new: "name: in, e", decoderAlone: true},
		{old: "variables: [{name: team, expression: object.metadata.name}", new: "variables: [{name: team, expression: '1'}, {name: team, expression: object.metadata.name}"},
		{old: "expression: object.metadata.name", new: "expression: ' '"},
		{old: "  variables: [{name: team, expression: object.metadata.name}]\n", decoderAlone: true}, // an expression has it
		{old: "expression: variables.team != ''", new: "expression: ''"},
		{old: "message: no team", new: "message: ' '"},
		{old: "message: no team", new: "message: ''"},
		{old: "message: no team", new: `message: "no team\n"`},
		{old: "message: no team", new: `message: "no\nteam"`, decoderAlone: true},
		{old: `messageExpression: "'no ' + 'team'"`, new: "messageExpression: ' '"},
		{old: `messageExpression: "'no ' + 'team'"`, new: "messageExpression: ''"},
		{old: "reason: Forbidden", new: "reason: Unknown"},
		{old: "reason: Forbidden", new: "reason: Unauthorized"},
		{old: "reason: Forbidden", new: "reason: ''"},
		{old: "  validations:\n  - {expression: variables.team != '', message: no team, messageExpression: \"'no ' + 'team'\", reason: Forbidden}\n"},
		{old: "auditAnnotations: [{key: team, valueExpression: string(variables.team)}]", new: "auditAnnotations: []"},
		{old: "key: team", new: "key: a b"},
		{old: "{key: team, valueExpression: string(variables.team)}", new: "{key: team, valueExpression: string(variables.team)}, {key: team, valueExpression: string(variables.team)}"},
		{old: "valueExpression: string(variables.team)", new: "valueExpression: ' '"},
		{old: "reinvocationPolicy: Never", new: "reinvocationPolicy: Always"},
		{old: "  reinvocationPolicy: Never\n"},
		{old: "patchType: JSONPatch", new: "patchType: ApplyConfiguration"},
		{old: "patchType: JSONPatch", new: "patchType: Merge"},
		{old: "  - patchType: JSONPatch\n", new: "  -\n"},
		{old: `    jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/metadata/labels'}]"}` + "\n"},
		{old: `expression: "[JSONPatch{op: 'remove', path: '/metadata/labels'}]"`, new: "expression: ''"},
		{old: `applyConfiguration: {expression: "Object{}"}`, new: "applyConfiguration: {}"},
		{old: `applyConfiguration: {expression: "Object{}"}`, new: `jsonPatch: {expression: "[]"}`},
		{old: "  policyName: p\n"},
		{old: "policyName: p", new: "policyName: A"},
		{old: "[Deny, Audit]", new: "[]"},
		{old: "[Deny, Audit]", new: "[Deny, Warn]"},
		{old: "[Deny, Audit]", new: "[Audit, Audit]"},
		{old: "[Deny, Audit]", new: "[Refuse]"},
		{old: "  validationActions: [Deny, Audit]\n"},
		{old: "name: limits", new: "name: a/b"},
		{old: "name: limits, "},
		{old: "name: limits, ", new: "name: '', selector: {}, "},
		{old: "name: limits, ", new: "name: limits, selector: {}, "},
		{old: ", parameterNotFoundAction: Deny"},
		{old: "parameterNotFoundAction: Allow", new: "parameterNotFoundAction: Warn"},
		{old: "spec:", new: "status: {}\nspec:", decoderAlone: true}, // the API server drops it
	} {
		met := false
		for kind := range hookPolicies {
			full := hookPolicy(kind)
			if document := strings.Replace(full, tc.old, tc.new, 1); document != full || tc.old == tc.new {
				met = true
				agree(t, server, fmt.Sprintf("%s: %q in the place of %q", kind, tc.new, tc.old), []byte(document), tc.decoderAlone)
			}
		}
		if !met {
			t.Errorf("no document has %q", tc.old)
		}
	}
}
