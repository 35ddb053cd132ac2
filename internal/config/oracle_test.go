package config

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// apiServerCreates returns the error of kube-apiserver's create handler for the document, in process: its strict serializer,
// its defaults and conversion, and its registry strategy, in the order of createHandler in k8s.io/apiserver.
//
// No API server of today creates v1beta1, which allowed side effects and two hooks of one name. It is asked about each
// hook alone, and about one without side effects where v1beta1 allows them.
func apiServerCreates(h head, body []byte, isYAML bool) error {
	scheme, codecs := legacyscheme.Scheme, legacyscheme.Codecs
	serializer := kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme, scheme, kubejson.SerializerOptions{Strict: true, Yaml: isYAML})
	_, version, _ := strings.Cut(h.APIVersion, "/")
	gvk := schema.GroupVersionKind{Group: admissionregistration.GroupName, Version: version, Kind: h.Kind}
	obj, _, err := codecs.DecoderToVersion(serializer, admissionregistration.SchemeGroupVersion).Decode(body, &gvk, nil)
	if err != nil {
		return err
	}
	asked := []runtime.Object{obj}
	if version == "v1beta1" {
		asked = append(asked, hookByHook(obj)...)
	}
	for _, obj := range asked {
		if err := strategyCreates(obj); err != nil {
			return err
		}
	}
	return nil
}

// strategyCreates returns the error of the registry for the object.
func strategyCreates(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	rest.WipeObjectMetaSystemFields(m)
	rest.FillObjectMetaSystemFields(m)
	m.SetManagedFields(nil) // the field manager makes its own
	var strategy rest.RESTCreateStrategy = validatingwebhookconfiguration.Strategy
	if _, ok := obj.(*admissionregistration.MutatingWebhookConfiguration); ok {
		strategy = mutatingwebhookconfiguration.Strategy
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(strategy.GenerateName(m.GetGenerateName()))
	}
	if err := rest.BeforeCreate(strategy, genericapirequest.WithNamespace(context.Background(), ""), obj); err != nil {
		return err
	}
	if m.GetResourceVersion() != "" {
		return storage.ErrResourceVersionSetOnCreate
	}
	return nil
}

// hookByHook takes the hooks out of a configuration and returns a configuration for each, without side effects.
func hookByHook(obj runtime.Object) []runtime.Object {
	var all []runtime.Object
	harmless := func(class *admissionregistration.SideEffectClass) *admissionregistration.SideEffectClass {
		if class == nil || *class != admissionregistration.SideEffectClassSome && *class != admissionregistration.SideEffectClassUnknown {
			return class
		}
		none := admissionregistration.SideEffectClassNone
		return &none
	}
	switch c := obj.(type) {
	case *admissionregistration.ValidatingWebhookConfiguration:
		for _, hook := range c.Webhooks {
			hook.SideEffects = harmless(hook.SideEffects)
			one := &admissionregistration.ValidatingWebhookConfiguration{ObjectMeta: *c.ObjectMeta.DeepCopy()}
			one.Webhooks = append(one.Webhooks, hook)
			all = append(all, one)
		}
		c.Webhooks = nil
	case *admissionregistration.MutatingWebhookConfiguration:
		for _, hook := range c.Webhooks {
			hook.SideEffects = harmless(hook.SideEffects)
			one := &admissionregistration.MutatingWebhookConfiguration{ObjectMeta: *c.ObjectMeta.DeepCopy()}
			one.Webhooks = append(one.Webhooks, hook)
			all = append(all, one)
		}
		c.Webhooks = nil
	}
	return all
}

// weCreate returns the error of Decode for it.
func weCreate(name string, body []byte) error {
	objects, problems := decode(name, body)
	if err := problems.Err(); err != nil {
		return err
	}
	if len(objects) != 1 {
		return fmt.Errorf("%d objects", len(objects))
	}
	return nil
}

