package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
)

// apiServer is an API server over HTTP with the objects of a test.
type apiServer struct {
	lists map[string]objects // by path
	// before is called for each page of objects, and answers it if it returns true; nil does not.
	before func(w http.ResponseWriter, path, from string) bool

	refused   bool   // each request
	forbidden string // a path

	mu    sync.Mutex
	pages []string // PATH?limit&continue, in their order
}

// objects are the objects of a list.
type objects struct {
	count int
	item  func(i int) string
}

func of(items ...string) objects { return objects{len(items), func(i int) string { return items[i] }} }

const (
	podsPath        = "/api/v1/pods"
	secretsPath     = "/api/v1/secrets"
	namespacesPath  = "/api/v1/namespaces"
	deploymentsPath = "/apis/apps/v1/deployments"
)

// discoveries are the answers to discovery.
func discoveries() map[string]string {
	const verbs = `"verbs": ["create", "list"]`
	return map[string]string{
		"/api": `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
			"preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}}]}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [
			{"name": "pods", "kind": "Pod", "namespaced": true, ` + verbs + `}, {"name": "pods/exec", "kind": "PodExecOptions", "namespaced": true, "verbs": ["create"]},
			{"name": "secrets", "kind": "Secret", "namespaced": true, ` + verbs + `}, {"name": "configmaps", "kind": "ConfigMap", "namespaced": true, ` + verbs + `},
			{"name": "namespaces", "kind": "Namespace", ` + verbs + `}]}`,
		"/apis/apps/v1": `{"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment", "namespaced": true, ` + verbs + `}]}`,
	}
}

// start serves until the test ends, and returns a kubeconfig with the context prod-1.
func (s *apiServer) start(t testing.TB) (config string) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return kubeconfig(server.URL)
}

func kubeconfig(server string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "prod-1",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "c", "user": {}}],
		"contexts": [{"name": "prod-1", "context": {"cluster": "c", "user": "c"}}]}`, server)
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if s.refused {
		refuse(w, http.StatusUnauthorized, "Unauthorized", "")
		return
	}
	if r.URL.Path == s.forbidden {
		refuse(w, http.StatusForbidden, "Forbidden", "")
		return
	}
	if text := discoveries()[r.URL.Path]; text != "" {
		fmt.Fprint(w, text)
		return
	}
	query := r.URL.Query()
	if query.Has("watch") {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	from := query.Get("continue")
	if query.Has("limit") {
		s.mu.Lock()
		s.pages = append(s.pages, r.URL.Path+"?"+query.Get("limit")+"&"+from)
		s.mu.Unlock()
		if s.before != nil && s.before(w, r.URL.Path, from) {
			return
		}
	}
	path, namespace := r.URL.Path, ""
	if before, rest, ok := strings.Cut(path, "/namespaces/"); ok {
		var resource string
		namespace, resource, _ = strings.Cut(rest, "/")
		path = before + "/" + resource
	}
	s.list(w, s.lists[path], from, query.Get("limit"), namespace)
}

// list writes a page of a list.
func (s *apiServer) list(w http.ResponseWriter, all objects, from, limit, namespace string) {
	begin, _ := strconv.Atoi(strings.TrimPrefix(from, "new-"))
	size, _ := strconv.Atoi(limit)
	end, next := min(begin+cmp.Or(size, all.count), all.count), ""
	if end < all.count {
		next = strconv.Itoa(end)
	}
	fmt.Fprintf(w, `{"kind": "SomeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": %q}, "items": [`, next)
	comma := ""
	for i := begin; i < end; i++ {
		if item := all.item(i); namespace == "" || strings.Contains(item, `"namespace":"`+namespace+`"`) {
			fmt.Fprint(w, comma, item)
			comma = ","
		}
	}
	fmt.Fprint(w, "]}")
}

func refuse(w http.ResponseWriter, code int, reason, from string) bool {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no", "metadata": map[string]string{"continue": from},
	})
	return true
}

// pod is a Pod; team is a label, if it is not empty.
func pod(namespace, name, team string) string {
	labels := ""
	if team != "" {
		labels = fmt.Sprintf(`,"labels":{"team":%q}`, team)
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"u-%s"%s},"spec":{"containers":[{"name":"a","image":"nginx"}]}}`, name, namespace, name, labels)
}

func namespaces(names ...string) objects {
	var items []string
	for _, n := range names {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"kubernetes.io/metadata.name":%q,"env":%q}}}`, n, n, n))
	}
	return of(items...)
}

// shop is a cluster with Pods that have a team, and Pods that have none.
func shop() *apiServer {
	return &apiServer{lists: map[string]objects{
		namespacesPath: namespaces("shop", "kube-system", "prod"),
		podsPath:       of(pod("shop", "a", "web"), pod("shop", "b", ""), pod("prod", "c", ""), pod("kube-system", "d", ""), pod("prod", "e", "web")),
		secretsPath:    of(`{"metadata":{"name":"s","namespace":"shop"},"data":{"password":"aHVudGVyMg=="}}`),
		deploymentsPath: of(`{"metadata":{"name":"w","namespace":"shop","labels":{"team":"web"}},"spec":{"selector":{},
			"template":{"metadata":{},"spec":{"containers":[{"name":"a","image":"nginx"}]}}}}`),
	}}
}

// policies are policies that are about the objects of shop.
const policies = `
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: label-team}
spec:
  resources: [pods, deployments]
  exclude: {namespaces: [kube-system]}
  validations: [{expression: "'team' in labels", field: metadata.labels.team, message: add the label team}]
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: no-passwords}
spec:
  mode: enforce
  resources: [secrets]
  validations: [{expression: "!('password' in object.data)", message: it has a password, messageExpression: "'it has ' + string(object.data.password)"}]
---
apiVersion: portcullis.dev/v1
kind: Policy
metadata: {name: no-exec}
spec:
  resources: [pods/exec]
  operations: [CONNECT]
  validations: [{expression: "false", message: no sessions}]
`

type file struct{ kubeconfig, config string }

func files(t *testing.T, s *apiServer, config string) file {
	t.Helper()
	return file{clitest.Write(t, "kubeconfig", s.start(t)), clitest.Write(t, "policies.yaml", config)}
}

// audit runs the command.
func (f file) audit(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t, NewCommand(), nil, append([]string{"--kubeconfig", f.kubeconfig, "--config", f.config, "--rate", "10000"}, args...)...)
}
