package gateway

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

func TestParsePath(t *testing.T) {
	pods := &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}
	for path, want := range map[string]target{
		"api/v1/pods":                                 {resource: pods},
		"api/v1/namespaces/shop/pods":                 {resource: pods, namespace: "shop"},
		"api/v1/namespaces/shop/pods/web-1":           {resource: pods, namespace: "shop", name: "web-1"},
		"api/v1/namespaces":                           {resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "namespaces"}},
		"api/v1/namespaces/shop":                      {resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "namespaces"}, name: "shop"},
		"apis/apps/v1/namespaces/shop/deployments/a":  {resource: &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, namespace: "shop", name: "a"},
		"apis/rbac.authorization.k8s.io/v1/x/a%3Ab":   {resource: &admissionv1.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "x"}, name: "a:b"},
		"api/v1/namespaces/namespaces/namespaces/pod": {resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "namespaces"}, namespace: "namespaces", name: "pod"},
	} {
		want.cluster = "prod-1"
		got, ok := parsePath("/v1/clusters/prod-1/staged/" + path)
		if diff := cmp.Diff(want, got, protocmp.Transform(), cmp.AllowUnexported(target{})); !ok || diff != "" {
			t.Errorf("%s: %t %s", path, ok, diff)
		}
		if !Serves("/v1/clusters/prod-1/staged/" + path) {
			t.Errorf("%s is not served", path)
		}
	}
	for _, path := range []string{
		"", "/", "/v1/clusters", "/v1/clusters/", "/v1/clusters/c", "/v1/clusters/c/staged", "/v1/clusters/c/staged/", "/v1/clusters/c/staged/api",
		"/v1/clusters/c/staged/api/v1", "/v1/clusters/c/staged/api/v1/", "/v1/clusters/c/staged/apis/apps/v1", "/v1/clusters/c/staged/api//pods",
		"/v1/clusters//staged/api/v1/pods", "/v1/clusters/c/staged/api/v1/namespaces/a/pods/b/status", "/v1/clusters/c/staged/api/v1/pods/b/status",
		"/v1/clusters/c/staged/api/v1/namespaces/a/pods/", "/v1/clusters/c/staged/api/v1/namespaces/../pods/b", "/v1/clusters/c/staged/api/v1/namespaces/a/pods/b%2Fc",
		"/v1/clusters/c/staged/api/v1/namespaces/a/pods/%2e%2e", "/v1/clusters/c/staged/api/v1/namespaces/a/pods/%zz", "/v1/clusters/c/staged/version",
		"/v1/clusters/c/Staged/api/v1/pods", "/v1/clusters/c/staged/api/v1/" + strings.Repeat("p", maxPathBytes),
	} {
		if got, ok := parsePath(path); ok {
			t.Errorf("%s is taken for %+v", path, got)
		}
	}
	for _, path := range []string{"/", "/v1/clusters/c/mutate", "/v1/clusters/c/stagedness", "/v1/config/objects", "/v1/clusters/staged"} {
		if Serves(path) {
			t.Errorf("%s is served", path)
		}
	}
}

func TestParseQuery(t *testing.T) {
	parse := func(text string) (query, error) {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		return parseQuery(values)
	}
	q, err := parse("watch=true&allowWatchBookmarks=1&includeUninitialized=true&resourceVersion=12&timeoutSeconds=7&limit=500&continue=x")
	if err != nil || !q.watch || !q.bookmarks || !q.uninitialized || q.initialEvents || q.resourceVersion != "12" || q.timeout != 7*time.Second {
		t.Errorf("%+v, %v", q, err)
	}
	if q, err := parse("resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=999999"); err != nil ||
		q.resourceVersion != "" || !q.initialEvents || q.noInitialEvents || q.timeout != maxWatch || q.uninitialized {
		t.Errorf("%+v, %v", q, err)
	}
	if q, err := parse("watch&sendInitialEvents=false"); err != nil || !q.noInitialEvents || !q.watch {
		t.Errorf("%+v, %v", q, err)
	}
	for _, bad := range []string{
		"watch=maybe", "resourceVersion=abc", "resourceVersion=-1", "timeoutSeconds=-1", "timeoutSeconds=x", "labelSelector=a%20b", "fieldSelector=status.phase%3DRunning",
		"fieldSelector=x", "includeUninitialized=2",
	} {
		if q, err := parse(bad); err == nil {
			t.Errorf("%s is taken for %+v", bad, q)
		}
	}
}

func TestSelectors(t *testing.T) {
	o := &initializerv1.StagedObject{
		Key: &initializerv1.StagedKey{Namespace: "shop", Name: "web"}, Pending: []string{"a.example.com"},
		Object: &admissionv1.Object{Raw: []byte(`{"metadata": {"labels": {"team": "checkout"}}}`)},
	}
	for text, want := range map[string]bool{
		"includeUninitialized=true": true, "": false,
		"includeUninitialized=true&labelSelector=team%3Dcheckout":                  true,
		"includeUninitialized=true&labelSelector=team%21%3Dcheckout":               false,
		"includeUninitialized=true&labelSelector=canary":                           false,
		"includeUninitialized=true&fieldSelector=metadata.name%3Dweb":              true,
		"includeUninitialized=true&fieldSelector=metadata.name%3Dother":            false,
		"includeUninitialized=true&fieldSelector=metadata.namespace%21%3Dshop":     false,
		"includeUninitialized=true&labelSelector=team+in+(a,checkout)&limit=1":     true,
		"includeUninitialized=false&labelSelector=team":                            false,
		"includeUninitialized=true&fieldSelector=metadata.namespace%3Dshop&pretty": true,
	} {
		values, _ := url.ParseQuery(text)
		q, err := parseQuery(values)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.selects(o); got != want {
			t.Errorf("%q selects it: %t", text, got)
		}
	}
}

// FuzzParsePath: a path that is taken names one object in one cluster, and writes back as the path it came from.
func FuzzParsePath(f *testing.F) {
	f.Add("/v1/clusters/prod-1/staged/api/v1/namespaces/shop/pods/web-1")
	f.Add("/v1/clusters/c/staged/apis/apps/v1/deployments")
	f.Add("/v1/clusters/c/staged/api/v1/namespaces/a%3Ab")
	f.Fuzz(func(t *testing.T, path string) {
		got, ok := parsePath(path)
		if !ok {
			return
		}
		if !Serves(path) && !strings.Contains(path, "%") {
			t.Fatal("it is taken, and not served")
		}
		for _, part := range []string{got.cluster, got.resource.GetResource(), got.resource.GetVersion()} {
			if part == "" || strings.Contains(part, "/") {
				t.Fatalf("%+v", got)
			}
		}
		again, ok := parsePath(got.path())
		if diff := cmp.Diff(got, again, protocmp.Transform(), cmp.AllowUnexported(target{})); !ok || diff != "" {
			t.Fatalf("%s: %t %s", got.path(), ok, diff)
		}
	})
}

// path is the path of a target.
func (t target) path() string {
	parts := []string{t.cluster, stagedSegment}
	if t.resource.GetGroup() == "" {
		parts = append(parts, "api", t.resource.GetVersion())
	} else {
		parts = append(parts, "apis", t.resource.GetGroup(), t.resource.GetVersion())
	}
	if t.namespace != "" {
		parts = append(parts, "namespaces", t.namespace)
	}
	parts = append(parts, t.resource.GetResource())
	if t.name != "" {
		parts = append(parts, t.name)
	}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return clustersPrefix + strings.Join(parts, "/")
}
