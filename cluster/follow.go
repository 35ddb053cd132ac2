package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// collection is a resource of a cluster that can be listed and watched: the part of a typed client that is used.
type collection[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// follow keeps a mirror until ctx ends. The reflector lists again with a back-off when a watch breaks; example is an object
// of the resource, and name tells it in logs.
func follow[L runtime.Object, T any](ctx context.Context, name string, of collection[L], example runtime.Object, m *mirror[T]) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := of.List(ctx, opts)
			m.pulse.fails(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := of.Watch(ctx, opts)
			m.pulse.fails(err)
			return w, err
		},
	}
	cache.NewReflectorWithOptions(lw, example, m, cache.ReflectorOptions{Name: name}).RunWithContext(ctx)
}
