package kubernetes_test

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/config/kubernetes"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// cluster is an API server that knows the kinds of kinds.Resources.
type cluster struct {
	client   *dynamicfake.FakeDynamicClient
	metadata *metadatafake.FakeMetadataClient
	source   *kubernetes.CustomResources
}

func newCluster(t *testing.T, documents ...string) *cluster {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var definitions []runtime.Object
	for _, r := range kinds.Resources() {
		lists[resources(r.Plural)] = r.Kind + "List"
		definitions = append(definitions, definition(r.Plural))
	}
	c := &cluster{
		client:   dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists),
		metadata: metadatafake.NewSimpleMetadataClient(scheme, definitions...),
	}
	for _, document := range documents {
		c.create(t, document)
	}
	var err error
	if c.source, err = kubernetes.NewCustomResources(kubernetes.CustomResourcesOptions{
		Client: c.client, Lists: listsOf(t, c.listed), Metadata: c.metadata, Decoder: configtest.NewDecoder(),
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// listed answers as the API server does.
func (c *cluster) listed(r *http.Request) (runtime.Object, error) {
	return c.client.Resource(resources(path.Base(r.URL.Path))).List(r.Context(), metav1.ListOptions{})
}

func resources(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: kinds.Group, Version: kinds.Version, Resource: plural}
}

func definition(plural string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kinds.Group},
	}
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func object(t *testing.T, document string) (*unstructured.Unstructured, schema.GroupVersionResource) {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(document))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := kinds.Resources()
	of := slices.IndexFunc(all, func(r kinds.Resource) bool { return r.Kind == u.GetKind() })
	return u, resources(all[of].Plural)
}

func (c *cluster) create(t *testing.T, document string) {
	t.Helper()
	u, r := object(t, document)
	if _, err := c.client.Resource(r).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) update(t *testing.T, document string) {
	t.Helper()
	u, r := object(t, document)
	if _, err := c.client.Resource(r).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

const (
	customRoute = "apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: r, uid: u1, resourceVersion: '7', generation: 1, managedFields: []}\n" +
		"spec: {configuration: policies, stream: {}}\n"
	customHooks = "apiVersion: portcullis.dev/v1\nkind: ValidatingHookConfiguration\nmetadata: {name: policies, uid: u2, generation: 1}\n"
)

// TestTheDefinitionsAreLookedAtWhereTheListingDiffers and each DefinitionsInterval else: an API server answers 12 requests less for each listing.
func TestTheDefinitionsAreLookedAtWhereTheListingDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, customRoute)
		all := len(kinds.Resources())
		listed := func(want int) {
			t.Helper()
			c.metadata.ClearActions()
			if _, err := c.source.List(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := len(c.metadata.Actions()); got != want*all {
				t.Errorf("%d definitions looked at, want %d", got, want*all)
			}
		}
		listed(1)
		for range kubernetes.DefinitionsInterval/time.Second - 1 {
			clock.Sleep(t.Context(), time.Second)
			listed(0)
		}
		clock.Sleep(t.Context(), time.Second)
		listed(1)
		c.create(t, customHooks)
		listed(1)
		listed(0)
		leaving := definition("hookroutes")
		leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if err := c.metadata.Tracker().Update(crds, leaving, ""); err != nil {
			t.Fatal(err)
		}
		listed(0) // all objects are there
		if err := c.client.Resource(resources("hookroutes")).Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := c.source.List(t.Context()); err == nil || !strings.Contains(err.Error(), "is being deleted") {
				t.Errorf("the objects are gone before their kind: %v", err)
			}
		}
	})
}

func TestCustomResourcesAreDocuments(t *testing.T) {
	c := newCluster(t, customRoute, customHooks+"webhooks: []\n",
		"apiVersion: portcullis.dev/v1\nkind: Role\nmetadata: {name: bad, uid: u3, generation: 1}\nspec: {role: king}\n")
	l, err := c.source.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = l.Decoded()
	var keys []string
	for _, o := range l.Objects {
		keys = append(keys, o.Key.String()+" of "+o.File)
	}
	want := "HookRoute/r of hookroutes.portcullis.dev/r, ValidatingWebhookConfiguration/policies of validatinghookconfigurations.portcullis.dev/policies"
	if got := strings.Join(keys, ", "); got != want {
		t.Errorf("objects\n%s, want\n%s", got, want)
	}
	if len(l.Problems) != 1 || l.Problems[0].Key.Name != "bad" || l.Problems[0].Field != "spec.role" {
		t.Errorf("problems %v", l.Problems)
	}
}

