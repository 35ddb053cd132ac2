package offline_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/offline"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

const configuration = `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: label-team}
spec:
  resources: [pods]
  podControllers: true
  exclude: {namespaces: [kube-system]}
  parameters: [{name: teams, default: [web], byCluster: {trial: [sandbox]}}]
  validations: [{expression: "'team' in labels && labels.team in parameters.teams", message: no team}]
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: few-replicas}
spec:
  resources: [deployments]
  validations: [{expression: object.spec.replicas < 3, message: too many replicas}]
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: no-exec}
spec:
  resources: [pods/exec]
  operations: [CONNECT]
  validations: [{expression: request.namespace != 'shop', message: no sessions in the shop}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: by-cluster}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}]}
  validations:
  - {expression: "request.operation == 'DELETE' || object.data.most == params.data.most", message: another number}
  - {expression: "namespaceObject.metadata.labels.env == 'dev'", message: not in dev}
  - {expression: "authorizer.group('').resource('configmaps').check('approve').allowed()", message: not approved}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: by-cluster}
spec: {policyName: by-cluster, validationActions: [Deny], paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: add-label}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [stable.example.com], apiVersions: [v1], resources: [widgets], operations: [CREATE]}]}
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"size": object.spec.size}}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: add-label}
spec: {policyName: add-label}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: custom}
spec:
  kubeconfig: /nowhere
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: widgets}
spec:
  customResourceDefinitions:
  - apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: widgets.stable.example.com}
    spec:
      group: stable.example.com
      scope: Namespaced
      names: {plural: widgets, kind: Widget}
      versions:
      - name: v1
        served: true
        storage: true
        schema:
          openAPIV3Schema:
            type: object
            properties: {spec: {type: object, properties: {size: {type: string, default: small}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: elsewhere}
webhooks:
- name: elsewhere.example.com
  clientConfig: {url: "https://elsewhere.example.com"}
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: ["*"]}]
`

func mesh(t *testing.T) *offline.Mesh {
	t.Helper()
	return meshOf(t, configuration)
}

func meshOf(t *testing.T, configuration string) *offline.Mesh {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, problems, err := offline.Load(t.Context(), file)
	if err != nil || problems.Err() != nil {
		t.Fatal(err, problems)
	}
	m, problems := offline.New(offline.Enforced(objects))
	if problems.Err() != nil {
		t.Fatal(problems)
	}
	return m
}

func with(t *testing.T, m *offline.Mesh, f *offline.Facts) *offline.Judge {
	t.Helper()
	j, err := m.With(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close(context.WithoutCancel(t.Context())) })
	return j
}

