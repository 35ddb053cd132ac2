package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion/builtin"
	"github.com/portcullis-mesh/portcullis/conversion/custom"
	"github.com/portcullis-mesh/portcullis/conversion/equivalents"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// kubernetes is the Builtin of the program.
type kubernetes struct{ *builtin.Codec }

func (kubernetes) Discovered(lists []*metav1.APIResourceList) Equivalents {
	return equivalents.Discovered(lists)
}

func (kubernetes) Served(versions []schema.GroupVersion) Equivalents {
	return equivalents.Served(versions)
}

func (kubernetes) Known() Equivalents { return equivalents.Known() }

func (k kubernetes) Convert(object []byte, to schema.GroupVersionKind) ([]byte, error) {
	converted, err := k.Codec.Convert(object, to)
	if errors.Is(err, builtin.ErrUnknownKind) {
		return nil, ErrUnknownKind
	}
	return converted, err
}

// withKubernetes are the options of the program.
func withKubernetes() Options { return Options{Builtin: kubernetes{builtin.New(builtin.Options{})}} }

func wholeDocument(kubeconfig string) *kinds.Cluster {
	c := document("prod", nil, "kube-apiserver")
	c.Spec.Kubeconfig = kubeconfig
	return c
}

// asked is a cluster that is asked for everything, and its registry.
func asked(t *testing.T, s *apiServer, o Options) (*Registry, match.Cluster) {
	t.Helper()
	r := runningWith(t, o)
	r.Update([]*kinds.Cluster{wholeDocument(s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))})
	return r, r.Cluster("prod")
}

// known waits until nothing about the clusters is stale.
func known(t *testing.T, r *Registry) {
	t.Helper()
	eventually(t, "all is known", func() bool { return len(r.Stale()) == 0 })
}

func gvr(text string) (schema.GroupVersionResource, string) {
	parts := strings.Split(text, " ")
	gv, _ := schema.ParseGroupVersion(parts[0])
	name, sub, _ := strings.Cut(parts[1], "/")
	return gv.WithResource(name), sub
}

// ways are the equivalents of a resource ("apps/v1 deployments/scale"), as "version kind" and the version of the kind if that is another, or the error.
func ways(c match.Cluster, resource string) []string {
	r, sub := gvr(resource)
	ways, err := c.Equivalents(r, sub)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	texts := []string{}
	for _, w := range ways {
		text := w.Resource.GroupVersion().String() + " " + w.Kind.Kind
		if w.Kind.GroupVersion() != w.Resource.GroupVersion() {
			text += " of " + w.Kind.GroupVersion().String()
		}
		texts = append(texts, text)
	}
	return texts
}

// refused tells whether ways are an error with the text.
func refused(ways []string, text string) bool {
	return len(ways) == 1 && strings.HasPrefix(ways[0], "error: ") && strings.Contains(ways[0], text)
}

// aCluster has the resources of a cluster of 1.15 with a server behind it.
func aCluster() []group {
	deployments := []string{"deployments Deployment", "deployments/status Deployment", "deployments/scale Scale autoscaling/v1"}
	own := []string{"deployments Deployment", "deployments/status Deployment", "deployments/scale Scale"}
	return []group{
		{"", []groupVersion{{name: "v1", resources: []string{"pods Pod", "pods/eviction Eviction policy/v1"}}}},
		{"apps", []groupVersion{{name: "v1", resources: deployments}, {name: "v1beta2", resources: own}, {name: "v1beta1", resources: own}}},
		{"extensions", []groupVersion{{name: "v1beta1", resources: own}}},
		{"autoscaling", []groupVersion{
			{name: "v1", resources: []string{"horizontalpodautoscalers HorizontalPodAutoscaler"}},
			{name: "v2", resources: []string{"horizontalpodautoscalers HorizontalPodAutoscaler"}},
		}},
		{"wardle.example.com", []groupVersion{
			{name: "v1beta1", resources: []string{"flunders Flunder", "fischers Fischer"}},
			{name: "v1alpha1", resources: []string{"flunders Flunder"}},
		}},
	}
}