// TestPoliciesOfKubernetesAreCustomResources has each kind of policies and bindings, and a policy whose status is not the author's.
func TestPoliciesOfKubernetesAreCustomResources(t *testing.T) {
	const match = "spec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, "
	document := func(kind, spec string) string {
		return "apiVersion: portcullis.dev/v1\nkind: " + kind + "\nmetadata: {name: p, uid: " + kind + ", resourceVersion: '9', generation: 1}\n" + spec + "}\n"
	}
	c := newCluster(t,
		document("ValidatingHookPolicy", match+"validations: [{expression: 'true'}]")+"status: {inForce: 1/1}\n",
		document("ValidatingHookPolicyBinding", "spec: {policyName: p, validationActions: [Deny]"),
		document("MutatingHookPolicy", match+"reinvocationPolicy: Never, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{}]'}}]"),
		document("MutatingHookPolicyBinding", "spec: {policyName: p"),
	)
	l, err := c.source.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = l.Decoded()
	var keys []string
	for _, o := range l.Objects {
		keys = append(keys, o.Key.String()+" of "+o.File)
	}
	slices.Sort(keys)
	want := []string{
		"MutatingAdmissionPolicy/p of mutatinghookpolicies.portcullis.dev/p",
		"MutatingAdmissionPolicyBinding/p of mutatinghookpolicybindings.portcullis.dev/p",
		"ValidatingAdmissionPolicy/p of validatinghookpolicies.portcullis.dev/p",
		"ValidatingAdmissionPolicyBinding/p of validatinghookpolicybindings.portcullis.dev/p",
	}
	if len(l.Problems) > 0 || !slices.Equal(keys, want) {
		t.Errorf("objects\n%s, %v, want\n%s", keys, l.Problems, want)
	}
}

func TestInitializersAreCustomResources(t *testing.T) {
	const document = "apiVersion: portcullis.dev/v1\nkind: InitializerConfiguration\nmetadata: {name: sidecars, uid: u4, resourceVersion: '9', generation: 1, managedFields: []}\n" +
		"initializers:\n- {name: sidecars.example.com, rules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]}\nstatus: {inForce: 1/1}\n"
	c := newCluster(t, document, strings.NewReplacer("sidecars,", "bad,", "'pods'", "'*/*'", "[pods]", "['*/*']").Replace(document))
	l, err := c.source.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = l.Decoded()
	if len(l.Objects) != 1 || l.Objects[0].Key.String() != "InitializerConfiguration/sidecars" || !l.Objects[0].Initializes() ||
		l.Objects[0].File != "initializerconfigurations.portcullis.dev/sidecars" {
		t.Errorf("objects %+v", l.Objects)
	}
	if len(l.Problems) != 1 || l.Problems[0].Key.Name != "bad" || l.Problems[0].Field != "initializers[0].rules[0].resources[0]" {
		t.Errorf("problems %v", l.Problems)
	}
}

func TestOnlyTheDocumentMakesARevision(t *testing.T) {
	c := newCluster(t, customRoute)
	revision := func() string {
		t.Helper()
		l, err := c.source.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l.Revision
	}
	before := revision()
	c.update(t, strings.Replace(customRoute, "'7'", "'8'", 1)+"status: {inForce: 1/1}\n")
	if revision() != before {
		t.Error("a status made a revision")
	}
	c.update(t, strings.Replace(customRoute, "name: r,", "name: r, labels: {a: b},", 1))
	labelled := revision()
	c.update(t, strings.Replace(customRoute, "generation: 1", "generation: 2", 1))
	if again := revision(); labelled == before || again == before || again == labelled {
		t.Errorf("revisions %s, %s and %s", before, labelled, again)
	}
}

func TestKindsThatAreNotThereOrGoAreErrors(t *testing.T) {
	const gone = "validatinghookconfigurations"
	c := newCluster(t)
	if err := c.metadata.Tracker().Delete(crds, "", gone+"."+kinds.Group); err != nil {
		t.Fatal(err)
	}
	if _, err := c.source.List(t.Context()); err == nil || !strings.Contains(err.Error(), "install the CustomResourceDefinitions of deploy/chart/portcullis/crds") {
		t.Errorf("error %v, want what to do", err)
	}
	going := definition(gone)
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if err := c.metadata.Tracker().Create(crds, going, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.source.List(t.Context()); err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("error %v, want that it goes", err)
	}
}

func TestAWatchTellsOfEachKind(t *testing.T) {
	c := newCluster(t)
	ctx, stop := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 10), make(chan error, 1)
	go func() { ended <- c.source.Watch(ctx, func() { told <- struct{}{} }) }()
	<-told // that it has begun
	c.create(t, customRoute)
	<-told
	c.create(t, customHooks)
	<-told
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
