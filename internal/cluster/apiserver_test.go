package cluster

import (
	"encoding/json"
	"fmt"
	"io"
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

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Where an API server has the resources that are followed.
const (
	namespacesPath  = "/api/v1/namespaces"
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
	reviewsPath     = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// apiServer serves a Registry as a kube-apiserver does: resources with get, list and watch; discovery, in one answer and in
// many; SubjectAccessReviews.
type apiServer struct {
	*httptest.Server

	mu          sync.Mutex
	collections map[string]*resource       // by path
	reads       int                        // of single objects
	broken      string                     // if set, answered with 404 to everything, as a proxy without an API server behind it does
	forbidden   map[string]bool            // paths
	instead     http.HandlerFunc           // if set, it answers everything
	lists       map[string]func(io.Writer) // each writes a list of its own, by path
	groups      []group                    // of discovery
	legacy      bool                       // discovery is in many answers
	discoveries int
	reviews     func(spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int)
}

// resource is a collection of objects.
type resource struct {
	objects  map[string]runtime.Object
	version  int
	watchers map[chan metav1.WatchEvent]bool
}

// group is a group of discovery; its versions, in order, are lists of "resource Kind" or "resource/sub Kind group/version".
type group struct {
	name     string
	versions []groupVersion
}

type groupVersion struct {
	name      string
	resources []string
	stale     bool
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{collections: map[string]*resource{}, forbidden: map[string]bool{}}
	for _, p := range []string{namespacesPath, definitionsPath, apiServicesPath} {
		s.collections[p] = &resource{objects: map[string]runtime.Object{}, version: 1, watchers: map[chan metav1.WatchEvent]bool{}}
	}
	s.groups = []group{{"", []groupVersion{{name: "v1", resources: []string{"namespaces Namespace", "pods Pod", "pods/log Pod"}}}}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	broken, forbidden, instead := s.broken, s.forbidden[r.URL.Path], s.instead
	s.mu.Unlock()
	dir, name := path.Split(r.URL.Path)
	switch {
	case instead != nil:
		instead(w, r)
	case broken != "":
		http.Error(w, broken, http.StatusNotFound)
	case forbidden:
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, r.URL.Path+" is forbidden")
	case r.URL.Path == reviewsPath:
		s.review(w, r)
	case s.collections[r.URL.Path] != nil:
		s.collection(w, r, s.collections[r.URL.Path])
	case s.collections[strings.TrimSuffix(dir, "/")] != nil:
		s.get(w, s.collections[strings.TrimSuffix(dir, "/")], name)
	default:
		s.discover(w, r)
	}
}

func (s *apiServer) collection(w http.ResponseWriter, r *http.Request, c *resource) {
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r, c)
		return
	}
	s.mu.Lock()
	list := s.lists[r.URL.Path]
	s.mu.Unlock()
	if list == nil {
		s.list(w, r, c)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	list(w)
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

func fail(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	answer(w, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: code, Message: message,
	})
}

func (s *apiServer) get(w http.ResponseWriter, c *resource, name string) {
	s.mu.Lock()
	s.reads++
	o, ok := c.objects[name]
	s.mu.Unlock()
	if ok {
		answer(w, http.StatusOK, o)
		return
	}
	fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%q not found", name))
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, c *resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := object("", nil, 0).TypeMeta
	if r.URL.Path == definitionsPath {
		kind = definitionType
	}
	items := []runtime.Object{}
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		items = append(items, c.objects[name])
	}
	answer(w, http.StatusOK, map[string]any{
		"apiVersion": kind.APIVersion, "kind": kind.Kind + "List", "metadata": map[string]string{"resourceVersion": fmt.Sprint(c.version)}, "items": items,
	})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, c *resource) {
	events := make(chan metav1.WatchEvent, 1000)
	s.mu.Lock()
	if from := r.URL.Query().Get("resourceVersion"); from != "" && from != "0" && from != fmt.Sprint(c.version) {
		s.mu.Unlock()
		fail(w, http.StatusGone, metav1.StatusReasonExpired, "list again") // no history is kept
		return
	}
	c.watchers[events] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(c.watchers, events)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	for enc := json.NewEncoder(w); ; flush() {
		select {
		case e, open := <-events:
			if !open || enc.Encode(e) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func event(kind string, o runtime.Object) metav1.WatchEvent {
	e := metav1.WatchEvent{Type: kind}
	e.Object.Object = o
	return e
}

// put changes an object of a collection; nil removes it. Watchers are told if tell is true.
func (s *apiServer) put(at, name string, tell bool, next func(version int) runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[at]
	c.version++
	o, kind := next(c.version), "MODIFIED"
	before, ok := c.objects[name]
	switch {
	case o == nil:
		o, kind = before, "DELETED"
		delete(c.objects, name)
	case !ok:
		kind = "ADDED"
	}
	if kind != "DELETED" {
		c.objects[name] = o
	}
	for w := range c.watchers {
		if tell {
			w <- event(kind, o)
		}
	}
}

// set changes the labels of a namespace; nil removes it. Watchers are told if tell is true.
func (s *apiServer) set(name string, labels map[string]string, tell bool) {
	s.put(namespacesPath, name, tell, func(version int) runtime.Object {
		if labels == nil {
			return nil
		}
		return object(name, labels, version)
	})
}

// definitionType is the type of CustomResourceDefinitions.
var definitionType = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}

// define makes a CustomResourceDefinition that the server serves.
func (s *apiServer) define(crd *apiextensionsv1.CustomResourceDefinition) {
	s.put(definitionsPath, crd.Name, true, func(version int) runtime.Object {
		crd = crd.DeepCopy()
		crd.ResourceVersion = fmt.Sprint(version)
		return crd
	})
}

func (s *apiServer) undefine(name string) {
	s.put(definitionsPath, name, true, func(int) runtime.Object { return nil })
}

// hangUp ends all watches.
func (s *apiServer) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.collections {
		for w := range c.watchers {
			close(w)
			delete(c.watchers, w)
		}
	}
}

// watched is the number of watches of namespaces.
func (s *apiServer) watched() int { return s.watchedAt(namespacesPath) }

func (s *apiServer) watchedAt(at string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.collections[at].watchers)
}

