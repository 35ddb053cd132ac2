package directory

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
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

func lines(problems config.Problems) []string {
	all := []string{}
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

func codes(problems config.Problems) string {
	var all []string
	for _, p := range problems {
		all = append(all, p.Code)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// clusterDoc is a valid document; version makes its content differ.
func clusterDoc(name, version string) string {
	return fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s, labels: {version: %q}}\nspec: {identities: [x]}\n---\n", name, version)
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

// mustFresh is the revision that a review would be judged by.
func mustFresh(t *testing.T, s *store.Store) string {
	t.Helper()
	snapshot, err := s.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Revision()
}