func TestEquivalentsAreThoseThatTheClusterServes(t *testing.T) {
	for name, legacy := range map[string]bool{"discovery in one answer": false, "discovery in many answers": true} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.change(func(s *apiServer) { s.groups, s.legacy = aCluster(), legacy })
			r, c := asked(t, s, withKubernetes())
			known(t, r)
			for resource, want := range map[string][]string{
				"v1 pods":          {"v1 Pod"},
				"v1 pods/eviction": {"v1 Eviction of policy/v1"},
				"apps/v1beta1 deployments": {
					"extensions/v1beta1 Deployment", "apps/v1 Deployment",
					"apps/v1beta2 Deployment", "apps/v1beta1 Deployment",
				},
				"apps/v1 deployments/scale": {
					"extensions/v1beta1 Scale", "apps/v1 Scale of autoscaling/v1",
					"apps/v1beta2 Scale", "apps/v1beta1 Scale",
				},
				"autoscaling/v2 horizontalpodautoscalers": {
					"autoscaling/v1 HorizontalPodAutoscaler", "autoscaling/v2 HorizontalPodAutoscaler",
				},
				"wardle.example.com/v1alpha1 flunders": {
					"wardle.example.com/v1beta1 Flunder", "wardle.example.com/v1alpha1 Flunder",
				},
				"wardle.example.com/v1beta1 fischers": {"wardle.example.com/v1beta1 Fischer"},
			} {
				if diff := cmp.Diff(want, ways(c, resource)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", resource, diff)
				}
			}
		})
	}
}

func TestWhatTheClusterDoesNotSayThatItServesIsAnError(t *testing.T) {
	s := newAPIServer(t)
	s.change(func(s *apiServer) { s.groups = aCluster() })
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	for _, resource := range []string{
		"apps/v2 deployments", "v1 pods/brandnew", "stable.example.com/v1 widgets", "wardle.example.com/v1 flunders", "wardle.example.com/v1alpha1 fischers",
	} {
		if got := ways(c, resource); !refused(got, "not among the resources") {
			t.Errorf("%s: %q", resource, got)
		}
	}
	s.change(func(s *apiServer) {
		s.groups[0].versions[0].resources = append(s.groups[0].versions[0].resources, "pods/brandnew Pod")
	})
	eventually(t, "being asked for what is unknown makes it known", func() bool {
		return cmp.Equal(ways(c, "v1 pods/brandnew"), []string{"v1 Pod"})
	})
}

func TestAChangeOfAPIServicesIsDiscoveredAtOnce(t *testing.T) {
	s := newAPIServer(t)
	s.change(func(s *apiServer) { s.groups = aCluster() })
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	eventually(t, "APIServices are watched", func() bool { return s.watchedAt(apiServicesPath) == 1 })
	s.change(func(s *apiServer) { s.groups[3].versions = s.groups[3].versions[1:] })
	s.put(apiServicesPath, "v1.autoscaling", true, func(version int) runtime.Object { return object("v1.autoscaling", nil, version) })
	eventually(t, "one version is left", func() bool {
		return cmp.Equal(ways(c, "autoscaling/v2 horizontalpodautoscalers"), []string{"autoscaling/v2 HorizontalPodAutoscaler"})
	})
}

func TestAServerBehindTheClusterThatDoesNotAnswerConcernsItsOwnGroup(t *testing.T) {
	for name, legacy := range map[string]bool{"discovery in one answer": false, "discovery in many answers": true} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.change(func(s *apiServer) {
				s.groups, s.legacy = aCluster(), legacy
				s.groups[4].versions[0].stale = true
			})
			r, c := asked(t, s, withKubernetes())
			known(t, r)
			if got := ways(c, "v1 pods"); !cmp.Equal(got, []string{"v1 Pod"}) {
				t.Errorf("pods: %q", got)
			}
			if got := ways(c, "wardle.example.com/v1alpha1 flunders"); !refused(got, "discovery of wardle.example.com failed") {
				t.Errorf("flunders: %q", got)
			}
		})
	}
}

