package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// judgedBy is the label of namespaces that says who judges their Pods: native is kube-apiserver.
const judgedBy = "e2e.portcullis.dev/judged-by"

// podPolicies are policies on Pods, and each write of the test concerns a policy.
const podPolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-labels}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}
    excludeResourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: ["*"], resourceNames: [excluded]}
  matchConditions:
  - {name: no-system-users, expression: "!request.userInfo.username.startsWith('system:node:')"}
  - {name: no-exceptions, expression: "object.metadata.?annotations['e2e/exception'].orValue('') != 'yes'"}
  variables:
  - {name: labels, expression: "object.metadata.?labels.orValue({})"}
  - {name: team, expression: "'team' in variables.labels ? variables.labels['team'] : ''"}
  validations:
  - {expression: "variables.team != ''", message: "add the label team", reason: Forbidden}
  - expression: "variables.team.size() < 8"
    messageExpression: "'the team ' + variables.team + ' has a long name'"
  - {expression: "oldObject == null || oldObject.metadata.?labels['team'].orValue('') == variables.team"}
  - {expression: "!('size' in variables.labels) || int(variables.labels['size']) < 10", message: "too large"}
  auditAnnotations:
  - {key: team, valueExpression: "string(variables.team)"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-images}
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["*"], resources: [pods], operations: [CREATE]}
  validations:
  - {expression: "object.spec.containers.all(c, !c.image.endsWith(':latest'))", message: "pin the image"}
  - {expression: "object.metadata.labels['optional'] != 'no'", message: "optional"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-deletes}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [DELETE]}
  validations:
  - {expression: "object == null && oldObject.metadata.name != 'kept'", messageExpression: "oldObject.metadata.name + ' stays'"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-limits}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  validations:
  - expression: "object.spec.containers.size() <= int(params.data.containers)"
    messageExpression: "params.metadata.name + ': at most ' + params.data.containers + ' containers in a namespace of ' + namespaceObject.metadata.labels['e2e/owner']"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-names}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  validations:
  - {expression: "object.metadata.?name.orValue('') != params.data.reserved", messageExpression: "'the name is reserved by ' + params.metadata.name"}
`

// readParams lets dispatchers read params.
const readParams = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: portcullis-params}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: portcullis-params}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: portcullis-params}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: ` + kube.ContextReaders + `}
`

// bindingOf binds a policy for the namespaces with a value of the label judgedBy.
func bindingOf(policy, judge string, actions ...admissionregistrationv1.ValidationAction) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: policy + "-" + strings.ToLower(string(actions[0]))},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy, ValidationActions: actions,
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{judgedBy: judge}}},
		},
	}
}

// bindings are the bindings of podPolicies.
func bindings(judge string) []*admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	limits, absent := bindingOf("e2e-limits", judge, admissionregistrationv1.Deny), bindingOf("e2e-limits", judge, admissionregistrationv1.Deny, admissionregistrationv1.Audit)
	limits.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "limits", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
	absent.Name = "e2e-limits-absent"
	absent.Spec.ParamRef = &admissionregistrationv1.ParamRef{Name: "absent", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
	absent.Spec.MatchResources.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"limits": "absent"}}
	names := bindingOf("e2e-names", judge, admissionregistrationv1.Deny)
	names.Spec.ParamRef = &admissionregistrationv1.ParamRef{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"e2e/names": "yes"}}, ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction),
	}
	return []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		limits, absent, names,
		bindingOf("e2e-labels", judge, admissionregistrationv1.Deny),
		bindingOf("e2e-images", judge, admissionregistrationv1.Warn, admissionregistrationv1.Audit),
		bindingOf("e2e-deletes", judge, admissionregistrationv1.Deny, admissionregistrationv1.Audit),
	}
}

// writer writes a Pod.
type writer func(context.Context, kubernetes.Interface, *corev1.Pod) error

