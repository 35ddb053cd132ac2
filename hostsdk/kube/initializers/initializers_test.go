package initializers_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
)

func staged(names ...string) *unstructured.Unstructured {
	pending := []any{}
	for _, name := range names {
		pending = append(pending, map[string]any{"name": name})
	}
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"initializers": map[string]any{"pending": pending},
		"annotations":  map[string]any{initializers.CreatorAnnotation: `{"username": "jane", "groups": ["dev"]}`},
	}}}
}

func TestPending(t *testing.T) {
	o := staged("a", "b")
	initializers.Add(o, "x", "y")
	if got, want := initializers.Pending(o), []string{"a", "x", "y", "b"}; !slices.Equal(got, want) {
		t.Errorf("Pending() = %v, want %v", got, want)
	}
	initializers.Done(o)
	if got, want := initializers.Pending(o), []string{"x", "y", "b"}; !slices.Equal(got, want) || initializers.First(o) != "x" {
		t.Errorf("Pending() = %v, want %v", got, want)
	}
	none := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
	initializers.Done(none)
	initializers.Add(none, "x")
	if initializers.First(none) != "" || len(none.Object["metadata"].(map[string]any)) > 0 {
		t.Errorf("%v", none)
	}
}

func TestRefuse(t *testing.T) {
	o := staged("a")
	if err := initializers.Refuse(o, metav1.Status{Message: "no", Code: http.StatusForbidden}); err != nil {
		t.Fatal(err)
	}
	result, _, err := unstructured.NestedMap(o.Object, "metadata", "initializers", "result")
	want := map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "code": int64(403), "metadata": map[string]any{}}
	if diff := cmp.Diff(want, result); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if first := initializers.First(o); first != "" {
		t.Errorf("%s has to act on an object that is refused", first)
	}
}

// TestRefuseWithAForeignCode: the client of the cluster gets an error of HTTP.
func TestRefuseWithAForeignCode(t *testing.T) {
	for code, want := range map[int32]int64{-1: 403, 0: 403, 200: 403, 399: 403, 400: 400, 599: 599, 600: 403} {
		o := staged("a")
		err := initializers.Refuse(o, metav1.Status{Code: code})
		if got, _, _ := unstructured.NestedInt64(o.Object, "metadata", "initializers", "result", "code"); err != nil || got != want {
			t.Errorf("code %d became %d, want %d: %v", code, got, want, err)
		}
	}
}

func TestCreator(t *testing.T) {
	if got := initializers.Creator(staged()); got.Username != "jane" || !slices.Equal(got.Groups, []string{"dev"}) {
		t.Errorf("%v", got)
	}
	if got := initializers.Creator(&unstructured.Unstructured{}); got.Username != "" {
		t.Errorf("%v", got)
	}
}

// TestIncludeUninitialized: the oldest client-go asks the paths of a dispatcher.
func TestIncludeUninitialized(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.RequestURI()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}`))
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL + initializers.Path("prod-1")}
	config.Wrap(initializers.IncludeUninitialized)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("shop")
	o, err := pods.Get(t.Context(), "web", metav1.GetOptions{ResourceVersion: "0"})
	if got, want := <-asked, "GET /v1/clusters/prod-1/staged/api/v1/namespaces/shop/pods/web?includeUninitialized=true&resourceVersion=0"; err != nil || got != want {
		t.Errorf("%v, %s, want %s", err, got, want)
	}
	_, err = pods.Update(t.Context(), o, metav1.UpdateOptions{})
	if got, want := <-asked, "PUT /v1/clusters/prod-1/staged/api/v1/namespaces/shop/pods/web"; err != nil || got != want {
		t.Errorf("%v, %s, want %s", err, got, want)
	}
}
