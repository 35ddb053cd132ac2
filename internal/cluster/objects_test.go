package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// configMaps is the kind and the resource of the tests.
var (
	configMaps    = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	configMapsAre = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// asking is a selectedObjects whose API server is a function of the request. It counts the requests.
type asking struct {
	*selectedObjects

	ledger *memory.Ledger

	mu    sync.Mutex
	asked []string
}

func newAsking(t *testing.T, answer func(r *http.Request) (code int, body string)) *asking {
	t.Helper()
	ledger, err := memory.New(memory.Options{Total: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{ledger: ledger}
	over := answers.Transport{ItemByItem: true, Memory: ledger, Cluster: "prod", RoundTripper: roundTripper(func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		a.asked = append(a.asked, r.URL.RequestURI())
		a.mu.Unlock()
		code, body := answer(r)
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: code, Header: typedJSON(), Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
	})}
	lists, err := newListClient(&rest.Config{Host: "http://cluster", QPS: -1}, over)
	if err != nil {
		t.Fatal(err)
	}
	a.selectedObjects = newSelectedObjects(&clients{lists: lists, memory: ledger, cluster: "prod"})
	return a
}

func typedJSON() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// listOf is a list of ConfigMaps with names, each with so many bytes of data.
func listOf(bytes int, names ...string) string {
	items := make([]string, 0, len(names))
	for _, name := range names {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, strings.Repeat("x", bytes)))
	}
	return `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[` + strings.Join(items, ",") + "]}"
}

func (a *asking) ask(ctx context.Context, namespace, name, selector string) (names []string, err error) {
	objects, err := a.get(ctx, configMaps, location{configMapsAre, namespace, name, selector})
	for _, o := range objects {
		names = append(names, o.GetAPIVersion()+" "+o.GetKind()+" "+o.GetName())
	}
	return names, err
}

// TestObjectsAreSelectedByTheAPIServer has the requests for the selections of policies, and the answers.
func TestObjectsAreSelectedByTheAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		namespace, object, selector string
		code                        int
		body                        string
		request                     string
		want                        []string
		err                         string // part of it
	}{
		"by name": {"shop", "limits", "", 200, listOf(1, "limits"),
			"/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dlimits", []string{"v1 ConfigMap limits"}, ""},
		"a missing object":        {"shop", "limits", "", 200, listOf(1), "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dlimits", nil, ""},
		"by a selector":           {"shop", "", "a=b", 200, listOf(1, "a", "b"), "/api/v1/namespaces/shop/configmaps?labelSelector=a%3Db", []string{"v1 ConfigMap a", "v1 ConfigMap b"}, ""},
		"everything":              {"shop", "", "", 200, listOf(1, "a"), "/api/v1/namespaces/shop/configmaps", []string{"v1 ConfigMap a"}, ""},
		"no namespace":            {"", "", "", 200, listOf(1, "a"), "/api/v1/configmaps", []string{"v1 ConfigMap a"}, ""},
		"another object":          {"shop", "limits", "", 200, listOf(1, "other"), "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dlimits", nil, "another object"},
		"as many as there may be": {"shop", "", "", 200, listOf(1, make([]string, MaxSelected)...), "/api/v1/namespaces/shop/configmaps", make([]string, MaxSelected), ""},
		"one more":                {"shop", "", "", 200, listOf(1, make([]string, MaxSelected+1)...), "/api/v1/namespaces/shop/configmaps", nil, "more than 1000"},
		"too large":               {"shop", "", "", 200, listOf(MaxSelectedBytes/4, make([]string, 4)...), "/api/v1/namespaces/shop/configmaps", nil, "more than 8388608 bytes of memory"},
		"forbidden": {"shop", "", "", 403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`,
			"/api/v1/namespaces/shop/configmaps", nil, "the mesh needs the permission to list configmaps"},
		"a missing resource": {"shop", "limits", "", 404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"no"}`,
			"/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dlimits", nil, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsking(t, func(*http.Request) (int, string) { return test.code, test.body })

			got, err := a.ask(t.Context(), test.namespace, test.object, test.selector)

			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if len(test.want) == MaxSelected { // they have no names
				got, test.want = got[:1], []string{"v1 ConfigMap "}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || len(a.asked) != 1 || a.asked[0] != test.request {
				t.Errorf("objects %s\nasked %q", diff, a.asked)
			}
			a.release()
			if used := a.ledger.InUse(); used != 0 {
				t.Errorf("%d bytes stay booked", used)
			}
		})
	}
}

// TestObjectsAreAskedForAgainWhenTheyAreOld has objects kept for a few seconds, and failures for one.
func TestObjectsAreAskedForAgainWhenTheyAreOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := 200
		a := newAsking(t, func(*http.Request) (int, string) { return code, listOf(1, "limits") })
		ask := func() *unstructured.Unstructured {
			objects, _ := a.get(t.Context(), configMaps, location{configMapsAre, "shop", "limits", ""})
			if len(objects) == 0 {
				return nil
			}
			return objects[0]
		}
		first := ask()
		time.Sleep(ObjectsFor - 1) //nolint:forbidigo // of the bubble
		if again := ask(); again != first || first == nil || len(a.asked) != 1 {
			t.Errorf("a young object is asked for again: %q", a.asked)
		}
		time.Sleep(time.Nanosecond) //nolint:forbidigo // of the bubble
		if again := ask(); again == first || again == nil || len(a.asked) != 2 {
			t.Errorf("an old object counts: %q", a.asked)
		}
		code = 400
		time.Sleep(ObjectsFor) //nolint:forbidigo // of the bubble
		for range 2 {
			if ask() != nil || len(a.asked) != 3 {
				t.Errorf("a failure is not kept: %q", a.asked)
			}
		}
		code = 200
		time.Sleep(failedFor) //nolint:forbidigo // of the bubble
		if ask() == nil || len(a.asked) != 4 {
			t.Errorf("a failure stays: %q", a.asked)
		}
	})
}