// write has a client of its own write a Pod.
func write(t *testing.T, p *corev1.Pod, do writer) (got answer) {
	t.Helper()
	var heard warnings
	generated, config := regexp.MustCompile("gen-[a-z0-9]+"), cluster.Config()
	config.WarningHandler = &heard
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var status apierrors.APIStatus
	if err := do(t.Context(), client, p); errors.As(err, &status) {
		s := status.Status()
		_, message, named := strings.Cut(s.Message, "ValidatingAdmissionPolicy ")
		if !named {
			t.Fatal(err)
		}
		got = answer{Code: s.Code, Reason: s.Reason, Message: message, Details: generated.ReplaceAllString(fmt.Sprintf("%+v", s.Details), "gen-")}
	} else if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(heard.String()) {
		if !strings.HasPrefix(line, "policy ") { // the mesh says which policy failed open
			got.Warnings += line
		}
	}
	return got
}

// removed deletes an object.
func removed(t *testing.T, remove func(context.Context, string, metav1.DeleteOptions) error, name string) {
	t.Helper()
	if err := remove(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// answer is the answer to a write, without the name of the webhook.
type answer struct {
	Code             int32
	Reason           metav1.StatusReason
	Message, Details string
	Warnings         string
}

// TestAPolicyAnswersInTheMeshAsInTheAPIServer has kube-apiserver itself judge the Pods of one namespace, and the mesh the Pods of another, by the
// same policies. A client gets the same answers.
func TestAPolicyAnswersInTheMeshAsInTheAPIServer(t *testing.T) {
	documents := []string{podPolicies}
	for _, b := range bindings("mesh") {
		documents = append(documents, mesh.Document(t, b))
	}
	cluster.Apply(t, readParams)
	r := newRoadWith(t, mesh.Options{Documents: documents})
	r.validate(t, admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete)
	inMesh := r.newNamespace(t, map[string]string{judgedBy: "mesh", "e2e/owner": "shop"})
	native := cluster.Namespace(t, map[string]string{judgedBy: "native", "e2e/owner": "shop"})
	for _, namespace := range []string{inMesh, native} {
		for _, name := range []string{"one", "two"} {
			createParams(t, namespace, "names-"+name, map[string]string{"e2e/names": "yes"}, map[string]string{"reserved": name})
		}
		createParams(t, namespace, "limits", nil, map[string]string{"containers": "2"})
	}
	installPolicies(t, podPolicies, bindings("native"))
	labelled := func(labels map[string]string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = labels }
	}
	eventually(t, "kube-apiserver judges by each of the policies", func() error {
		var errs []error
		for _, marker := range []struct {
			name, message string
			labels        map[string]string
			do            writer
		}{
			{"marker", "", map[string]string{"team": "a", "optional": "yes"}, dryCreate}, {"marker", "add the label team", nil, dryCreate},
			{"one", "the name is reserved", map[string]string{"team": "a"}, dryCreate}, {"two", "the name is reserved", map[string]string{"team": "a"}, dryCreate},
			{"marker", "e2e-limits", map[string]string{"team": "a", "optional": "yes", "limits": "absent"}, dryCreate},
			{"kept", "kept stays", map[string]string{"team": "a", "optional": "yes"}, createAndDelete},
		} { // each is refused by one policy at most: kube-apiserver answers with any of the refusals
			p := kube.Pod(native, marker.name)
			p.Labels, p.Spec.Containers[0].Image = marker.labels, "registry.example.com/app:latest"
			got := write(t, p, marker.do)
			allowed := marker.message == ""
			if !strings.Contains(got.Message, marker.message) || (got.Code == 0) != allowed || allowed && got.Warnings == "" {
				errs = append(errs, fmt.Errorf("the Pod %s: %+v", marker.name, got))
			}
		}
		return errors.Join(errs...)
	})

	for _, test := range []struct {
		name   string
		change func(*corev1.Pod)
		do     writer
		denied bool
	}{
		{"the label is missing", labelled(nil), dryCreate, true},
		{"allowed", labelled(map[string]string{"team": "a", "optional": "yes"}), dryCreate, false},
		{"an ignored failure", labelled(map[string]string{"team": "a"}), dryCreate, false},
		{"a message that is computed", labelled(map[string]string{"team": "long-name", "optional": "yes"}), dryCreate, true},
		{"an expression that fails", labelled(map[string]string{"team": "a", "size": "large", "optional": "yes"}), dryCreate, true},
		{"a condition that is false", func(p *corev1.Pod) { p.Annotations = map[string]string{"e2e/exception": "yes"} }, dryCreate, false},
		{"a warning", func(p *corev1.Pod) {
			p.Labels = map[string]string{"team": "a", "optional": "yes"}
			p.Spec.Containers[0].Image = "registry.example.com/app:latest"
		}, dryCreate, false},
		{"an excluded name", func(p *corev1.Pod) { p.Name, p.Labels = "excluded", map[string]string{"optional": "yes"} }, dryCreate, false},
		{"a generated name", func(p *corev1.Pod) { p.GenerateName, p.Name = "gen-", "" }, dryCreate, true},
		{"an update of the label", labelled(map[string]string{"team": "a", "optional": "yes"}), relabel, true},
		{"more containers than the param of the namespace has", func(p *corev1.Pod) {
			p.Labels = map[string]string{"team": "a", "optional": "yes"}
			for _, name := range []string{"second", "third"} {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "a:1"})
			}
		}, dryCreate, true},
		{"a param that is not there", labelled(map[string]string{"team": "a", "optional": "yes", "limits": "absent"}), dryCreate, true},
		{"a name that a selected param has", func(p *corev1.Pod) {
			p.Name, p.Labels = "two", map[string]string{"team": "a", "optional": "yes"}
		}, dryCreate, true},
		{"a delete that is denied", func(p *corev1.Pod) {
			p.Name, p.Labels = "kept", map[string]string{"team": "a", "optional": "yes"}
		}, createAndDelete, true},
		{"a delete that is allowed", labelled(map[string]string{"team": "a", "optional": "yes"}), createAndDelete, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			one, other := kube.Pod(native, "pod"), kube.Pod(inMesh, "pod")
			test.change(one)
			test.change(other)

			want, got := write(t, one, test.do), write(t, other, test.do)

			if diff := cmp.Diff(want, got); diff != "" || (want.Code != 0) != test.denied {
				t.Errorf("answers, kube-apiserver's (-) and the mesh's (+):\n%s%+v", diff, want)
			}
		})
	}
}