func TestRealConfigurationsAreAcceptedExactlyWhenTheAPIServerAcceptsThem(t *testing.T) {
	dir := corpus(t)
	v1, err := filepath.Glob(filepath.Join(dir, "*.v1.*"))
	if err != nil || len(v1) == 0 {
		t.Fatal("no files:", err)
	}
	v1beta1, err := filepath.Glob(filepath.Join(dir, "*.v1beta1.*"))
	if err != nil || len(v1beta1) == 0 {
		t.Fatal("no files:", err)
	}
	files := slices.Concat(v1, v1beta1)
	accepted := 0
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var h head
		if err := yaml.Unmarshal(body, &h); err != nil {
			t.Fatal(err)
		}
		theirs, ours := apiServerCreates(h, body, filepath.Ext(file) == ".yaml"), weCreate(filepath.Base(file), body)
		if (theirs == nil) != (ours == nil) {
			t.Errorf("%s:\n the API server says %v\n we say %v", filepath.Base(file), theirs, ours)
		}
		if ours == nil {
			accepted++
		}
	}
	if accepted == 0 || accepted == len(files) {
		t.Errorf("accepted %d of %d: the corpus has both kinds", accepted, len(files))
	}
}

// TestRealInitializersAreRead reads the initializers of the corpus: no code of today knows the kind.
func TestRealInitializersAreRead(t *testing.T) {
	for file, want := range map[string]struct {
		name, initializer string
		resources         []string
	}{
		"istio-initializer-2018.v1alpha1.yaml": {
			"istio-sidecar", "sidecar.initializer.istio.io", []string{"deployments", "statefulsets", "jobs", "daemonsets"},
		},
		"kubernetes-initializer-tutorial.v1alpha1.yaml": {"envoy", "envoy.initializer.kubernetes.io", []string{"deployments"}},
	} {
		body, err := os.ReadFile(filepath.Join(corpus(t), file))
		if err != nil {
			t.Fatal(err)
		}
		o := decodeOne(t, string(body))
		if o.Key != (Key{Kind: kinds.InitializersKind, Name: want.name}) || !o.Initializes() || len(o.Mutating.Webhooks) != 1 {
			t.Fatalf("%s is %s with %+v", file, o.Key, o.Mutating)
		}
		w := o.Mutating.Webhooks[0]
		if w.Name != want.initializer || !slices.Equal(w.Rules[0].Resources, want.resources) {
			t.Errorf("%s: initializer %q for %q", file, w.Name, w.Rules[0].Resources)
		}
	}
}

// TestRealV1alpha1Configurations names the outcome of each: no code of today knows this kind.
func TestRealV1alpha1Configurations(t *testing.T) {
	dir := corpus(t)
	for file, want := range map[string][]string{
		"k8s-docs-external-admission-hook.v1alpha1.yaml": {"externalAdmissionHooks[0].clientConfig.caBundle: not base64"},
		"namespace-reservation-list.v1alpha1.yaml": {
			"items[0].apiVersion: DaemonSet of extensions/v1beta1 is not read",
			"items[1].apiVersion: Secret of v1 is not read",
			"items[2].apiVersion: ServiceAccount of v1 is not read",
			"items[3].apiVersion: Service of v1 is not read",
			"items[4].apiVersion: CustomResourceDefinition of apiextensions.k8s.io/v1beta1 is not read",
			"items[5].apiVersion: APIService of apiregistration.k8s.io/v1beta1 is not read",
			"items[6].externalAdmissionHooks[0].clientConfig.caBundle: not base64",
		},
	} {
		body, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		objects, problems := decode(file, body)
		if len(objects) > 0 || len(problems) != len(want) {
			t.Fatalf("%s: accepted %q, problems %q", file, names(objects), lines(problems))
		}
		for i, p := range problems {
			if !strings.Contains(p.String(), want[i]) || p.File != file || p.Line <= 1 {
				t.Errorf("%s: problem %s", file, p)
			}
		}
	}
}

