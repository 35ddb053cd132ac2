package config

import (
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
)

// apiServerCreates is what kube-apiserver's create handler says to the document, in process: its strict serializer, its
// defaults and conversion, and its registry strategy, in the order of createHandler in k8s.io/apiserver.
func apiServerCreates(kind string, body []byte, isYAML bool) error {
	scheme, codecs := legacyscheme.Scheme, legacyscheme.Codecs
	serializer := kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme, scheme, kubejson.SerializerOptions{Strict: true, Yaml: isYAML})
	gvk := schema.GroupVersionKind{Group: admissionregistration.GroupName, Version: "v1", Kind: kind}
	obj, _, err := codecs.DecoderToVersion(serializer, admissionregistration.SchemeGroupVersion).Decode(body, &gvk, nil)
	if err != nil {
		return err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	rest.WipeObjectMetaSystemFields(m)
	rest.FillObjectMetaSystemFields(m)
	m.SetManagedFields(nil) // the field manager makes its own
	var strategy rest.RESTCreateStrategy = validatingwebhookconfiguration.Strategy
	if kind == "MutatingWebhookConfiguration" {
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

// weCreate is what Decode says to it.
func weCreate(name string, body []byte) error {
	objects, problems := Decode(name, body)
	if err := problems.Err(); err != nil {
		return err
	}
	if len(objects) != 1 {
		return fmt.Errorf("%d objects", len(objects))
	}
	return nil
}

func TestRealConfigurationsAreAcceptedExactlyWhenTheAPIServerAcceptsThem(t *testing.T) {
	dir := corpus(t, "webhookconfigurations")
	files, err := filepath.Glob(filepath.Join(dir, "*.v1.*"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files:", err)
	}
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
		theirs, ours := apiServerCreates(h.Kind, body, filepath.Ext(file) == ".yaml"), weCreate(filepath.Base(file), body)
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

func TestOtherVersionsAreRefusedWithTheOneThatIsRead(t *testing.T) {
	dir := corpus(t, "webhookconfigurations")
	files, err := filepath.Glob(filepath.Join(dir, "*.v1[ab]*"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files:", err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, problems := Decode(filepath.Base(file), body)
		if err := problems.Err(); len(objects) > 0 || err == nil || !strings.Contains(err.Error(), admissionregistrationV1) {
			t.Errorf("%s: %d objects, %v", filepath.Base(file), len(objects), err)
		}
	}
}

// TestBrokenConfigurationsAreRefusedExactlyWhenTheAPIServerRefusesThem breaks real ones in random places.
func TestBrokenConfigurationsAreRefusedExactlyWhenTheAPIServerRefusesThem(t *testing.T) {
	const mutants = 1500
	docs := realDocuments(t)
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
		kind, _ := doc["kind"].(string)
		if h, ok := readHead(body); !ok || deviates(body) || h.APIVersion != admissionregistrationV1 {
			continue
		}
		theirs, ours := apiServerCreates(kind, body, false), weCreate("mutant.json", body)
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
	for _, doc := range realDocuments(f) {
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
		objects, problems := Decode("fuzz.yaml", body)
		for _, o := range objects {
			if o.Kind == "" || o.Name == "" || o.Line < 1 || o.digest == "" {
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
		if !ok || h.APIVersion != admissionregistrationV1 || deviates(converted) ||
			!slices.Contains([]string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}, h.Kind) {
			return
		}
		theirs, ours := apiServerCreates(h.Kind, texts[0].data, !texts[0].json), problems.Err()
		if (theirs == nil) != (ours == nil) {
			t.Errorf("the API server says %v\n we say %v", theirs, ours)
		}
	})
}

func readHead(body []byte) (head, bool) {
	d := &document{fileReader: &fileReader{}, place: &place{}, json: body}
	return d.head()
}

// deviates reports whether a document is one on which we differ from the API server on purpose: an empty clientConfig,
// or a name that is to be generated.
func deviates(body []byte) bool {
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

// realDocuments are the accepted configurations of the corpus.
func realDocuments(t testing.TB) []map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(corpus(t, "webhookconfigurations"), "*.v1.*"))
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
		strings.Repeat("a", 300), 65536, "Namespaced", "CREATE",
	}
	return values[rng.IntN(len(values))]
}
