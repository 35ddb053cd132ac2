package clitest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// BesideAHostileAPIServer runs a command for each of the answers by which an API server attacks its reader: the command has to end, to fail, and to name the
// cause. The operator's token goes to no other server.
func BesideAHostileAPIServer(t *testing.T, run func(kubeconfig string) Result) {
	t.Helper()
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was asked of another server, with %q", r.Method, r.URL, r.Header["Authorization"])
	}))
	defer elsewhere.Close()
	deep := deepDefinitions(2_000_000)
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
		"an error in protobuf that is nested deeply": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write(deep)
		}, "HTTP 403"},
		"an error without an end": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			for text, err := strings.Repeat("x", 1<<20), error(nil); err == nil; {
				_, err = io.WriteString(w, text)
			}
		}, "rejected our request"},
		"numbers in the place of objects": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			numbers := "[0" + strings.Repeat(",0", answers.MaxParts+10) + "]"
			_, _ = io.WriteString(w, `{"kind":"List","items":`+numbers+`,"webhooks":`+numbers+"}")
		}, ""},
	} {
		server := httptest.NewTLSServer(test.answer)
		r := run(Write(t, "kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
  clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: of-the-operator}}]}`, server.URL)))
		if text := r.Out + r.Notes; r.Code == 0 || !strings.Contains(text, test.want) || strings.Contains(text, "of-the-operator") {
			t.Errorf("%s: exit code %d, no %q in %.1000s", name, r.Code, test.want, text)
		}
		server.Close()
	}
}

// deepDefinitions is a list of CustomResourceDefinitions in protobuf, with a schema of so many "not" in each other. Decoding it takes all of the stack.
func deepDefinitions(levels int) []byte {
	field := func(number uint64, content []byte) []byte {
		out := binary.AppendUvarint(nil, number<<3|2)
		return append(binary.AppendUvarint(out, uint64(len(content))), content...)
	}
	lengths := make([]int, levels+1)
	for i := range levels {
		lengths[i+1] = 2 + len(binary.AppendUvarint(nil, uint64(lengths[i]))) + lengths[i]
	}
	schema := make([]byte, 0, lengths[levels])
	for i := levels - 1; i >= 0; i-- {
		schema = binary.AppendUvarint(binary.AppendUvarint(schema, 28<<3|2), uint64(lengths[i]))
	}
	version := append(field(1, []byte("v1")), field(4, field(1, schema))...)
	kind := append(field(1, []byte("apiextensions.k8s.io/v1")), field(2, []byte("CustomResourceDefinitionList"))...)
	return append([]byte("k8s\x00"), append(field(1, kind), field(2, field(2, field(2, field(7, version))))...)...)
}