// TestAPolicyHasParamsThatNoClusterHas has the mesh judge Pods by a param of a kind that kube-apiserver does not serve, and of whose cluster the mesh
// has no kubeconfig, or a bridge, which passes on no params.
func TestAPolicyHasParamsThatNoClusterHas(t *testing.T) {
	for name, document := range map[string]string{"direct": mesh.Cluster(clusterName, kube.WebhookClientName, ""), "bridge": bridged} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, mesh.Options{Documents: append([]string{document}, configuredPolicy()...)})
			r := newRoadOn(t, m, m.Serve(t))
			if document == bridged {
				r.startBridge(t)
			}
			r.validate(t, admissionregistrationv1.Create)
			namespace := r.newNamespace(t, nil)
			one, two := kube.Pod(namespace, "one"), kube.Pod(namespace, "two")
			two.Spec.Containers = append(two.Spec.Containers, corev1.Container{Name: "second", Image: "a:1"})

			eventually(t, "the Pod with two containers is denied", func() error {
				if got := write(t, two, dryCreate); !strings.Contains(got.Message, "at most 1 containers") {
					return fmt.Errorf("answer %+v", got)
				}
				return nil
			})
			if got := write(t, one, dryCreate); got != (answer{}) {
				t.Errorf("the Pod with one container: %+v", got)
			}
		})
	}
}