// TestTheHookOfARealListIsReadOnceItsPlaceholderIsFilled: the other items are errors of their own.
func TestTheHookOfARealListIsReadOnceItsPlaceholderIsFilled(t *testing.T) {
	const file = "namespace-reservation-list.v1alpha1.yaml"
	body, err := os.ReadFile(filepath.Join(corpus(t), file))
	if err != nil {
		t.Fatal(err)
	}
	objects, problems := decode(file, bytes.ReplaceAll(body, []byte("KUBE_CA"), []byte("Cg==")))
	if len(objects) != 1 || objects[0].Name != "namespacereservations.admission.online.openshift.io" {
		t.Fatalf("objects %q", names(objects))
	}
	service := objects[0].Validating.Webhooks[0].ClientConfig.Service
	if service.Namespace != "default" || *service.Path != "/apis/admission.online.openshift.io/v1alpha1/namespacereservations" {
		t.Errorf("service %+v", service)
	}
	last := problems[len(problems)-1]
	if len(problems) != 7 || last.Code != CodeFailClosed || last.Field != "items[6].externalAdmissionHooks[0].failurePolicy" {
		t.Errorf("problems %q", lines(problems))
	}
}

// TestBrokenConfigurationsAreRefusedExactlyWhenTheAPIServerRefusesThem breaks real ones in random places.
func TestBrokenConfigurationsAreRefusedExactlyWhenTheAPIServerRefusesThem(t *testing.T) {
	mutants := citest.Rounds(300, 1500, 15_000)
	docs := slices.Concat(realDocuments(t), parsed(t, betaBodies(t)...))
	rng := rand.New(rand.NewPCG(1, 2))
	agreed := map[bool]int{}
	for range mutants {
		doc := clone(docs[rng.IntN(len(docs))])
		for range 1 + rng.IntN(2) {
			breakSomething(rng, doc)
		}
		body, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		h, ok := readHead(body)
		if !ok || deviates(body) || !isRegistration(h) {
			continue
		}
		theirs, ours := apiServerCreates(h, body, false), weCreate("mutant.json", body)
		if (theirs == nil) != (ours == nil) {
			t.Errorf("%s\n the API server says %v\n we say %v", body, theirs, ours)
		}
		agreed[ours == nil]++
	}
	t.Logf("accepted %d, refused %d", agreed[true], agreed[false])
	if agreed[true] < mutants/20 || agreed[false] < mutants/20 {
		t.Error("the mutants are too much alike")
	}
}

// FuzzDecode looks for documents that are read otherwise than by the API server, or not survived.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(alphaHooks))
	f.Add([]byte(betaHooks + "---\n" + betaMutating))
	for _, doc := range slices.Concat(realDocuments(f), parsed(f, betaBodies(f)...), parsed(f, []byte(alphaHooks))) {
		body, err := json.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		asYAML, err := yaml.JSONToYAML(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(asYAML)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		objects, problems := decode("fuzz.yaml", body)
		for _, o := range objects {
			if o.Kind == "" || o.Name == "" || o.Line < 1 || o.Digest == "" {
				t.Errorf("incomplete object %+v", o)
			}
		}
		for _, p := range problems {
			if p.Line < 0 || p.Line > 1+strings.Count(string(body), "\n") || p.Message == "" || p.Code == "" {
				t.Errorf("bad problem %+v", p)
			}
			if p.Code == CodeInternal {
				t.Errorf("panic: %s", p)
			}
		}
		texts := split(body)
		if len(texts) != 1 {
			return
		}
		converted, err := yaml.YAMLToJSON(texts[0].data)
		if err != nil {
			return
		}
		h, ok := readHead(converted)
		if !ok || deviates(converted) || !isRegistration(h) {
			return
		}
		theirs, ours := apiServerCreates(h, texts[0].data, !texts[0].json), problems.Err()
		if (theirs == nil) != (ours == nil) {
			t.Errorf("the API server says %v\n we say %v", theirs, ours)
		}
	})
}

// isRegistration reports whether Kubernetes of today has the kind in this version.
func isRegistration(h head) bool {
	return (h.Kind == validatingKind || h.Kind == mutatingKind) &&
		(h.APIVersion == admissionregistrationV1 || h.APIVersion == admissionregistrationV1beta1)
}

