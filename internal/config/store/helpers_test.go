package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// goodHook is a configuration that streams serve.
const goodHook = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: imagepolicy
webhooks:
- name: imagepolicy.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  rules:
  - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [pods]}
`

const goodRoute = `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: imagepolicy}
spec:
  configuration: imagepolicy
  hook: imagepolicy.example.com
  stage: validate
  stream: {}
  hosts: ["spiffe://mesh/imagepolicy"]
  clusters: [prod-1]
  timeout: 250ms
`

const goodCluster = `apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec:
  identities: [kube-apiserver]
  namespaces:
    static: {default: {env: dev}}
`

// betaHooks are two hooks that v1 would refuse for four reasons and v1beta1 does not.
const betaHooks = `apiVersion: admissionregistration.k8s.io/v1beta1
kind: ValidatingWebhookConfiguration
metadata:
  name: old
webhooks:
- name: a.example.com
  clientConfig: {url: "https://example.com/a"}
  rules:
  - {apiGroups: ["apps"], apiVersions: ["v1"], operations: [CREATE], resources: [deployments]}
- name: a.example.com
  sideEffects: Some
  failurePolicy: Fail
  clientConfig: {service: {namespace: ns, name: svc}}
`

const alphaHooks = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata:
  name: older
externalAdmissionHooks:
- name: image.example.com
  clientConfig:
    service: {namespace: ns, name: svc}
    urlPath: /apis/check
    caBundle: Cg==
  rules:
  - operations: [CREATE]
    apiGroups: [""]
    apiVersions: [v1]
    resources: [pods]
`

func lines(problems config.Problems) []string {
	all := []string{}
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

// decodeOne decodes a document that must have nothing wrong with it.
func decodeOne(t testing.TB, data string) config.Object {
	t.Helper()
	objects, problems := configtest.Decode("f.yaml", []byte(data))
	if err := problems.Err(); err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	return objects[0]
}

// conditional is a configuration of a name with one matchCondition for each expression, 64 to a hook.
func conditional(name string, expressions ...string) string {
	var hooks []string
	for len(expressions) > 0 {
		n := min(len(expressions), 64)
		var conditions []string
		for i, x := range expressions[:n] {
			conditions = append(conditions, fmt.Sprintf(`{"name":"c%d","expression":%q}`, i, x))
		}
		hooks = append(hooks, fmt.Sprintf(`{"name":"h%d.a.b","clientConfig":{},"sideEffects":"None","admissionReviewVersions":["v1"],`+
			`"matchConditions":[%s]}`, len(hooks), strings.Join(conditions, ",")))
		expressions = expressions[n:]
	}
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[%s]}`,
		name, strings.Join(hooks, ","))
}
