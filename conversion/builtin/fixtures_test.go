package builtin_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/conversion"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is the least that makes a Pod, as a user writes it.
const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default"},"spec":{"containers":[{"name":"main","image":"main:1"}]}}`

// asServed is an object as an API server of our types' version sends it to hooks: decoded, defaulted, converted to the
// internal version and from there to the object's own.
func asServed(t testing.TB, object string) []byte {
	t.Helper()
	return servedAs(t, []byte(object), kindIn(t, []byte(object)))
}

// servedAs is asServed for an object that need not say its kind.
func servedAs(t testing.TB, object []byte, kind schema.GroupVersionKind) []byte {
	t.Helper()
	return servedIn(t, object, kind, kind)
}

// servedIn is servedAs for a client who asks for the object in another version.
func servedIn(t testing.TB, object []byte, kind, in schema.GroupVersionKind) []byte {
	t.Helper()
	codecs := legacyscheme.Codecs
	if kind.Group == apiextensions.GroupName {
		scheme := runtime.NewScheme()
		install.Install(scheme)
		codecs = serializer.NewCodecFactory(scheme)
	}
	internal := schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	decoded, _, err := codecs.UniversalDecoder(internal).Decode(object, &kind, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	out, err := runtime.Encode(codecs.LegacyCodec(in.GroupVersion()), decoded)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(out)
}

// kindIn is the kind that an object says that it is.
func kindIn(t testing.TB, object []byte) schema.GroupVersionKind {
	t.Helper()
	var named metav1.TypeMeta
	if err := json.Unmarshal(object, &named); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	return named.GroupVersionKind()
}

// corpusObjects are the objects of the corpus as JSON, by the name of their file.
func corpusObjects(t testing.TB) map[string][]byte {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", "shared", "corpus", "objects", "*.yaml"))
	if len(files) == 0 {
		t.Skip("no ../shared/corpus/objects beside the module")
	}
	objects := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects[filepath.Base(file)] = raw
	}
	return objects
}

// at is a kind as people write it: "apps/v1 Deployment".
func at(t testing.TB, kind string) schema.GroupVersionKind {
	t.Helper()
	version, name, _ := strings.Cut(kind, " ")
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return gv.WithKind(name)
}

func equalJSON(t testing.TB, want, got []byte) {
	t.Helper()
	if diff := cmp.Diff(tree(t, want), tree(t, got)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func tree(t testing.TB, raw []byte) any {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// apply applies a patch as JSON.
func apply(t testing.TB, object, patch []byte) []byte {
	t.Helper()
	p, err := conversion.ApplyPatch(object, patch)
	if err != nil {
		t.Fatalf("%v: %s to %s", err, patch, object)
	}
	return p.Raw
}
