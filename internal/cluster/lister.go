package cluster

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// Accept headers of lists.
const (
	acceptObjects  = runtime.ContentTypeJSON
	acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// entry is the kept part of an object of a list. It is immutable.
type entry[T any] struct {
	metav1.TypeMeta

	name  string
	value T
	bytes int64
}

// DeepCopyObject implements [runtime.Object].
func (e *entry[T]) DeepCopyObject() runtime.Object { return e }

// entries is a list for a reflector.
type entries[T any] struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []entry[T]
}

// DeepCopyObject implements [runtime.Object].
func (e *entries[T]) DeepCopyObject() runtime.Object { return e }

// lister lists a resource item by item, over a transport that is ItemByItem. It keeps only the part of an item that a cache reads.
type lister[O any, P interface {
	*O
	metav1.Object
}, T any] struct {
	watcher

	client *rest.RESTClient
	path   string
	accept string
	into   *objectCache[P, T]
}

// watcher is the part of a typed client that begins watches.
type watcher interface {
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// newListClient makes the client of listers.
func newListClient(config *rest.Config, over http.RoundTripper) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion() // of errors
	return rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: over})
}

// List reads a whole list, without a limit, and books the kept parts to the cache.
func (l lister[O, P, T]) List(ctx context.Context, opts metav1.ListOptions) (*entries[T], error) {
	opts.Limit, opts.Continue = 0, ""
	booked, err := l.into.reserve()
	if err != nil {
		return nil, err
	}
	defer booked.Release()
	ctx = answers.Booked(ctx, booked)
	request := l.client.Get().AbsPath(l.path).SetHeader("Accept", l.accept)
	body, err := request.SpecificallyVersionedParams(&opts, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list := &entries[T]{}
	list.ListMeta, err = answers.Items(body, func(raw []byte) error {
		o := P(new(O))
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, o); err != nil {
			return err
		}
		e := l.into.entryOf(o)
		list.Items = append(list.Items, e)
		if err := booked.Extend(e.bytes); err != nil {
			return fmt.Errorf("keeping item %d: %w", len(list.Items), err)
		}
		return nil
	})
	return list, err
}
