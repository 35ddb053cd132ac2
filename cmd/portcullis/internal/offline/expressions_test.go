package offline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/policy"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// explained is a policy whose expressions read a param, and the authorizer.
const explained = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: explained}
spec:
  paramKind: {apiVersion: v1, kind: KIND}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}]}
  validations:
  - expression: object.data.most == params.data.most
  - expression: params == null || !authorizer.group('').resource('configmaps').check('approve').allowed()
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: explained}
spec: {policyName: explained, validationActions: [Deny], paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}}
`

// TestExpressionsAreExplained by the service of a mesh, with the values of params, but not of Secrets, nor with the fields of an authorizer.
func TestExpressionsAreExplained(t *testing.T) {
	allows := authorizer.AuthorizerFunc(approves)
	for kind, want := range map[string]string{
		"ConfigMap": `ValidatingAdmissionPolicy/explained: validations[0] is false:
  object.data.most == params.data.most = false
    object.data.most = "1"
    params.data.most = "c2VjcmV0"
ValidatingAdmissionPolicy/explained: validations[1] is false:
  params == null || !authorizer.group("").resource("configmaps").check("approve").allowed() = false
    params == null = false
      params = {"apiVersion":"v1","data":{"most":"c2VjcmV0"},"kind":"ConfigMap","metadata":{"name":"limits"}}
    !authorizer.group("").resource("configmaps").check("approve").allowed() = false
      authorizer.group("").resource("configmaps").check("approve").allowed() = true
        authorizer.group("").resource("configmaps").check("approve") = kubernetes.authorization.Decision
          authorizer.group("").resource("configmaps") = kubernetes.authorization.ResourceCheck
            authorizer.group("") = kubernetes.authorization.GroupCheck
              authorizer = kubernetes.authorization.Authorizer
`,
		"Secret": `ValidatingAdmissionPolicy/explained: validations[0] is false:
ValidatingAdmissionPolicy/explained: validations[1] is false:
`,
	} {
		t.Run(kind, func(t *testing.T) {
			m := meshOf(t, strings.Replace(explained, "KIND", kind, 1))
			request, err := m.Request(t.Context(), &offline.Write{
				User: "alice", Object: asJSON(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {most: "1"}}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			limits := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "limits"}, "data": map[string]any{"most": "c2VjcmV0"},
			}}
			judge := with(t, m, &offline.Facts{Objects: []*unstructured.Unstructured{limits}, Authorizer: allows})
			said := func(explain bool) (*admissionv1.ReviewResponse, string) {
				answer, err := judge.Review(t.Context(), &admissionv1.ReviewRequest{
					Stage: admissionv1.Stage_STAGE_VALIDATE, Request: request, Explain: true, Expressions: explain,
				})
				if err != nil {
					t.Fatal(err)
				}
				text := ""
				for _, x := range offline.ExpressionsOf(answer.GetOutcomes()) {
					text += strings.Join(x.Lines(), "\n") + "\n"
				}
				return answer, text
			}
			plain, none := said(false)
			answer, text := said(true)
			if text != want || none != "" {
				t.Errorf("%s, without explanations %q", text, none)
			}
			if a, b := plain.GetResponse().String(), answer.GetResponse().String(); a != b || answer.GetResponse().GetAllowed() {
				t.Errorf("with an explanation the answer is %s, without one %s", b, a)
			}
		})
	}
}

// TestAReviewHasSoManyExpressions of all its policies together, of which one is in shadow.
func TestAReviewHasSoManyExpressions(t *testing.T) {
	var documents []string
	for name, mode := range map[string]string{"decides": "enforce", "in-shadow": "shadow"} {
		documents = append(documents, "apiVersion: portcullis.dev/v1\nkind: Policy\nmetadata: {name: "+name+"}\nspec:\n  resources: [pods]\n  mode: "+mode+
			"\n  validations:\n"+strings.Repeat("  - {expression: object.metadata.name == 'b', message: another name}\n", 40))
	}
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, problems, err := offline.Load(t.Context(), file)
	if err != nil || problems.Err() != nil {
		t.Fatal(err, problems)
	}
	m, problems := offline.New(objects)
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	request, err := m.Request(t.Context(), &offline.Write{Object: asJSON(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}")})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := with(t, m, nil).Review(t.Context(), &admissionv1.ReviewRequest{
		Stage: admissionv1.Stage_STAGE_ADMIT, Request: request, Explain: true, AwaitShadows: true, Expressions: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(offline.ExpressionsOf(answer.GetOutcomes())); got != policy.MaxExpressions {
		t.Errorf("%d expressions, want %d", got, policy.MaxExpressions)
	}
}