// TestOneReadServesAllThatWait has ten reviews ask at one time, and the first one give up.
func TestOneReadServesAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		a := newAsking(t, func(r *http.Request) (int, string) {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
			return 200, listOf(1, "limits")
		})
		impatient, giveUp := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := a.ask(impatient, "shop", "limits", "")
			gaveUp <- err
		}()
		synctest.Wait()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got, err := a.ask(t.Context(), "shop", "limits", ""); len(got) != 1 || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		synctest.Wait()
		giveUp()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that gave up: %v", err)
		}
		synctest.Wait()
		close(answer)
		wg.Wait()
		if len(a.asked) != 2 {
			t.Errorf("%d requests, want one of the one that gave up and one for the others", len(a.asked))
		}
	})
}

// TestTheObjectsThatAreKeptAreBounded has namespaces whose objects take all memory that one cluster may have.
func TestTheObjectsThatAreKeptAreBounded(t *testing.T) {
	citest.Sequential(t)
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t, func(*http.Request) (int, string) { return 200, listOf(3<<20, "limits") })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.sweep(ctx)
		for i := range 30 {
			if _, err := a.ask(t.Context(), fmt.Sprint("tenant-", i), "", ""); err != nil {
				t.Fatal(err)
			}
		}
		if used := a.ledger.InUse(); used > MaxObjectsBytes || used < MaxObjectsBytes/2 || a.bytes > MaxObjectsBytes {
			t.Errorf("%d bytes are booked, %d kept, want about %d", used, a.bytes, MaxObjectsBytes)
		}
		if _, err := a.ask(t.Context(), "tenant-29", "", ""); err != nil || len(a.asked) != 30 {
			t.Errorf("the last object was not kept: %v, %d requests", err, len(a.asked))
		}
		if _, err := a.ask(t.Context(), "tenant-0", "", ""); err != nil || len(a.asked) != 31 {
			t.Errorf("the first object was kept: %v, %d requests", err, len(a.asked))
		}
		time.Sleep(3 * ObjectsFor) //nolint:forbidigo // of the bubble
		synctest.Wait()
		if used := a.ledger.InUse(); used != 0 || len(a.reads) != 0 || a.bytes != 0 {
			t.Errorf("%d bytes stay booked, %d reads", used, len(a.reads))
		}
	})
}

// TestKindsOfParamsAreThoseThatTheClusterServes has clusters that are asked, or not.
func TestKindsOfParamsAreThoseThatTheClusterServes(t *testing.T) {
	s := newAPIServer(t)
	s.change(func(s *apiServer) {
		s.groups = []group{{"", []groupVersion{{name: "v1", resources: []string{"configmaps ConfigMap", "nodes Node", "nodes/status Other"}}}}}
		s.collections["/api/v1/namespaces/shop/configmaps"] = &resource{version: 1}
	})
	s.set("shop", map[string]string{"a": "b"}, true)
	r, whole := asked(t, s, withKubernetes())
	known(t, r)
	for kind, want := range map[string]string{"ConfigMap": "true", "Node": "false", "Other": "no match", "Missing": "no match"} {
		namespaced, err := whole.Namespaced(configMaps.GroupVersion().WithKind(kind))
		got := fmt.Sprint(namespaced)
		if meta.IsNoMatchError(err) {
			got = "no match"
		} else if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	if _, err := whole.Objects(t.Context(), match.Selection{Kind: configMaps, Namespace: "shop"}); err != nil {
		t.Error(err)
	}

	namespacesAlone := remoteDocument("namespaces", s.kubeconfig(t, filepath.Join(t.TempDir(), "kubeconfig")))
	listed := document("listed", &kinds.NamespaceSource{Static: map[string]map[string]string{"shop": nil}}, "kube-apiserver")
	r.Update([]*kinds.Cluster{namespacesAlone, listed})
	known(t, r)
	for name, want := range map[string]struct{ namespace, params string }{
		"namespaces": {"", "a kubeconfig for namespaces alone"},
		"listed":     {"give the Cluster document spec.kubeconfig or spec.bridge", "give the Cluster document spec.kubeconfig or spec.bridge"},
		"nobody":     {ErrUnknownCluster.Error(), ErrUnknownCluster.Error()},
	} {
		found, err := r.Cluster(name).Objects(t.Context(), match.Selection{Kind: match.NamespaceKind, Name: "shop"})
		if (err == nil) != (want.namespace == "") || err == nil && len(found) != 1 || err != nil && !strings.Contains(err.Error(), want.namespace) {
			t.Errorf("%s: %d namespaces, %v", name, len(found), err)
		}
		if _, err := r.Cluster(name).Namespaced(configMaps); err == nil || !strings.Contains(err.Error(), want.params) {
			t.Errorf("%s: %v, want %q", name, err, want.params)
		}
	}
}