func (s *apiServer) liveReads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// discovered is how often discovery was asked for.
func (s *apiServer) discovered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discoveries
}

func (s *apiServer) change(edit func(*apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
}

// breakDown makes the server answer everything with 404, or work again.
func (s *apiServer) breakDown(message string) { s.change(func(s *apiServer) { s.broken = message }) }

// review answers a SubjectAccessReview.
func (s *apiServer) review(w http.ResponseWriter, r *http.Request) {
	var sar authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&sar); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	decide := s.reviews
	s.mu.Unlock()
	status, code := decide(sar.Spec)
	if code != http.StatusCreated {
		fail(w, int32(code), metav1.StatusReasonForbidden, "no")
		return
	}
	sar.Status = status
	answer(w, code, sar)
}

// discover answers requests for discovery.
func (s *apiServer) discover(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	top := r.URL.Path == "/api" || r.URL.Path == "/apis"
	if r.URL.Path == "/apis" {
		s.discoveries++
	}
	switch {
	case top && !s.legacy && strings.Contains(r.Header.Get("Accept"), "apidiscovery.k8s.io"):
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		json.NewEncoder(w).Encode(s.aggregated(r.URL.Path == "/api")) //nolint:errcheck // the client may have gone
	case r.URL.Path == "/api":
		answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		answer(w, http.StatusOK, s.groupList())
	default:
		s.resourceList(w, r)
	}
}

// aggregated is discovery in one answer.
func (s *apiServer) aggregated(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}}
	for _, g := range s.groups {
		if (g.name == "") != core {
			continue
		}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for _, v := range g.versions {
			version := apidiscoveryv2.APIVersionDiscovery{Version: v.name, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			if v.stale {
				version.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
			}
			for _, r := range resourcesOf(g.name, v) {
				kind := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
				parent, sub, isSub := strings.Cut(r.Name, "/")
				if !isSub {
					scope := apidiscoveryv2.ScopeCluster
					if r.Namespaced {
						scope = apidiscoveryv2.ScopeNamespace
					}
					version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{Resource: parent, ResponseKind: kind, Scope: scope})
					continue
				}
				last := &version.Resources[len(version.Resources)-1]
				last.Subresources = append(last.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind})
			}
			item.Versions = append(item.Versions, version)
		}
		list.Items = append(list.Items, item)
	}
	return list
}

// resourcesOf are the resources of a version in the form of discovery.
func resourcesOf(group string, v groupVersion) []metav1.APIResource {
	var all []metav1.APIResource
	for _, text := range v.resources {
		fields := strings.Fields(text)
		r := metav1.APIResource{Name: fields[0], Kind: fields[1], Group: group, Version: v.name, Namespaced: fields[1] != "Node"}
		if len(fields) > 2 {
			r.Group, r.Version, _ = strings.Cut(fields[2], "/")
		}
		all = append(all, r)
	}
	return all
}

func (s *apiServer) groupList() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, g := range s.groups {
		item := metav1.APIGroup{Name: g.name}
		for _, v := range g.versions {
			item.Versions = append(item.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v.name, Version: v.name})
		}
		if g.name != "" {
			list.Groups = append(list.Groups, item)
		}
	}
	return list
}

func (s *apiServer) resourceList(w http.ResponseWriter, r *http.Request) {
	asked := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")
	for _, g := range s.groups {
		for _, v := range g.versions {
			if gv := strings.TrimPrefix(g.name+"/"+v.name, "/"); gv == asked && !v.stale {
				answer(w, http.StatusOK, metav1.APIResourceList{GroupVersion: gv, APIResources: resourcesOf(g.name, v)})
				return
			}
		}
	}
	fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, asked+" is not available")
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