// configuredPolicy is a policy on Pods with its binding and its params.
func configuredPolicy() []string {
	return []string{`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-configured}
spec:
  paramKind: {apiVersion: e2e.example.com/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: object.spec.containers.size() <= params.spec.most, messageExpression: "'at most ' + string(params.spec.most) + ' containers'"}]
`, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-configured}
spec: {policyName: e2e-configured, validationActions: [Deny], paramRef: {selector: {matchLabels: {tier: web}}, parameterNotFoundAction: Deny}}
`, `apiVersion: portcullis.dev/v1
kind: PolicyParams
metadata: {name: e2e-configured}
spec:
  clusters: [` + clusterName + `]
  objects:
  - {apiVersion: e2e.example.com/v1, kind: Limit, metadata: {name: few, labels: {tier: web}}, spec: {most: 1}}
  - {apiVersion: e2e.example.com/v1, kind: Limit, metadata: {name: none, labels: {tier: none}}, spec: {most: 0}}
`}
}

// createParams creates a ConfigMap.
func createParams(t *testing.T, namespace, name string, labels, data map[string]string) {
	t.Helper()
	params := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: data}
	if _, err := cluster.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), params, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// installPolicies creates policies and bindings, and removes them at the end of the test.
func installPolicies(t *testing.T, policies string, bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	api := cluster.Client().AdmissionregistrationV1()
	for document := range strings.SplitSeq(policies, "\n---\n") {
		var p admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
			t.Fatal(err)
		}
		if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), &p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, api.ValidatingAdmissionPolicies().Delete, p.Name) })
	}
	for _, b := range bindings {
		if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, api.ValidatingAdmissionPolicyBindings().Delete, b.Name) })
	}
}

func dryCreate(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	_, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func relabel(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	pods := client.CoreV1().Pods(p.Namespace)
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("before the update: %w", err)
	}
	_, err := pods.Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"b"}}}`), metav1.PatchOptions{})
	return err
}

func createAndDelete(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	pods := client.CoreV1().Pods(p.Namespace)
	if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("before the deletion: %w", err)
	}
	return pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// TestEntriesBringNoRequestThatIsOutsideOfEachBinding has a policy with two bindings, which select namespaces by two values of a label. Without a
// dispatcher a request in these namespaces is refused, and a request in another namespace is not.
func TestEntriesBringNoRequestThatIsOutsideOfEachBinding(t *testing.T) {
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-bound}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  validations:
  - {expression: "object.metadata.?name.orValue('') != 'refused'", message: "another name"}
`
	one, two := bindingOf("e2e-bound", "mesh-one", admissionregistrationv1.Deny), bindingOf("e2e-bound", "mesh-two", admissionregistrationv1.Deny)
	two.Name += "-too"
	r := newRoadWith(t, mesh.Options{Documents: []string{policy, mesh.Document(t, one), mesh.Document(t, two)}})
	bound := []string{cluster.Namespace(t, map[string]string{judgedBy: "mesh-one"}), cluster.Namespace(t, map[string]string{judgedBy: "mesh-two"})}
	outside := []string{cluster.Namespace(t, map[string]string{judgedBy: "mesh-three"}), cluster.Namespace(t, nil)}
	r.applyEntries(t)
	create := func(namespace, name string) error {
		_, err := cluster.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, namespace := range bound {
		eventually(t, "the mesh judges", func() error {
			if err := create(namespace, "refused"); err == nil || !strings.Contains(err.Error(), "another name") {
				return notDeniedError{err}
			}
			return create(namespace, "named")
		})
	}

	r.dispatcher.Stop(t)

	for _, namespace := range bound {
		wantError(t, create(namespace, "named"), http.StatusInternalServerError, "failed calling webhook")
	}
	for _, namespace := range outside {
		if err := create(namespace, "refused"); err != nil {
			t.Errorf("the mesh is asked about a namespace that no binding selects: %v", err)
		}
	}
}
