package cases

import (
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
)

// TestAHookAloneHasItsOwnConditions has two hooks with a condition each, and no host: the call of a hook fails.
func TestAHookAloneHasItsOwnConditions(t *testing.T) {
	objects, problems := config.NewDecoder(apiserver.Validator{}).Decode("mesh.yaml", []byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: two}
webhooks:
- name: a.example.com
  clientConfig: {url: "https://a.example.com"}
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: never, expression: "false"}]
- name: b.example.com
  clientConfig: {url: "https://b.example.com"}
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: always, expression: "true"}]
---
apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: two}
spec: {configuration: two, stream: {}, hosts: ["spiffe://portcullis.dev/sample-host"]}
`))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	p := &policies{objects: objects, judged: map[selection]*judged{}, hooks: true}
	for hook, want := range map[string]bool{"a.example.com": true, "b.example.com": false} {
		by, err := p.judgedBy(&Case{Hook: hook})
		if err != nil {
			t.Fatal(err)
		}
		judge, err := by.mesh.With(nil)
		if err != nil {
			t.Fatal(err)
		}
		request, err := by.mesh.Request(t.Context(), &offline.Write{Object: []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {}}`)})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := judge.Judge(t.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_ADMIT, Admission: request})
		judge.Close(t.Context())
		if err != nil || answer.Response.GetAllowed() != want {
			t.Errorf("%s: %v, %v, want allowed: %t", hook, err, answer.Response, want)
		}
	}
}
