package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// resourceOf is the resource of a kind that is followed.
func resourceOf(kind string) schema.GroupVersionResource {
	resource := "validatingwebhookconfigurations"
	if kind == mutatingKind {
		resource = "mutatingwebhookconfigurations"
	}
	return admissionregistrationv1.SchemeGroupVersion.WithResource(resource)
}

// seen is the webhook configurations of a cluster, followed or not, as a watch has them. Reflectors write it. Its methods may be
// called concurrently.
type seen struct {
	client  dynamic.Interface
	changed chan struct{} // holds one token after a change

	mu      sync.Mutex
	version int                                              // counts changes
	byKind  map[string]map[string]*unstructured.Unstructured // by name; no map before the first list
}

func newSeen(config *rest.Config, client *http.Client, changed chan struct{}) (*seen, error) {
	c, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	return &seen{client: c, changed: changed, byKind: map[string]map[string]*unstructured.Unstructured{}}, nil
}

// watch keeps it current until ctx ends. A watch that breaks begins again with a back-off.
func (s *seen) watch(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	for _, kind := range []string{mutatingKind, validatingKind} {
		resource := s.client.Resource(resourceOf(kind))
		example := &unstructured.Unstructured{}
		example.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.Limit, o.Continue = 0, ""
				list, err := resource.List(ctx, o)
				if err == nil && list.GetContinue() != "" { // it could go on without end
					err = errors.New("the API server answered with a part of a list, although no limit was asked for")
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				w, err := resource.Watch(ctx, o)
				if err != nil {
					return nil, err
				}
				return answers.Shortened(w), nil
			},
		}
		both.Go(func() {
			cache.NewReflectorWithOptions(lw, example, &kindOf{s, kind}, cache.ReflectorOptions{Name: "follow " + kind}).RunWithContext(ctx)
		})
	}
}

// all are the objects of both kinds; false before each was listed. The objects must not be changed.
func (s *seen) all() ([]*unstructured.Unstructured, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*unstructured.Unstructured
	for _, kind := range []string{mutatingKind, validatingKind} {
		if s.byKind[kind] == nil {
			return nil, false
		}
		for _, o := range s.byKind[kind] {
			all = append(all, o)
		}
	}
	return all, true
}

// changes counts the changes so far.
func (s *seen) changes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *seen) edit(change func()) error {
	s.mu.Lock()
	change()
	s.version++
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// kindOf is the objects of one kind, for a reflector.
type kindOf struct {
	*seen

	kind string
}

var _ cache.ReflectorStore = (*kindOf)(nil)

func (k *kindOf) put(to map[string]*unstructured.Unstructured, obj any) {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		o.SetManagedFields(nil) // most of the bytes
		to[o.GetName()] = o
	}
}

// Add implements cache.ReflectorStore.
func (k *kindOf) Add(obj any) error { return k.Update(obj) }

// Update implements cache.ReflectorStore.
func (k *kindOf) Update(obj any) error { return k.edit(func() { k.put(k.byKind[k.kind], obj) }) }

// Delete implements cache.ReflectorStore.
func (k *kindOf) Delete(obj any) error {
	return k.edit(func() {
		if o, ok := obj.(*unstructured.Unstructured); ok {
			delete(k.byKind[k.kind], o.GetName())
		}
	})
}

// Replace implements cache.ReflectorStore.
func (k *kindOf) Replace(objs []any, _ string) error {
	return k.edit(func() {
		all := make(map[string]*unstructured.Unstructured, len(objs))
		for _, o := range objs {
			k.put(all, o)
		}
		k.byKind[k.kind] = all
	})
}

// Resync implements cache.ReflectorStore.
func (*kindOf) Resync() error { return nil }
