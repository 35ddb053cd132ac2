package keeper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
)

// apiServer is an API server in memory, which stores the objects that it is sent. Its clients have no connections, so that it lives in a bubble.
type apiServer struct {
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	version int
	older   bool           // drops matchConditions, as Kubernetes before 1.28 does
	stored  int            // writes of webhook configurations that were not dry
	writes  map[string]int // of webhook configurations, dry or not, by dispatcher
}

// client is the way of a dispatcher.
func (s *apiServer) client(dispatcher string) (*rest.Config, *http.Client) {
	return &rest.Config{Host: "https://prod-1", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, &http.Client{Transport: roundTripper(
		func(r *http.Request) (*http.Response, error) {
			if err := r.Context().Err(); err != nil {
				return nil, err
			}
			var sent map[string]any
			if r.Body != nil {
				defer r.Body.Close()
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil && r.Method != http.MethodGet {
					return nil, err
				}
			}
			code, answer := s.do(dispatcher, r.Method, r.URL.Path, sent, r.URL.Query().Has("dryRun"))
			data, err := json.Marshal(answer)
			header := http.Header{"Content-Type": {"application/json"}}
			return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(data)), Request: r}, err
		},
	)}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// do answers a request.
func (s *apiServer) do(dispatcher, method, path string, sent map[string]any, dry bool) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	discovery := map[string]any{
		"/api":    map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
		"/apis":   map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []string{}},
		"/api/v1": map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{map[string]any{"name": "pods", "kind": "Pod"}}},
	}
	if answer := discovery[path]; answer != nil {
		return http.StatusOK, answer
	}
	if method == http.MethodPost {
		path += "/" + sent["metadata"].(map[string]any)["name"].(string)
	}
	now, found := s.objects[path]
	switch {
	case method == http.MethodGet && found:
		return http.StatusOK, now
	case method == http.MethodGet || method == http.MethodPut && !found:
		return http.StatusNotFound, refused("NotFound", http.StatusNotFound)
	case method == http.MethodPost && found:
		return http.StatusConflict, refused("AlreadyExists", http.StatusConflict)
	case method == http.MethodPut && sent["metadata"].(map[string]any)["resourceVersion"] != now["metadata"].(map[string]any)["resourceVersion"]:
		return http.StatusConflict, refused("Conflict", http.StatusConflict)
	}
	if strings.Contains(path, "webhookconfigurations") {
		s.writes[dispatcher]++
		for _, w := range webhooksOf(sent) {
			if s.older {
				delete(w.(map[string]any), "matchConditions")
			}
		}
		if !dry {
			s.stored++
		}
	}
	if !dry {
		s.store(path, now, sent)
	}
	return http.StatusOK, sent
}

func webhooksOf(object map[string]any) []any {
	all, _ := object["webhooks"].([]any)
	return all
}

// store replaces an object; now is nil if there is none yet.
func (s *apiServer) store(path string, now, sent map[string]any) {
	s.version++
	meta, generation := sent["metadata"].(map[string]any), 1
	if now != nil {
		generation = now["metadata"].(map[string]any)["generation"].(int)
		if !reflect.DeepEqual(now["webhooks"], sent["webhooks"]) {
			generation++
		}
	}
	meta["resourceVersion"], meta["uid"], meta["generation"] = fmt.Sprint(s.version), path, generation
	s.objects[path] = sent
}

func refused(reason string, code int) any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
}

// writtenAgain reports whether both entries were written again since they have changed, and how often entries were changed.
func (s *apiServer) writtenAgain(t *testing.T) (all bool, generation int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	all = true
	for _, kind := range []string{"mutating", "validating"} {
		path := "/apis/admissionregistration.k8s.io/v1/" + kind + "webhookconfigurations/portcullis"
		meta := s.objects[path]["metadata"].(map[string]any)
		generation = meta["generation"].(int)
		all = all && meta["annotations"].(map[string]any)[touch.Annotation] == fmt.Sprintf("%s/%d", path, generation)
	}
	return all, generation
}

// writesOf are the writes of a dispatcher until now, of webhook configurations.
func (s *apiServer) writesOf(dispatcher string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[dispatcher]
}

// bundles are the caBundles of all entries, each once.
func (s *apiServer) bundles(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all struct {
		Webhooks []struct {
			ClientConfig struct {
				CABundle []byte `json:"caBundle"`
			} `json:"clientConfig"`
		} `json:"webhooks"`
	}
	data, err := json.Marshal(s.objects["/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/portcullis"])
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	for _, w := range all.Webhooks {
		if bundle := string(w.ClientConfig.CABundle); bundle != seen {
			seen += bundle
		}
	}
	return seen
}
