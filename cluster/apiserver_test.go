package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiServer serves namespaces as a kube-apiserver does: get, list, watch, and lists that are streamed.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex
	labels   map[string]map[string]string
	version  int
	watchers map[chan metav1.WatchEvent]bool
	reads    int    // of single namespaces
	broken   string // if set, answered with 404 to everything, as a proxy without an API server behind it does
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{labels: map[string]map[string]string{}, version: 1, watchers: map[chan metav1.WatchEvent]bool{}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()
	switch name, named := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"); {
	case broken != "":
		http.Error(w, broken, http.StatusNotFound)
	case named:
		s.get(w, name)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	default:
		s.list(w)
	}
}

func object(name string, labels map[string]string, version int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, ResourceVersion: fmt.Sprint(version)},
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // the client may have gone
}

func (s *apiServer) get(w http.ResponseWriter, name string) {
	s.mu.Lock()
	s.reads++
	labels, ok := s.labels[name]
	s.mu.Unlock()
	if ok {
		answer(w, http.StatusOK, object(name, labels, 1))
		return
	}
	answer(w, http.StatusNotFound, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		Message: fmt.Sprintf("namespaces %q not found", name), Details: &metav1.StatusDetails{Kind: "namespaces", Name: name},
	})
}

func (s *apiServer) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	list.ResourceVersion = fmt.Sprint(s.version)
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		list.Items = append(list.Items, *object(name, s.labels[name], s.version))
	}
	answer(w, http.StatusOK, list)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan metav1.WatchEvent, 1000)
	s.mu.Lock()
	s.watchers[events] = true
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for name, labels := range s.labels {
			events <- event("ADDED", object(name, labels, s.version))
		}
		end := object("", nil, s.version)
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		events <- event("BOOKMARK", end)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, events)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	for enc := json.NewEncoder(w); ; flush() {
		select {
		case e := <-events:
			if enc.Encode(e) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func event(kind string, o *metav1.PartialObjectMetadata) metav1.WatchEvent {
	e := metav1.WatchEvent{Type: kind}
	e.Object.Object = o
	return e
}

// set changes the labels of a namespace; nil removes it. Watchers are told if tell is true.
func (s *apiServer) set(name string, labels map[string]string, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	kind := "MODIFIED"
	if _, ok := s.labels[name]; !ok {
		kind = "ADDED"
	}
	s.labels[name] = labels
	if labels == nil {
		kind = "DELETED"
		delete(s.labels, name)
	}
	for w := range s.watchers {
		if tell {
			w <- event(kind, object(name, labels, s.version))
		}
	}
}

func (s *apiServer) watched() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}

func (s *apiServer) liveReads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// breakDown makes the server answer everything with 404, or work again.
func (s *apiServer) breakDown(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = message
}

// kubeconfig writes a kubeconfig for the server to the file.
func (s *apiServer) kubeconfig(t *testing.T, file string) string {
	t.Helper()
	dir, name := path.Split(file)
	ca := filepath.Join(dir, "ca.pem")
	writeFile(t, ca, pemOf(s.Certificate()))
	writeFile(t, filepath.Join(dir, name), fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.pem}}]
users: [{name: u, user: {token: t}}]
`, s.URL))
	return file
}

func writeFile(t *testing.T, file, data string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
