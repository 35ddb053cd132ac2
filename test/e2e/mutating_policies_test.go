package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// mutations are Policies that change Pods and Pod templates. kube-apiserver applies them in any order, so none reads a field that the other one sets.
var mutations = []string{`
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: e2e-a-defaults}
spec:
  resources: [pods]
  podControllers: true
  operations: [CREATE]
  mode: enforce
  parameters: [{name: team, default: web}]
  variables:
  - {name: privileged, expression: "allContainers.filter(c, c.?securityContext.?privileged.orValue(false)).map(c, c.name)"}
  mutations:
  - {field: "metadata.labels['example.com/team']", value: parameters.team}
  - {field: "metadata.annotations['example.com/privileged']", value: "variables.privileged.join(',')", when: "variables.privileged != []"}
  - field: allContainers[*].securityContext.allowPrivilegeEscalation
    value: "false"
    when: "!item.?securityContext.?privileged.orValue(false)"
`, `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: e2e-b-images}
spec:
  resources: [pods]
  podControllers: true
  operations: [CREATE]
  mode: enforce
  mutations:
  - {field: "spec.containers[*].image", value: "'registry.example.com/' + string(index) + '/' + current", when: "!current.contains('/')", overwrite: true}
  - {field: spec.tolerations, value: "(current == null ? [] : current) + [{'key': 'spot', 'operator': 'Exists'}]", overwrite: true}
  - {field: "spec.containers[*].env", value: "[{'name': 'INDEX', 'value': string(index)}]"}
`}

// mutated are objects that the policies change.
var mutated = map[string]struct {
	resource schema.GroupVersionResource
	manifest string
}{
	"a Pod": {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "spec: {automountServiceAccountToken: false, containers: [{name: a, image: web}]}"},
	"a labelled Pod": {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, `metadata: {labels: {example.com/team: data}}
spec: {automountServiceAccountToken: false, tolerations: [{key: gpu, operator: Exists}], containers: [{name: a, image: "example.com/web:1", env: [{name: A, value: b}]}]}`},
	"a Pod with an init container and a privileged container": {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, `
spec:
  automountServiceAccountToken: false
  initContainers: [{name: i, image: init, securityContext: {runAsNonRoot: true}}]
  containers: [{name: a, image: web}, {name: b, image: root, securityContext: {privileged: true}}]`},
	"a Deployment": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, `
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: web}]}}}`},
	"a ReplicaSet, which stays": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, `
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: web}]}}}`},
	"a CronJob": {schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}, `
spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: web}]}}}}}`},
}

// TestAPolicyChangesObjectsInTheMeshAsInTheAPIServer has kube-apiserver itself change the objects of one namespace, by the documents that
// `policy expand` prints, and the mesh the objects of another, by the Policies. The objects are the same.
func TestAPolicyChangesObjectsInTheMeshAsInTheAPIServer(t *testing.T) {
	r := newRoadWith(t, mesh.Options{Documents: mutations})
	hook := r.entry("mutate", []admissionregistrationv1.OperationType{admissionregistrationv1.Create})
	hook.Group, hook.Resources = "*", []string{"pods", "deployments", "replicasets", "cronjobs"}
	cluster.InstallMutating(t, kube.Mutating(r.name, hook))
	native := cluster.Namespace(t, map[string]string{judgedBy: "native"})
	installExpansions(t)
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	create := func(kind, namespace string) (map[string]any, error) {
		of, o := mutated[kind], &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(of.manifest), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion(of.resource.GroupVersion().String())
		o.SetKind(map[string]string{"pods": "Pod", "deployments": "Deployment", "replicasets": "ReplicaSet", "cronjobs": "CronJob"}[of.resource.Resource])
		o.SetName("changed")
		created, err := client.Resource(of.resource).Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return nil, fmt.Errorf("%s in %s: %w", kind, namespace, err)
		}
		return map[string]any{"labels": created.GetLabels(), "annotations": created.GetAnnotations(), "spec": created.Object["spec"]}, nil
	}
	eventually(t, "kube-apiserver changes Pods by both policies", func() error {
		changed, err := create("a Pod", native)
		if err != nil {
			return err
		}
		if text := fmt.Sprint(changed); !strings.Contains(text, "registry.example.com/0/web") || !strings.Contains(text, "allowPrivilegeEscalation") {
			return errors.New(text)
		}
		return nil
	})

	for kind := range mutated {
		t.Run(kind, func(t *testing.T) {
			want, err := create(kind, native)
			if err != nil {
				t.Fatal(err)
			}
			got, err := create(kind, r.namespace)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects, kube-apiserver's (-) and the mesh's (+):\n%s", diff)
			}
			if stays := strings.HasSuffix(kind, "stays"); strings.Contains(fmt.Sprint(got), "spot") == stays {
				t.Errorf("changed: %t, %v", !stays, got)
			}
		})
	}
}

// installExpansions creates the expansions of the mutations, for namespaces that kube-apiserver judges, and removes them at the end of the test.
func installExpansions(t *testing.T) {
	t.Helper()
	file, api := filepath.Join(t.TempDir(), "policies.yaml"), cluster.Client().AdmissionregistrationV1()
	if err := os.WriteFile(file, []byte(strings.Join(mutations, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	var notes bytes.Buffer
	expand := exec.CommandContext(t.Context(), portcullis, "policy", "expand", file, "--cluster", clusterName)
	expand.Stderr = &notes
	out, err := expand.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, notes.String())
	}
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		var of metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &of); err != nil {
			t.Fatal(err)
		}
		if of.Kind == "MutatingAdmissionPolicyBinding" {
			var b admissionregistrationv1.MutatingAdmissionPolicyBinding
			if err := yaml.UnmarshalStrict([]byte(document), &b); err != nil {
				t.Fatal(err)
			}
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{judgedBy: "native"}}}
			if _, err := api.MutatingAdmissionPolicyBindings().Create(t.Context(), &b, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { removed(t, api.MutatingAdmissionPolicyBindings().Delete, b.Name) })
			continue
		}
		var p admissionregistrationv1.MutatingAdmissionPolicy
		if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
			t.Fatal(err)
		}
		if _, err := api.MutatingAdmissionPolicies().Create(t.Context(), &p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, api.MutatingAdmissionPolicies().Delete, p.Name) })
	}
}
