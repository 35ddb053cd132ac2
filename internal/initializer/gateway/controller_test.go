package gateway_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
	"github.com/portcullis-mesh/portcullis/internal/initializer/gateway"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// initialize is a controller's work on an object that waits for it first.
func initialize(ctx context.Context, c dynamic.Interface, o *unstructured.Unstructured, annotation string) error {
	o = o.DeepCopy()
	annotations := o.GetAnnotations()
	annotations[annotation] = initializers.First(o)
	o.SetAnnotations(annotations)
	initializers.Done(o)
	_, err := c.Resource(pods).Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// TestAControllerOfClientGo: a controller with a dynamic informer initializes objects that another dispatcher holds, goes on when its
// dispatcher stops and the next one does not know its version, and sees each object come and go.
func TestAControllerOfClientGo(t *testing.T) {
	for _, watchList := range []bool{false, true} {
		t.Run(map[bool]string{false: "list and watch", true: "watch list"}[watchList], func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			m := newMesh(t)
			a, holder := m.dispatcher(), m.dispatcher()
			var current atomic.Pointer[dispatcher]
			current.Store(a)
			config := m.controller(a, "one")
			config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, current.Load().http)
			}
			client := m.dynamic(config)
			m.stage(holder, "early", first)
			m.stage(holder, "others", second)

			ctx, stop := context.WithCancel(t.Context())
			factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
			t.Cleanup(factory.Shutdown)
			t.Cleanup(stop)
			informer := factory.ForResource(pods).Informer()
			act := func(object any) {
				if o, ok := object.(*unstructured.Unstructured); ok && initializers.First(o) == first {
					if err := initialize(ctx, client, o, "initialized-by"); err != nil && ctx.Err() == nil {
						t.Errorf("%s: %v", o.GetName(), err)
					}
				}
			}
			if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: act, UpdateFunc: func(_, o any) { act(o) }}); err != nil {
				t.Fatal(err)
			}
			factory.Start(ctx.Done())
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("the cache is not filled")
			}
			initialized := func(name string) {
				t.Helper()
				eventually(t, name, func() bool {
					o, err := holder.store.Get(ctx, podKey(name))
					return err == nil && len(o.GetPending()) == 0 && strings.Contains(string(o.GetObject().GetRaw()), `"initialized-by":"first.example.com"`)
				})
				eventually(t, name+" is gone", func() bool { return len(informer.GetStore().ListKeys()) == 0 })
			}
			initialized("early")
			m.stage(holder, "later", first)
			initialized("later")

			// Its dispatcher stops. The next one was not there yet when the controller last heard of anything.
			m.stage(holder, "unseen", second)
			next := m.dispatcher()
			current.Store(next)
			a.stop()
			m.stage(holder, "late", first)
			initialized("late")

			o, err := holder.store.Get(ctx, podKey("early"))
			if err != nil {
				t.Fatal(err)
			}
			for _, of := range []string{"initializers", "uid", "resourceVersion", gateway.CreatorAnnotation} {
				if strings.Contains(string(o.GetObject().GetRaw()), `"`+of+`"`) {
					t.Errorf("%s of staging is in the object: %s", of, o.GetObject().GetRaw())
				}
			}
		})
	}
}