func asJSON(t *testing.T, text string) []byte {
	t.Helper()
	if text == "" {
		return nil
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// approves allows one verb.
func approves(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "approve" && a.GetUser().GetName() == "alice" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestReviewsAreJudgedByFilesAndFacts(t *testing.T) {
	m := mesh(t)
	limits := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "limits"}, "data": map[string]any{"most": "1"},
	}}
	facts := offline.Facts{
		Namespaces: map[string]map[string]string{"default": {"env": "dev"}}, Objects: []*unstructured.Unstructured{limits},
		Authorizer: authorizer.AuthorizerFunc(approves),
	}
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {team: %}}, spec: {containers: [{name: a, image: b}]}}"
	team := func(name string) string { return strings.Replace(pod, "%", name, 1) }
	const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {most: "1"}}`
	for name, of := range map[string]struct {
		write       offline.Write
		object, old string
		facts       *offline.Facts
		denied      string // part of the message; empty for allowed
	}{
		"A Policy denies":                                  {object: team("none"), denied: "Policy 'label-team' denied request: no team"},
		"A Policy allows":                                  {object: team("web")},
		"A parameter has a value for a cluster":            {object: team("web"), write: offline.Write{Cluster: "trial"}, denied: "no team"},
		"A namespace is excluded by its name":              {object: team("none"), write: offline.Write{Namespace: "kube-system"}},
		"The object has the defaults of Kubernetes":        {object: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {metadata: {labels: {team: web}}}}}"},
		"An update is told by the old object":              {object: team("none"), old: team("web"), denied: "no team"},
		"A DELETE has no object":                           {object: team("none"), write: offline.Write{Operation: "DELETE"}},
		"A session is a CONNECT":                           {object: "{apiVersion: v1, kind: PodExecOptions, command: [sh]}", write: offline.Write{Namespace: "shop"}, denied: "no sessions"},
		"A session elsewhere is allowed":                   {object: "{apiVersion: v1, kind: PodExecOptions, command: [sh]}"},
		"Params, namespace and authorizer come from facts": {object: configMap, facts: &facts, write: offline.Write{User: "alice"}},
		"The authorizer is asked about the user":           {object: configMap, facts: &facts, denied: "not approved"},
		"A namespace has its labels":                       {object: configMap, facts: &facts, write: offline.Write{User: "alice", Namespace: "other"}, denied: "no such key: env"},
		"A missing param is missing":                       {object: configMap, denied: "no params found"},
	} {
		t.Run(name, func(t *testing.T) {
			w := of.write
			w.Object, w.OldObject = asJSON(t, of.object), asJSON(t, of.old)
			request, err := m.Request(t.Context(), &w)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := with(t, m, of.facts).Judge(t.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_ADMIT, Admission: request})
			if err != nil {
				t.Fatal(err)
			}
			if said := answer.Response.GetStatus().GetMessage(); answer.Response.GetAllowed() != (of.denied == "") || !strings.Contains(said, of.denied) {
				t.Errorf("allowed: %t, %q, want %q", answer.Response.GetAllowed(), said, of.denied)
			}
		})
	}
}

func TestCustomResourcesHaveTheirDefaultsAndAreMutated(t *testing.T) {
	m := mesh(t)
	request, err := m.Request(t.Context(), &offline.Write{
		Cluster: "widgets", Object: asJSON(t, "{apiVersion: stable.example.com/v1, kind: Widget, metadata: {name: a}, spec: {}}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := with(t, m, nil).Judge(t.Context(), &review.Request{Stage: admissionv1.Stage_STAGE_ADMIT, Admission: request})
	if err != nil || !answer.Response.GetAllowed() || !strings.Contains(string(answer.Object), `"labels":{"size":"small"}`) {
		t.Errorf("%v, %v, %s", err, answer.Response, answer.Object)
	}
}

func TestTheServiceOfAMeshHasTheSameAnswer(t *testing.T) {
	m := mesh(t)
	request, err := m.Request(t.Context(), &offline.Write{Object: asJSON(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}")})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := with(t, m, nil).Review(t.Context(), &admissionv1.ReviewRequest{Stage: admissionv1.Stage_STAGE_VALIDATE, Request: request, Explain: true})
	if err != nil || answer.GetResponse().GetAllowed() || answer.GetOutcome() != "denied" || len(answer.GetOutcomes()) == 0 {
		t.Errorf("%v, %v", err, answer)
	}
}

// TestDirectoriesAreReadToTheirEnds without the files of other programs, and without hidden files.
func TestDirectoriesAreReadToTheirEnds(t *testing.T) {
	dir := t.TempDir()
	policy, _, _ := strings.Cut(configuration, "---\n")
	for name, text := range map[string]string{
		"a/b/policy.yaml": policy, "a/b/cases.yaml": "cases: []", "a/README.md": "none", "kustomization.yaml": "kind: Kustomization",
		".github/workflow.yaml": "none", "a/.hidden.yaml": "none", "kyverno-test.yaml": "kind: Test",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, problems, err := offline.Load(t.Context(), dir)
	if err != nil || problems.Err() != nil || len(objects) != 1 || objects[0].Name != "label-team" {
		t.Errorf("%v, %v, %v", objects, problems, err)
	}
	if _, _, err := offline.Load(t.Context(), filepath.Join(dir, "nothing")); err == nil {
		t.Error("a missing path has no error")
	}
}

func TestWebhooksAreNotJudged(t *testing.T) {
	m := mesh(t)
	if all := m.Unjudged(); len(all) != 1 || all[0].Name != "elsewhere" {
		t.Errorf("%v", all)
	}
}

func TestImpossibleRequestsAreRefused(t *testing.T) {
	m := mesh(t)
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}"
	for name, of := range map[string]struct{ operation, resource, object, old, want string }{
		"no object":                {want: "object: it is required"},
		"no apiVersion":            {object: "{kind: Pod}", want: "object: it has no apiVersion"},
		"no old object":            {operation: "UPDATE", object: pod, want: "oldObject: an UPDATE has"},
		"an old object too many":   {operation: "CREATE", object: pod, old: pod, want: "oldObject: a CREATE has none"},
		"two objects of a DELETE":  {operation: "DELETE", object: pod, old: pod, want: "a DELETE has one object"},
		"a field of another type":  {object: "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: 5}}", want: "object: spec.containers: wrong type: it is a number, and must be a list"},
		"a resource that is none":  {resource: "Pods!", object: pod, want: "resource: "},
		"an update without object": {old: pod, want: "object: it is required"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.Request(t.Context(), &offline.Write{
				Operation: of.operation, Resource: of.resource, Object: asJSON(t, of.object), OldObject: asJSON(t, of.old),
			})
			if err == nil || !strings.Contains(err.Error(), of.want) {
				t.Errorf("%v, want %q", err, of.want)
			}
		})
	}
}