func readHead(body []byte) (head, bool) {
	d := &document{fileReader: &fileReader{Decoder: &Decoder{}}, lineIndex: &lineIndex{}, json: body}
	return d.head()
}

// deviates reports whether a document is one on which we differ from the API server on purpose: an empty clientConfig,
// or a name that is to be generated.
func deviates(body []byte) bool {
	if conversion.CheckText(body) != nil {
		return true
	}
	var doc struct {
		Metadata map[string]any   `json:"metadata"`
		Webhooks []map[string]any `json:"webhooks"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return false // the types are wrong: both refuse it
	}
	if name, _ := doc.Metadata["name"].(string); name == "" {
		return true
	}
	for _, hook := range doc.Webhooks {
		c, isMap := hook["clientConfig"].(map[string]any)
		if hook["clientConfig"] == nil || isMap && c["url"] == nil && c["service"] == nil && (c["caBundle"] == nil || c["caBundle"] == "") {
			return true
		}
	}
	return false
}

// realDocuments are the accepted configurations of the corpus, in v1.
func realDocuments(t testing.TB) []map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(corpus(t), "*.v1.*"))
	if err != nil {
		t.Fatal(err)
	}
	var docs []map[string]any
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if weCreate(file, body) != nil {
			continue
		}
		docs = append(docs, parsed(t, body)...)
	}
	return docs
}

// parsed are documents as maps.
func parsed(t testing.TB, bodies ...[]byte) []map[string]any {
	t.Helper()
	var docs []map[string]any
	for _, body := range bodies {
		var doc map[string]any
		if err := yaml.Unmarshal(body, &doc); err != nil {
			t.Fatal(err)
		}
		docs = append(docs, doc)
	}
	return docs
}

func clone(doc map[string]any) map[string]any {
	data, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	var copied map[string]any
	if err := json.Unmarshal(data, &copied); err != nil {
		panic(err)
	}
	return copied
}

// breakSomething changes one value somewhere in the document.
func breakSomething(rng *rand.Rand, doc map[string]any) {
	var places []func()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(keys(v)) {
				places = append(places, func() { delete(v, k) }, func() { v[k] = junk(rng, v[k]) }, func() { v[k+"x"] = v[k] },
					func() { v[strings.ToUpper(k)] = v[k] }, func() { v[anyField(rng)] = junk(rng, v[k]) })
				walk(v[k])
			}
		case []any:
			for i := range v {
				places = append(places, func() { v[i] = junk(rng, v[i]) }, func() { v[i] = v[0] })
				walk(v[i])
			}
		}
	}
	walk(doc)
	places[rng.IntN(len(places))]()
}

func keys(m map[string]any) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func anyField(rng *rand.Rand) string {
	fields := []string{
		"name", "generateName", "namespace", "resourceVersion", "labels", "annotations", "finalizers", "ownerReferences", "managedFields",
		"generation", "uid", "creationTimestamp", "deletionTimestamp", "scope", "timeoutSeconds", "failurePolicy", "matchPolicy",
		"reinvocationPolicy", "sideEffects", "url", "service", "port", "path", "caBundle", "matchConditions", "objectSelector", "operations",
	}
	return fields[rng.IntN(len(fields))]
}

func junk(rng *rand.Rand, old any) any {
	values := []any{
		nil, "", "*", "a/b", "*/*", "Fail", "Ignore", "None", "v1", "UPPER", "x.y.z.example.com", "with space", 0, 1, 30, 31, -1, 1.5, 1e40,
		true, []any{}, []any{"*", "pods"}, []any{1}, map[string]any{}, map[string]any{"a": "b"}, map[string]any{"name": "x", "expression": "true"},
		[]any{map[string]any{"name": "x", "expression": "object.x == 1"}}, []any{map[string]any{"name": "x", "expression": "1 +"}},
		[]any{old, old}, []any{old}, "Cg==", "https://example.com/x", "http://example.com", "https://u:p@example.com/?q#f", "2020-01-01T00:00:00Z",
		strings.Repeat("a", 300), 65536, "Namespaced", "CREATE", "Some", "v1beta1",
	}
	return values[rng.IntN(len(values))]
}