// pod is the Pod web, as a client reads it.
func pod(t *testing.T, c dynamic.ResourceInterface) *unstructured.Unstructured {
	t.Helper()
	o, err := c.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAClientOfClientGo(t *testing.T) {
	m := newMesh(t)
	a, b := m.dispatcher(), m.dispatcher()
	one := m.dynamic(m.controller(a, "one")).Resource(pods).Namespace("shop")
	two := m.dynamic(m.controller(b, "two")).Resource(pods).Namespace("shop")
	naive := m.dynamic(m.clientConfig(a, "one")).Resource(pods).Namespace("shop")
	viewer := m.dynamic(m.controller(a, "viewer")).Resource(pods).Namespace("shop")
	staged := m.stage(b, "web", first, second)
	ctx := t.Context()

	o := pod(t, one)
	if string(o.GetUID()) != staged.GetUid() || o.GetResourceVersion() != staged.GetResourceVersion() || initializers.First(o) != first ||
		initializers.Creator(o).Username != "jane" {
		t.Errorf("%v", o)
	}
	for name, c := range map[string]dynamic.ResourceInterface{"naive": naive, "of a viewer": viewer} {
		list, err := c.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != map[string]int{"naive": 0, "of a viewer": 1}[name] {
			t.Errorf("list %s: %v, %v", name, list, err)
		}
	}
	if _, whole := pod(t, viewer).Object["spec"]; whole {
		t.Error("a viewer sees the object")
	}
	if reserved := pod(t, naive); reserved.GetKind() != "Status" || reserved.Object["code"] != int64(http.StatusAccepted) ||
		reserved.GetResourceVersion() != staged.GetResourceVersion() {
		t.Errorf("%v", reserved)
	}

	stale := o.DeepCopy()
	if err := initialize(ctx, m.dynamic(m.controller(a, "one")), o, "by"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what it does not initialize any more: %v", err)
	}
	if _, err := two.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an older version: %v", err)
	}
	patched, err := two.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata": {"labels": {"b": "c"}}}`), metav1.PatchOptions{})
	if err != nil || patched.GetLabels()["b"] != "c" || patched.GetAnnotations()["by"] != first || initializers.First(patched) != second {
		t.Errorf("%v, %v", patched, err)
	}
	for name, patch := range map[string]string{
		"a test that fails":   `[{"op": "test", "path": "/metadata/labels/b", "value": "d"}]`,
		"another name":        `[{"op": "replace", "path": "/metadata/generateName", "value": "d"}, {"op": "remove", "path": "/kind"}]`,
		"an unknown name":     `[{"op": "add", "path": "/metadata/initializers/pending/-", "value": {"name": "unknown.example.com"}}]`,
		"a kind that is none": `[{"op": "replace", "path": "/kind", "value": "Job"}]`,
	} {
		if _, err := two.Patch(ctx, "web", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := two.Patch(ctx, "web", types.ApplyPatchType, []byte(`{}`), metav1.PatchOptions{FieldManager: "x"}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("an apply: %v", err)
	}
	if _, err := viewer.Patch(ctx, "web", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a patch of a viewer: %v", err)
	}
	if err := viewer.Delete(ctx, "web", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a deletion of a viewer: %v", err)
	}
	uid := types.UID("another")
	if err := two.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); !apierrors.IsConflict(err) {
		t.Errorf("a deletion of another uid: %v", err)
	}
	if err := two.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(o.GetUID())}}); err != nil {
		t.Errorf("a deletion: %v", err)
	}
	if err := two.Delete(ctx, "web", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a second deletion: %v", err)
	}
	if _, err := m.dynamic(m.clientConfig(a, "nobody")).Resource(pods).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a list of somebody without a grant: %v", err)
	}
	// A dispatcher that started later does not know the events since.
	if _, err := m.dynamic(m.controller(m.dispatcher(), "one")).Resource(pods).Watch(ctx, metav1.ListOptions{ResourceVersion: staged.GetResourceVersion()}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from long ago: %v", err)
	}
	if _, err := one.Create(ctx, o, metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a creation: %v", err)
	}
}

func TestARefusalReachesWhoHolds(t *testing.T) {
	m := newMesh(t)
	d := m.dispatcher()
	m.stage(d, "web", first, second)
	one := m.dynamic(m.controller(d, "one")).Resource(pods).Namespace("shop")
	o := pod(t, one)
	if err := initializers.Refuse(o, metav1.Status{Message: "no sidecar fits", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	held, err := d.store.Get(t.Context(), podKey("web"))
	if err != nil || held.GetResult().GetMessage() != "no sidecar fits" || held.GetResult().GetCode() != http.StatusForbidden || held.GetResult().GetStatus() != "Failure" {
		t.Errorf("%v, %v", held, err)
	}
	raw, _ := json.Marshal(pod(t, one))
	if !strings.Contains(string(raw), `"message":"no sidecar fits"`) {
		t.Errorf("it is not shown: %s", raw)
	}
}
