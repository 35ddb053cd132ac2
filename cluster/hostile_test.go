package cluster

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/config/kinds"
)

// protobuf is a field of a message.
func protobuf(number uint64, content []byte) []byte {
	out := binary.AppendUvarint(nil, number<<3|2)
	return append(binary.AppendUvarint(out, uint64(len(content))), content...)
}

// deepDefinitions is a list of CustomResourceDefinitions in protobuf, with a schema of so many "not" in each other.
func deepDefinitions(t *testing.T, levels int) []byte {
	t.Helper()
	lengths := make([]int, levels+1)
	for i := range levels {
		lengths[i+1] = 2 + len(binary.AppendUvarint(nil, uint64(lengths[i]))) + lengths[i]
	}
	schema := make([]byte, 0, lengths[levels])
	for i := levels - 1; i >= 0; i-- {
		schema = binary.AppendUvarint(binary.AppendUvarint(schema, 28<<3|2), uint64(lengths[i]))
	}
	version := append(protobuf(1, []byte("v1")), protobuf(4, protobuf(1, schema))...)
	unknown := runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinitionList"},
		Raw:      protobuf(2, protobuf(2, protobuf(7, version))),
	}
	body, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

// TestAnAPIServerThatAnswersWhatWasNotAskedForConcernsItselfAlone has the API server of a cluster answer each question alike. On a decoder of
// protobuf the first ends the process: no recover stops an overflow of the stack.
func TestAnAPIServerThatAnswersWhatWasNotAskedForConcernsItselfAlone(t *testing.T) {
	deep := deepDefinitions(t, 2_000_000)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was asked, with %q", r.Method, r.URL, r.Header["Authorization"])
		_, _ = io.WriteString(w, "hunter2")
	}))
	defer elsewhere.Close()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string // part of each error
	}{
		"protobuf": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			_, _ = w.Write(deep)
		}, "application/json alone is read"},
		"deep JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			_, _ = io.WriteString(w, `{"items":[{"spec":`+strings.Repeat(`{"not":`, 100_000))
		}, "nested deeper than 256 levels"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/admin/dump", http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
		"the page of another server": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "hunter2", http.StatusInternalServerError)
		}, "HTTP 500"},
	} {
		s := newAPIServer(t)
		hostile := newAPIServer(t)
		hostile.change(func(s *apiServer) { s.instead = test.answer })
		r := running(t)
		bad := wholeDocument(hostile.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))
		good := wholeDocument(s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))
		good.Metadata.Name = "good"
		r.Update([]*kinds.Cluster{bad, good})
		eventually(t, name+": the other cluster is known, and each part of this has an error", func() bool {
			for _, c := range r.Status() {
				for _, p := range c.Parts {
					if p.Fresh != (c.Cluster == "good") || !p.Fresh && !strings.Contains(p.Err.Error(), test.want) {
						return false
					}
				}
			}
			return true
		})
		_, err := r.NamespaceLabels(t.Context(), "prod", "shop")
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a namespace is read: %v", name, err)
		}
	}
}