// widgets is a CustomResourceDefinition that is served.
func widgets(versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   definitionType,
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.stable.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "stable.example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
		}},
	}
	for _, v := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{}},
		})
	}
	return crd
}

// converted by a webhook.
func converted(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	url := "https://converter.example.com"
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &url},
		},
	}
	return crd
}

const aWidget = `{"apiVersion":"stable.example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"n":1}}`

var widgetV2 = schema.GroupVersionKind{Group: "stable.example.com", Version: "v2", Kind: "Widget"}

func TestCustomResourcesAreThoseOfTheCluster(t *testing.T) {
	s := newAPIServer(t)
	s.define(widgets("v1"))
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	const v1, v2 = "stable.example.com/v1 Widget", "stable.example.com/v2 Widget"
	if got := ways(c, "stable.example.com/v1 widgets"); !cmp.Equal(got, []string{v1}) {
		t.Errorf("at first: %q", got)
	}
	if got := ways(c, "stable.example.com/v2 widgets"); !refused(got, "not among the resources") {
		t.Errorf("a version that nobody told of: %q", got)
	}
	if _, err := c.Convert(t.Context(), []byte(aWidget), widgetV2); err == nil {
		t.Error("converted to a version that nobody told of")
	}
	eventually(t, "they are watched", func() bool { return s.watchedAt(definitionsPath) == 1 })
	s.define(widgets("v2", "v1"))
	eventually(t, "a new version is seen", func() bool {
		return cmp.Equal(ways(c, "stable.example.com/v1 widgets"), []string{v2, v1})
	})
	if got := ways(c, "stable.example.com/v1 widgets/scale"); !cmp.Equal(got, []string{"stable.example.com/v2 Scale of autoscaling/v1", "stable.example.com/v1 Scale of autoscaling/v1"}) {
		t.Errorf("scale: %q", got)
	}
	got, err := c.Convert(t.Context(), []byte(aWidget), widgetV2)
	if want := strings.Replace(aWidget, "/v1", "/v2", 1); err != nil || string(got) != want {
		t.Errorf("converted: %s, %v", got, err)
	}
	s.undefine("widgets.stable.example.com")
	eventually(t, "a removal is seen", func() bool { return refused(ways(c, "stable.example.com/v1 widgets"), "not among the resources") })
	_, err = c.Convert(t.Context(), []byte(aWidget), widgetV2)
	if !errors.Is(err, ErrUnknownKind) || !strings.Contains(err.Error(), "matchPolicy Exact") {
		t.Errorf("a kind that nobody knows: %v", err)
	}
}

func TestWhatTheClusterDoesNotServeOfACustomResourceIsNotThere(t *testing.T) {
	s := newAPIServer(t)
	rejected := widgets("v1")
	rejected.Name, rejected.Spec.Names.Plural = "gadgets.stable.example.com", "gadgets"
	rejected.Status.Conditions[0].Status = apiextensionsv1.ConditionFalse // its kind is another's
	broken := widgets("v1")
	broken.Name, broken.Spec.Names.Plural, broken.Spec.Names.Kind = "things.stable.example.com", "things", "Thing"
	broken.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: "Magic"}
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{widgets("v1", "v2"), rejected, broken} {
		s.define(crd)
	}
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	if got := ways(c, "stable.example.com/v1 gadgets"); !refused(got, "not among") {
		t.Errorf("names that were not accepted: %q", got)
	}
	if _, err := c.Convert(t.Context(), []byte(aWidget), widgetV2); err != nil {
		t.Errorf("the kind of the other is lost: %v", err)
	}
	if got := ways(c, "stable.example.com/v1 things"); !refused(got, "Magic") {
		t.Errorf("a definition that cannot be used: %q", got)
	}
	if _, err := c.Convert(t.Context(), []byte(strings.ReplaceAll(aWidget, "Widget", "Thing")), schema.GroupVersionKind{Group: "stable.example.com", Version: "v2", Kind: "Thing"}); err == nil || !strings.Contains(err.Error(), "Magic") {
		t.Errorf("its objects: %v", err)
	}
}

