package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// installDefinitions creates the CustomResourceDefinitions of deploy/chart/portcullis/crds.
func installDefinitions(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/chart/portcullis/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the definitions: %v, %v", files, err)
	}
	client, err := clientset.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gone := func(ctx context.Context) (bool, error) {
			left, err := client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
			return err == nil && !slices.ContainsFunc(left.Items, func(crd apiextensionsv1.CustomResourceDefinition) bool {
				return crd.Spec.Group == "portcullis.dev"
			}), nil
		}
		if err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 100*time.Millisecond, time.Minute, true, gone); err != nil {
			t.Errorf("the kinds are not gone: %v", err)
		}
	})
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		crds = append(crds, definition(t, file))
	}
	cluster.InstallDefinitions(t, crds...)
}

func definition(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// customized is a road whose dispatcher reads custom resources, with the rights of the manifest.
type customized struct {
	*configured
	kubeconfig string // by which dispatchers that start then read them
}

// newCustomized starts a dispatcher with a store of its own, or with the store that the arguments name.
func newCustomized(t *testing.T, store ...string) *customized {
	t.Helper()
	installDefinitions(t)
	manifest, err := os.ReadFile("../../deploy/custom-resources-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := &customized{&configured{manifest: string(manifest)}, filepath.Join(t.TempDir(), "kubeconfig")}
	c.readAs(t, "portcullis")
	cluster.Apply(t, c.manifest)
	if len(store) == 0 {
		store = []string{"--data-dir=" + t.TempDir()}
	}
	c.road = newRoadWith(t, mesh.Options{Args: append(store, "--config-custom-resources", "--config-kubeconfig="+c.kubeconfig, "--operator=operator")})
	c.validate(t)
	return c
}

// readAs has dispatchers that start then read custom resources as a service account.
func (c *customized) readAs(t *testing.T, account string) {
	t.Helper()
	if err := kube.WriteKubeconfig(c.kubeconfig, cluster.Account(t, "portcullis-system", account)); err != nil {
		t.Fatal(err)
	}
	inNamespace(t, c.kubeconfig, "portcullis-system")
}

// inNamespace sets the namespace of the contexts of a kubeconfig file.
func inNamespace(t *testing.T, kubeconfig, namespace string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Contexts {
		c.Namespace = namespace
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
}

// custom is the document of an object of our group.
func custom(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func customResource(u *unstructured.Unstructured) schema.GroupVersionResource {
	all := kinds.Resources()
	of := slices.IndexFunc(all, func(r kinds.Resource) bool { return r.Kind == u.GetKind() })
	return schema.GroupVersionResource{Group: kinds.Group, Version: kinds.Version, Resource: all[of].Plural}
}

// apply creates or changes an object, as `kubectl apply --server-side` does.
func (c *customized) apply(t *testing.T, document string) {
	t.Helper()
	u := custom(t, document)
	options := metav1.ApplyOptions{FieldManager: "e2e", Force: true}
	if _, err := cluster.Dynamic(t).Resource(customResource(u)).Apply(t.Context(), u.GetName(), u, options); err != nil {
		t.Fatal(err)
	}
}

// inOurGroup is a webhook configuration as the kind of our group.
func inOurGroup(t *testing.T, configuration metav1.Object) string {
	t.Helper()
	document := mesh.Document(t, configuration)
	document = strings.Replace(document, "admissionregistration.k8s.io/v1", "portcullis.dev/v1", 1)
	return strings.Replace(document, "WebhookConfiguration", "HookConfiguration", 1)
}

func TestCustomResourcesAreConfiguration(t *testing.T) {
	citest.Gate(t, "covers custom resources: 5 s")
	c := newCustomized(t)
	c.open(t)
	c.apply(t, mesh.Route("policies", hostName))
	c.apply(t, inOurGroup(t, kube.Validating("policies", onPods(policyHook))))
	c.closed(t)
	if o := c.get(t, "policies"); o.Source != "customresources" || !strings.HasPrefix(o.Origin, "validatinghookconfigurations.portcullis.dev/policies") {
		t.Errorf("%+v comes from elsewhere", o)
	}
	c.host(t, hostsdk.Validate(policyHook, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("no Pods today"), nil
	}))
	eventually(t, "the host denies Pods", func() error {
		if err := c.createDry(t.Context()); statusCode(err) != http.StatusForbidden || !strings.Contains(err.Error(), "no Pods today") {
			return fmt.Errorf("a Pod was created, or refused for another reason: %w", err)
		}
		return nil
	})

	c.apply(t, inOurGroup(t, kube.Validating("policies", onNothing(policyHook))))
	c.open(t)
}

// Policies of Kubernetes and their bindings as the kinds of our group: Pods need a label, and get it.
const (
	ownedPolicy = `
apiVersion: portcullis.dev/v1
kind: ValidatingHookPolicy
metadata: {name: e2e-owned}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "object.metadata.?labels['owner'].orValue('') == 'mesh'", message: nobody owns it, reason: Forbidden}]
`
	ownedBinding = `
apiVersion: portcullis.dev/v1
kind: ValidatingHookPolicyBinding
metadata: {name: e2e-owned}
spec: {policyName: e2e-owned, validationActions: [Deny]}
`
	ownerPolicy = `
apiVersion: portcullis.dev/v1
kind: MutatingHookPolicy
metadata: {name: e2e-owner}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'owner': 'mesh'}}}"}}]
`
	ownerBinding = `
apiVersion: portcullis.dev/v1
kind: MutatingHookPolicyBinding
metadata: {name: e2e-owner}
spec: {policyName: e2e-owner}
`
)

// remove deletes an object.
func (c *customized) remove(t *testing.T, document string) {
	t.Helper()
	u := custom(t, document)
	if err := cluster.Dynamic(t).Resource(customResource(u)).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestPoliciesOfKubernetesAreCustomResources(t *testing.T) {
	citest.Gate(t, "covers custom resources: 6 s")
	c := newCustomized(t)
	c.mutate(t)
	denied := func(why string) {
		t.Helper()
		eventually(t, why, func() error {
			if err := c.createDry(t.Context()); statusCode(err) != http.StatusForbidden || !strings.Contains(err.Error(), "nobody owns it") {
				return fmt.Errorf("a Pod was created, or refused for another reason: %w", err)
			}
			return nil
		})
	}
	c.open(t)
	c.apply(t, ownedPolicy)
	c.apply(t, ownedBinding)
	denied("the policy is in force")
	c.apply(t, ownerPolicy)
	c.apply(t, ownerBinding)
	c.open(t)
	for _, document := range []string{ownedPolicy, ownedBinding, ownerPolicy, ownerBinding} {
		c.await(t, document, "Accepted", "True", "")
		c.await(t, document, "InForce", "True", "on 1 of 1 dispatchers")
	}
	pod := kube.Pod(c.namespace, dryPod)
	created, err := cluster.Client().CoreV1().Pods(c.namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || created.Labels["owner"] != "mesh" {
		t.Errorf("the Pod %+v, %v", created, err)
	}

	broken := strings.Replace(ownedPolicy, "== 'mesh'", "==", 1) // no schema can say it
	c.apply(t, broken)
	c.await(t, broken, "Accepted", "False", "spec.validations[0].expression")
	c.await(t, broken, "InForce", "False", "an older version is in force")
	c.remove(t, ownerBinding)
	denied("nothing sets the label, and the last good version of the other policy decides")
	c.remove(t, ownedPolicy)
	c.open(t)
}

// await waits until an object has a condition, as `kubectl wait --for=condition=TYPE=STATUS` does.
func (c *customized) await(t *testing.T, document, condition, status, message string) {
	t.Helper()
	want := custom(t, document)
	eventually(t, want.GetName()+" has "+condition+"="+status, func() error {
		u, err := cluster.Dynamic(t).Resource(customResource(want)).Get(t.Context(), want.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, one := range conditions {
			one, _ := one.(map[string]any)
			text, _ := one["message"].(string)
			if one["type"] == condition && one["status"] == status && one["observedGeneration"] == u.GetGeneration() && strings.Contains(text, message) {
				return nil
			}
		}
		return fmt.Errorf("the status is %v, %w", u.Object["status"], err)
	})
}

func TestStatusesSayWhatIsInForce(t *testing.T) {
	citest.Gate(t, "covers custom resources: 7 s")
	c := newCustomized(t)
	hooks, route := inOurGroup(t, kube.Validating("policies", onPods(policyHook))), mesh.Route("policies", hostName)
	bad := "{apiVersion: portcullis.dev/v1, kind: Cluster, metadata: {name: elsewhere}, spec: {namespaces: {static: {Not-A-Name: {}}}}}"
	c.apply(t, bad) // no schema can say it
	c.apply(t, route)
	c.apply(t, hooks)
	c.await(t, hooks, "InForce", "True", "on 1 of 1 dispatchers")
	c.await(t, route, "InForce", "True", "on 1 of 1 dispatchers")
	c.await(t, hooks, "Served", "False", policyHook)
	c.await(t, route, "Served", "False", policyHook)
	c.await(t, bad, "Accepted", "False", "spec.namespaces.static[Not-A-Name]")
	c.host(t, hostsdk.Validate(policyHook, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }))
	c.await(t, hooks, "Served", "True", "1 host")
	c.await(t, route, "Served", "True", "1 host")
	c.apply(t, inOurGroup(t, kube.Validating("policies", onNothing(policyHook))))
	c.await(t, hooks, "InForce", "True", "on 1 of 1 dispatchers") // the new generation
	c.open(t)
}

// TestTheAPIServerRefusesAsTheDecoderDoes shows the API server the documents of the tests of config/kinds. internal/schemas has the
// same table, with the code of API servers, and names the documents that only the decoder refuses.
func TestTheAPIServerRefusesAsTheDecoderDoes(t *testing.T) {
	citest.Gate(t, "covers custom resources: 6 s")
	installDefinitions(t)
	data, err := os.ReadFile("../../internal/config/kinds/testdata/documents.json")
	if err != nil {
		t.Fatal(err)
	}
	refused, alone := 0, 0
	for line := range bytes.Lines(data) {
		var tc struct {
			Name     string          `json:"name"`
			Document json.RawMessage `json:"document"`
		}
		if err := json.Unmarshal(line, &tc); err != nil {
			t.Fatal(err)
		}
		u := custom(t, string(tc.Document))
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		_, err := cluster.Dynamic(t).Resource(customResource(u)).Create(t.Context(), u, options)
		_, problems := config.NewDecoder(apiserver.Validator{}).Decode("f", tc.Document)
		switch wrong := problems.Err(); {
		case wrong == nil && err != nil:
			t.Errorf("%s: the decoder accepts it, and the API server does not: %v", tc.Name, err)
		case wrong != nil && err == nil:
			alone++
		case err != nil:
			refused++
		}
	}
	if refused < 40 || alone > 6 { // of definitions in a Cluster little is read
		t.Errorf("the API server refuses %d documents, and the decoder alone %d", refused, alone)
	}
}

// TestTheAPIServerDropsNulls in fields and maps of custom resources, and refuses them in lists, as the decoder does in files.
func TestTheAPIServerDropsNulls(t *testing.T) {
	citest.Gate(t, "covers custom resources: 6 s")
	installDefinitions(t)
	const document = `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: e2e-nulls}
spec:
  resources: [pods]
  clusters: null
  parameters: [{name: most, default: 3, byCluster: {elsewhere: null}}]
  modeByCluster: null
  failurePolicy: null
  validations: [{expression: "true", message: none, reason: null}]
`
	create := func(document string) (*unstructured.Unstructured, error) {
		u := custom(t, document)
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		return cluster.Dynamic(t).Resource(customResource(u)).Create(t.Context(), u, options)
	}
	created, err := create(document)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := json.Marshal(created.Object["spec"]); bytes.Contains(raw, []byte("null")) {
		t.Errorf("stored as %s", raw)
	}
	const item = "clusters: [null]"
	if _, err := create(strings.Replace(document, "clusters: null", item, 1)); statusCode(err) != http.StatusUnprocessableEntity {
		t.Errorf("%s: %v", item, err)
	}
}

func TestKindsThatGoAreNoEmptyConfiguration(t *testing.T) {
	citest.Soak(t, "waits until a configuration is too old: 34 s")
	c := newCustomized(t)
	c.apply(t, inOurGroup(t, kube.Validating("policies", onPods(policyHook))))
	c.closed(t)

	bindings := cluster.Client().RbacV1().ClusterRoleBindings()
	if err := bindings.Delete(t.Context(), "portcullis-custom-resources", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stale(t, "forbidden")
	cluster.Apply(t, c.manifest)
	c.closed(t)

	client, err := clientset.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	const kind = "validatinghookconfigurations.portcullis.dev"
	if err := crds.Delete(t.Context(), kind, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stale(t, kind)
	eventually(t, "the kind can be made again", func() error {
		_, err := crds.Create(t.Context(), definition(t, "../../deploy/chart/portcullis/crds/portcullis.dev_validatinghookconfigurations.yaml"), metav1.CreateOptions{})
		return err
	})
	c.open(t) // its objects went with it
}
