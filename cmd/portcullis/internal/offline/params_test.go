package offline_test

import (
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// limited is a policy that takes its limit from params, which the configuration has for all clusters but one.
const limited = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limited}
spec:
  paramKind: {apiVersion: example.com/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}
  validations:
  - {expression: "int(object.data.size) <= params.spec.most", messageExpression: "'at most ' + string(params.spec.most)"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limited}
spec: {policyName: limited, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}
---
apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: limits}
spec:
  clusters: [a, b]
  objects:
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: limits}, spec: {most: 5}}
---
apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: other-limits}
spec:
  clusters: [c]
  objects:
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: limits}, spec: {most: 7}}
  - {apiVersion: example.com/v1, kind: Limit, metadata: {name: more}, spec: {most: 9}}
`

// TestAPolicyHasParamsOfTheConfiguration in clusters that cannot be asked for anything.
func TestAPolicyHasParamsOfTheConfiguration(t *testing.T) {
	m := meshOf(t, limited)
	for cluster, want := range map[string]string{
		"a": "at most 5", "b": "at most 5", "c": "at most 7",
		"d": "failed to configure policy: the params of kind Limit: its objects are unknown: give the Cluster document spec.kubeconfig or spec.bridge",
	} {
		request, err := m.Request(t.Context(), &offline.Write{
			Cluster: cluster, User: "alice", Object: asJSON(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {size: "8"}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := with(t, m, &offline.Facts{Cluster: match.Unknown{}}).Review(t.Context(), &admissionv1.ReviewRequest{
			Stage: admissionv1.Stage_STAGE_VALIDATE, Request: request,
		})
		if err != nil {
			t.Fatal(err)
		}
		if said := answer.GetResponse().GetStatus().GetMessage(); !strings.HasSuffix(said, want) {
			t.Errorf("cluster %s: %q, want %q", cluster, said, want)
		}
	}
}