// converter is a conversion webhook that changes nothing but the version.
type converter struct {
	mu    sync.Mutex
	calls []string
}

func (c *converter) of(cluster string) custom.Caller {
	return callerFunc(func(_ context.Context, at *apiextensionsv1.WebhookClientConfig, review []byte) ([]byte, error) {
		var r apiextensionsv1.ConversionReview
		if err := json.Unmarshal(review, &r); err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, cluster+" "+*at.URL)
		object := strings.Replace(string(r.Request.Objects[0].Raw), "stable.example.com/v1", r.Request.DesiredAPIVersion, 1)
		r.Response = &apiextensionsv1.ConversionResponse{
			UID: r.Request.UID, ConvertedObjects: []runtime.RawExtension{{Raw: []byte(object)}}, Result: metav1.Status{Status: metav1.StatusSuccess},
		}
		return json.Marshal(r)
	})
}

type callerFunc func(ctx context.Context, at *apiextensionsv1.WebhookClientConfig, review []byte) ([]byte, error)

func (f callerFunc) CallConversion(ctx context.Context, at *apiextensionsv1.WebhookClientConfig, review []byte) ([]byte, error) {
	return f(ctx, at, review)
}

func TestConversionWebhooksAreCalledForTheirCluster(t *testing.T) {
	webhook := &converter{}
	o := withKubernetes()
	o.Conversions = webhook.of
	r := New(o)
	c := document("prod", nil)
	c.Spec.CustomResourceDefinitions = []apiextensionsv1.CustomResourceDefinition{*converted(widgets("v1", "v2"))}
	r.Update([]*kinds.Cluster{c})
	got, err := r.Cluster("prod").Convert(t.Context(), []byte(aWidget), widgetV2)
	if err != nil || !strings.Contains(string(got), `"stable.example.com/v2"`) {
		t.Errorf("%s, %v", got, err)
	}
	if want := []string{"prod https://converter.example.com"}; !cmp.Equal(webhook.calls, want) {
		t.Errorf("calls %q", webhook.calls)
	}
	r = New(withKubernetes())
	r.Update([]*kinds.Cluster{c})
	if _, err := r.Cluster("prod").Convert(t.Context(), []byte(aWidget), widgetV2); err == nil {
		t.Error("converted without a caller")
	}
}

