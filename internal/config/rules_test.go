package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ruledHooks is a configuration of either kind in which every field that has a rule has a line of its own.
const ruledHooks = `apiVersion: admissionregistration.k8s.io/v1
kind: KIND
metadata:
  name: ruled
  labels:
    team: policy
  annotations:
    example.com/owner: policy
webhooks:
- name: first.example.com
  clientConfig:
    url: https://example.com/first
  sideEffects: None
  admissionReviewVersions: [v1]
- name: second.example.com
  clientConfig:
    service:
      namespace: ns
      name: svc
      path: /check
      port: 443
    caBundle: Cg==
  rules:
  - operations: [CREATE]
    apiGroups: [""]
    apiVersions: [v1]
    resources: [pods]
    scope: Namespaced
  failurePolicy: Fail
  matchPolicy: Equivalent
  namespaceSelector:
    matchLabels:
      env: prod
    matchExpressions:
    - key: tier
      operator: In
      values: [gold]
  objectSelector:
    matchExpressions:
    - key: app
      operator: Exists
  sideEffects: None
  timeoutSeconds: 5
  admissionReviewVersions:
  - v1
  - v1beta1
  matchConditions:
  - name: one
    expression: request.name != ''
  - name: two
    expression: request.operation == 'CREATE'
`

// TestEveryRuleOfARegistrationIsToldWithItsPlace breaks each rule of k8s.io/kubernetes' validation of webhook configurations
// (and of the metadata that they share with all objects), in both kinds.
func TestEveryRuleOfARegistrationIsToldWithItsPlace(t *testing.T) {
	for _, tc := range ruleCases() {
		for _, kind := range []string{validatingKind, mutatingKind} {
			t.Run(kind+"/"+tc.name, func(t *testing.T) {
				data := strings.Replace(ruledHooks, "KIND", kind, 1)
				if !strings.Contains(data, tc.old) {
					t.Fatalf("there is no %q", tc.old)
				}
				objects, problems := decode("f.yaml", []byte(strings.Replace(data, tc.old, tc.new, 1)))
				if len(objects) > 0 {
					t.Error("accepted")
				}
				var got []string
				for _, p := range problems {
					if p.File != "f.yaml" || p.Kind != kind || p.Code != CodeInvalid {
						t.Errorf("problem %+v", p)
					}
					got = append(got, fmt.Sprintf("%d %s: %s", p.Line, p.Field, p.Message))
				}
				for i := range min(len(got), len(tc.want)) {
					if begin, cut := strings.CutSuffix(tc.want[i], "..."); cut && strings.HasPrefix(got[i], begin) {
						got[i] = tc.want[i]
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("problems (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// ruleCase is a rule, a change of ruledHooks that breaks it, and the problem then: line, field and message. An ending of
// three dots stands for the rest of it.
type ruleCase struct {
	name     string
	old, new string
	want     []string
}

func ruleCases() []ruleCase {
	var many strings.Builder
	for i := range 65 {
		fmt.Fprintf(&many, "  - {name: n%d, expression: 'true'}\n", i)
	}
	return []ruleCase{
		{"an object has a name", "  name: ruled\n", "", []string{
			`3 metadata.name: Required value: name or generateName is required`,
		}},
		{"the name is that of a DNS subdomain", "name: ruled", "name: Ruled", []string{
			`4 metadata.name: Invalid value: "Ruled": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or...`,
		}},
		{"a name is not generated", "  name: ruled", "  generateName: ruled-", []string{
			`3 metadata.name: Required value: generateName alone is not enough: a document keeps its name`,
			`3 metadata.name: Required value: name or generateName is required`,
		}},
		{"label keys are qualified names", "team: policy", "'a team': policy", []string{
			`5 metadata.labels: Invalid value: "a team": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and...`,
		}},
		{"label values are short words", "team: policy", "team: a policy", []string{
			`5 metadata.labels: Invalid value: "a policy": a valid label must be an empty string or consist of alphanumeric characters, '-', '_...`,
		}},
		{"annotation keys are qualified names", "example.com/owner", "example.com/its owner", []string{
			`7 metadata.annotations: Invalid value: "example.com/its owner": name part must consist of alphanumeric characters, '-', '_' or '.'...`,
		}},
		{"finalizers are qualified names", "  labels:\n", "  finalizers: [no body]\n  labels:\n", []string{
			`5 metadata.finalizers: Invalid value: "no body": name part must consist of alphanumeric characters, '-', '_' or '.', and must star...`,
		}},
		{"owners are whole references", "  labels:\n", "  ownerReferences: [{apiVersion: v1, kind: Namespace, name: owner}]\n  labels:\n", []string{
			`5 metadata.ownerReferences.uid: Invalid value: "": must not be empty`,
		}},
		{"what is created has no resourceVersion", "  labels:\n", "  resourceVersion: '7'\n  labels:\n", []string{
			`5 metadata.resourceVersion: Forbidden: must not be set on an object to be created: remove it`,
		}},

		{"a hook has a name", "- name: second.example.com\n  client", "- client", []string{
			`15 webhooks[1].name: Required value`,
		}},
		{"of three segments", "second.example.com", "example.com", []string{
			`15 webhooks[1].name: Invalid value: "example.com": should be a domain with at least three segments separated by dots`,
		}},
		{"that are DNS labels", "second.example.com", "Second.example.com", []string{
			`15 webhooks[1].name: Invalid value: "Second.example.com": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric c...`,
		}},
		{"and no other hook's", "second.example.com", "first.example.com", []string{
			`15 webhooks[1].name: Duplicate value: "first.example.com"`,
		}},

		{"a hook is an address or a service, not both", "    url: https://example.com/first\n", "    url: https://example.com/first\n    service: {namespace: a, name: b}\n", []string{
			`11 webhooks[0].clientConfig: Required value: exactly one of url or service is required`,
		}},
		{"and one of them where there is a caBundle", "    url: https://example.com/first\n", "    caBundle: Cg==\n", []string{
			`11 webhooks[0].clientConfig: Required value: exactly one of url or service is required`,
		}},
		{"an address is https", "https://example.com/first", "http://example.com/first", []string{
			`12 webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`,
		}},
		{"with a host", "https://example.com/first", "https:///first", []string{
			`12 webhooks[0].clientConfig.url: Invalid value: "": host must be specified; desired format: https://host[/path]`,
		}},
		{"without a user", "https://example.com/first", "https://me:pw@example.com/first", []string{
			`12 webhooks[0].clientConfig.url: Invalid value: "me:pw": user information is not permitted in the URL`,
		}},
		{"without a query", "https://example.com/first", "https://example.com/first?a=b", []string{
			`12 webhooks[0].clientConfig.url: Invalid value: "a=b": query parameters are not permitted in the URL`,
		}},
		{"without a fragment", "https://example.com/first", "https://example.com/first#a", []string{
			`12 webhooks[0].clientConfig.url: Invalid value: "a": fragments are not permitted in the URL`,
		}},
		{"and is a URL", "https://example.com/first", "https://example.com:port/first", []string{
			`12 webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse "https://example.com:port/first": invalid port ":p...`,
		}},
		{"a service has a namespace", "      namespace: ns\n", "", []string{
			`17 webhooks[1].clientConfig.service.namespace: Required value`,
		}},
		{"and a name", "      name: svc\n", "", []string{
			`17 webhooks[1].clientConfig.service.name: Required value`,
		}},
		{"its path begins with a slash", "path: /check", "path: check", []string{
			`20 webhooks[1].clientConfig.service.path: Invalid value: "check": must start with a '/'`,
		}},
		{"has no empty segment", "path: /check", "path: /check//twice", []string{
			`20 webhooks[1].clientConfig.service.path: Invalid value: "/check//twice": segment[1] may not be empty`,
		}},
		{"and segments that are DNS subdomains", "path: /check", "path: /Check_it", []string{
			`20 webhooks[1].clientConfig.service.path: Invalid value: "/Check_it": segment[0]: a lowercase RFC 1123 subdomain must consist of l...`,
		}},
		{"its port is above 0", "port: 443", "port: 0", []string{
			`21 webhooks[1].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive`,
		}},
		{"and below 65536", "port: 443", "port: 65536", []string{
			`21 webhooks[1].clientConfig.service.port: Invalid value: 65536: port is not valid: must be between 1 and 65535, inclusive`,
		}},

		{"a rule has operations", "  - operations: [CREATE]\n    apiGroups", "  - apiGroups", []string{
			`24 webhooks[1].rules[0].operations: Required value`,
		}},
		{"all of them or some", "[CREATE]", "[CREATE, '*']", []string{
			`24 webhooks[1].rules[0].operations: Invalid value: ["CREATE","*"]: if '*' is present, must not specify other operations`,
		}},
		{"and those that there are", "[CREATE]", "[CREATE, PATCH]", []string{
			`24 webhooks[1].rules[0].operations[1]: Unsupported value: "PATCH": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`,
		}},
		{"it has groups", "    apiGroups: [\"\"]\n", "", []string{
			`24 webhooks[1].rules[0].apiGroups: Required value`,
		}},
		{"all of them or some groups", `apiGroups: [""]`, `apiGroups: ["", "*"]`, []string{
			`25 webhooks[1].rules[0].apiGroups: Invalid value: ["","*"]: if '*' is present, must not specify other API groups`,
		}},
		{"it has versions", "    apiVersions: [v1]\n", "", []string{
			`24 webhooks[1].rules[0].apiVersions: Required value`,
		}},
		{"all of them or some versions", "apiVersions: [v1]", "apiVersions: [v1, '*']", []string{
			`26 webhooks[1].rules[0].apiVersions: Invalid value: ["v1","*"]: if '*' is present, must not specify other API versions`,
		}},
		{"no empty one", "apiVersions: [v1]", "apiVersions: [v1, '']", []string{
			`26 webhooks[1].rules[0].apiVersions[1]: Required value`,
		}},
		{"it has resources", "    resources: [pods]\n", "", []string{
			`24 webhooks[1].rules[0].resources: Required value`,
		}},
		{"no empty one either", "resources: [pods]", "resources:\n    - pods\n    - ''", []string{
			`29 webhooks[1].rules[0].resources[1]: Required value`,
		}},
		{"everything and nothing else", "[pods]", "['*/*', pods]", []string{
			`27 webhooks[1].rules[0].resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources`,
		}},
		{"all resources and no single one", "[pods]", "['*', pods]", []string{
			`27 webhooks[1].rules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources`,
		}},
		{"all subresources of a resource and no single one", "[pods]", "[pods/*, pods/exec]", []string{
			`27 webhooks[1].rules[0].resources[1]: Invalid value: "pods/exec": if 'pods/*' is present, must not specify pods/exec`,
		}},
		{"a subresource of everything and not of a single one", "[pods]", "['*/scale', deployments/scale]", []string{
			`27 webhooks[1].rules[0].resources[1]: Invalid value: "deployments/scale": if '*/scale' is present, must not specify deployments/scale`,
		}},
		{"a scope is one of three", "Namespaced", "All", []string{
			`28 webhooks[1].rules[0].scope: Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"`,
		}},

		{"a failure policy is one of two", "failurePolicy: Fail", "failurePolicy: Retry", []string{
			`29 webhooks[1].failurePolicy: Unsupported value: "Retry": supported values: "Fail", "Ignore"`,
		}},
		{"a match policy is one of two", "matchPolicy: Equivalent", "matchPolicy: Fuzzy", []string{
			`30 webhooks[1].matchPolicy: Unsupported value: "Fuzzy": supported values: "Equivalent", "Exact"`,
		}},
		{"side effects are told", "  sideEffects: None\n  timeout", "  timeout", []string{
			`15 webhooks[1].sideEffects: Required value: must specify one of None, NoneOnDryRun`,
		}},
		{"and there are none but in dry runs", "  sideEffects: None\n  timeout", "  sideEffects: Some\n  timeout", []string{
			`42 webhooks[1].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`,
		}},
		{"the timeout is a second at least", "timeoutSeconds: 5", "timeoutSeconds: 0", []string{
			`43 webhooks[1].timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds`,
		}},
		{"and 30 at most", "timeoutSeconds: 5", "timeoutSeconds: 31", []string{
			`43 webhooks[1].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds`,
		}},

		{"selectors name labels", "env: prod", "'an env': prod", []string{
			`32 webhooks[1].namespaceSelector.matchLabels: Invalid value: "an env": name part must consist of alphanumeric characters, '-', '_'...`,
		}},
		{"with values that these can have", "env: prod", "env: the prod", []string{
			`32 webhooks[1].namespaceSelector.matchLabels: Invalid value: "the prod": a valid label must be an empty string or consist of alpha...`,
		}},
		{"keys of expressions are labels too", "key: tier", "key: a tier", []string{
			`35 webhooks[1].namespaceSelector.matchExpressions[0].key: Invalid value: "a tier": name part must consist of alphanumeric characte...`,
		}},
		{"operators are four", "operator: In", "operator: Near", []string{
			`36 webhooks[1].namespaceSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`,
		}},
		{"In has values", "      values: [gold]\n", "", []string{
			"35 webhooks[1].namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
		}},
		{"that labels can have", "[gold]", "[pure gold]", []string{
			`37 webhooks[1].namespaceSelector.matchExpressions[0].values[0]: Invalid value: "pure gold": a valid label must be an empty string...`,
		}},
		{"Exists has none", "operator: Exists", "operator: Exists\n      values: [a]", []string{
			"42 webhooks[1].objectSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
		}},
		{"expressions have an operator", "      operator: Exists\n", "", []string{
			`40 webhooks[1].objectSelector.matchExpressions[0].operator: Invalid value: "": not a valid selector operator`,
		}},

		{"versions of reviews are told", "  admissionReviewVersions:\n  - v1\n  - v1beta1\n", "", []string{
			`15 webhooks[1].admissionReviewVersions: Required value: must specify one of v1, v1beta1`,
		}},
		{"one of them is known", "  - v1\n  - v1beta1\n", "  - v7\n", []string{
			`44 webhooks[1].admissionReviewVersions: Invalid value: ["v7"]: must include at least one of v1, v1beta1`,
		}},
		{"each stands there once", "  - v1\n  - v1beta1\n", "  - v1\n  - v1beta1\n  - v1\n", []string{
			`47 webhooks[1].admissionReviewVersions[2]: Invalid value: "v1": duplicate version`,
		}},
		{"and is a DNS label", "  - v1\n  - v1beta1\n", "  - v1\n  - V2\n", []string{
			`46 webhooks[1].admissionReviewVersions[1]: Invalid value: "V2": a DNS-1035 label must consist of lower case alphanumeric character...`,
		}},

		{"conditions have names", "  - name: two\n    expression", "  - expression", []string{
			`50 webhooks[1].matchConditions[1].name: Required value`,
		}},
		{"that are qualified", "name: two", "name: number two", []string{
			`50 webhooks[1].matchConditions[1].name: Invalid value: "number two": name part must consist of alphanumeric characters, '-', '_' o...`,
		}},
		{"and their own", "name: two", "name: one", []string{
			`50 webhooks[1].matchConditions[1].name: Duplicate value: "one"`,
		}},
		{"they have expressions", "    expression: request.operation == 'CREATE'\n", "", []string{
			`50 webhooks[1].matchConditions[1].expression: Required value`,
		}},
		{"in CEL", "request.operation == 'CREATE'", "request.operation ==", []string{
			`51 webhooks[1].matchConditions[1].expression: Invalid value: "request.operation ==": compilation failed: ERROR: <input>:1:21: Synt...`,
		}},
		{"of what there is", "request.operation == 'CREATE'", "requests.operation == 'CREATE'", []string{
			`51 webhooks[1].matchConditions[1].expression: Invalid value: "requests.operation == 'CREATE'": compilation failed: ERROR: <input>:...`,
		}},
		{"without the parameters of policies", "request.operation == 'CREATE'", "params.a == 'CREATE'", []string{
			`51 webhooks[1].matchConditions[1].expression: Invalid value: "params.a == 'CREATE'": compilation failed: ERROR: <input>:1:1: undec...`,
		}},
		{"that are true or false", "request.operation == 'CREATE'", "request.operation", []string{
			`51 webhooks[1].matchConditions[1].expression: Invalid value: "request.operation": must evaluate to bool but got string`,
		}},
		{"64 at most", "  - name: one\n    expression: request.name != ''\n  - name: two\n    expression: request.operation == 'CREATE'\n", many.String(), []string{
			`47 webhooks[1].matchConditions: Too many: 65: must have at most 64 items`,
		}},
	}
}

func TestAReinvocationPolicyIsToldWithItsPlace(t *testing.T) {
	data := strings.NewReplacer("KIND", mutatingKind, "  timeoutSeconds: 5\n", "  timeoutSeconds: 5\n  reinvocationPolicy: Always\n").Replace(ruledHooks)
	_, problems := decode("f.yaml", []byte(data))
	want := []string{`f.yaml:44: MutatingWebhookConfiguration "ruled": webhooks[1].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`}
	if diff := cmp.Diff(want, lines(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestTheConfigurationWhoseRulesAreBrokenIsGood(t *testing.T) {
	for _, kind := range []string{validatingKind, mutatingKind} {
		decodeOne(t, strings.Replace(ruledHooks, "KIND", kind, 1))
	}
}