func TestBuiltInObjectsAreConverted(t *testing.T) {
	r := New(withKubernetes())
	r.Update([]*kinds.Cluster{document("prod", nil)})
	const hpa = `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},` +
		`"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"a"},"targetCPUUtilizationPercentage":80}}`
	got, err := r.Cluster("prod").Convert(t.Context(), []byte(hpa), schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"})
	if err != nil || !strings.Contains(string(got), `"averageUtilization":80`) {
		t.Errorf("%s, %v", got, err)
	}
}

func TestWhatNobodyKnowsOfAClusterIsAnError(t *testing.T) {
	c := New(withKubernetes()).Cluster("no")
	if got := ways(c, "v1 pods"); !refused(got, ErrUnknownCluster.Error()) {
		t.Errorf("equivalents: %q", got)
	}
	if _, err := c.Convert(t.Context(), []byte(aWidget), widgetV2); !errors.Is(err, ErrUnknownCluster) {
		t.Errorf("conversion: %v", err)
	}
	if c.Authorizer() != nil {
		t.Error("there is somebody to ask")
	}
}

func TestAClusterThatIsNotAskedServesWhatItsDocumentSays(t *testing.T) {
	silent, listed := document("silent", nil), document("listed", nil)
	listed.Spec.APIVersions = []string{"v1", "apps/v1", "apps/v1beta1", "events.k8s.io/v1"}
	listed.Spec.CustomResourceDefinitions = []apiextensionsv1.CustomResourceDefinition{*widgets("v2", "v1")}
	r := New(withKubernetes())
	r.Update([]*kinds.Cluster{silent, listed})
	for _, tc := range []struct {
		name, cluster, resource string
		want                    []string
	}{
		{
			"Of what the document does not say, all that ever was counts.", "silent", "networking.k8s.io/v1 networkpolicies",
			[]string{"extensions/v1beta1 NetworkPolicy", "networking.k8s.io/v1 NetworkPolicy"},
		},
		{
			"The versions that the document lists count, in its order.", "listed", "apps/v1 deployments",
			[]string{"apps/v1 Deployment", "apps/v1beta1 Deployment"},
		},
		{
			"They count across groups too.", "listed", "v1 events",
			[]string{"v1 Event", "events.k8s.io/v1 Event"},
		},
		{"What was only ever served in one way is not listed.", "listed", "v1 pods", []string{}},
		{"... nor what is not built in.", "listed", "other.example.com/v1 gizmos", []string{}},
		{"... nor a custom resource, where nothing is said of them.", "silent", "stable.example.com/v1 widgets", []string{}},
		{
			"Custom resources have the versions of their definitions, in order.", "listed", "stable.example.com/v1 widgets",
			[]string{"stable.example.com/v2 Widget", "stable.example.com/v1 Widget"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ways(r.Cluster(tc.cluster), tc.resource)); diff != "" {
				t.Error("(-want +got):\n" + diff)
			}
		})
	}
	for resource, path := range map[string]string{
		"apps/v1beta2 deployments":             "spec.apiVersions",
		"batch/v1 cronjobs":                    "spec.apiVersions",
		"stable.example.com/v3 widgets":        "spec.customResourceDefinitions",
		"stable.example.com/v1 widgets/status": "spec.customResourceDefinitions",
	} {
		if got := ways(r.Cluster("listed"), resource); !refused(got, path) {
			t.Errorf("the document does not list %s: %q", resource, got)
		}
	}
	if r.Cluster("listed").Authorizer() != nil {
		t.Error("there is somebody to ask")
	}
}

func TestDefaultsAreThoseOfTheDefinition(t *testing.T) {
	crd := widgets("v1", "v2")
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{
		"replicas": {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("1")}},
	}
	s := newAPIServer(t)
	s.define(crd)
	r, c := asked(t, s, withKubernetes())
	known(t, r)
	static := document("static", nil)
	static.Spec.CustomResourceDefinitions = []apiextensionsv1.CustomResourceDefinition{*crd}
	r.Update([]*kinds.Cluster{wholeDocument((*r.current.Load())["prod"].remote.path), static})
	kind := schema.GroupVersionKind{Group: "stable.example.com", Version: "v1", Kind: crd.Spec.Names.Kind}
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	for name, c := range map[string]match.Cluster{"asked": c, "static": r.Cluster("static")} {
		got, err := c.Default(t.Context(), kind, []byte(aWidget), nil)
		if err != nil || !strings.Contains(string(got), `"replicas":1`) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if got, err := c.Default(t.Context(), pod, []byte("{}"), nil); err != nil || string(got) != "{}" {
			t.Errorf("%s: what is built in: %s, %v", name, got, err)
		}
		of, err := c.MergeType(kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := of.FromUnstructured(map[string]any{"replicas": "many"}); err == nil || !strings.Contains(err.Error(), "expected numeric") {
			t.Errorf("%s: a field of another type: %v", name, err)
		}
		if of, err := c.MergeType(pod, nil); of != nil || err != nil {
			t.Errorf("%s: a schema of what is built in: %v, %v", name, of, err)
		}
	}
	if _, err := r.Cluster("no").MergeType(kind, nil); !errors.Is(err, ErrUnknownCluster) {
		t.Errorf("an unknown cluster: %v", err)
	}
	if _, err := r.Cluster("no").Default(t.Context(), kind, []byte(aWidget), nil); !errors.Is(err, ErrUnknownCluster) {
		t.Errorf("an unknown cluster: %v", err)
	}
}

func BenchmarkEquivalents(b *testing.B) {
	r := New(withKubernetes())
	r.Update([]*kinds.Cluster{document("dev", nil)})
	c := r.Cluster("dev")
	resource := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Equivalents(resource, "scale"); err != nil {
			b.Fatal(err)
		}
	}
}
