package cluster

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// Bounds of the objects that policies read in one cluster: params, and the namespaces of requests.
const (
	// ObjectsFor is how long such objects count after they were asked for.
	ObjectsFor = 3 * time.Second
	// failedFor is how long the cluster is not asked again for objects that it did not give.
	failedFor = time.Second
	// MaxObjectReads bounds the reads in flight to one cluster. Others wait.
	MaxObjectReads = 32
	// MaxSelected bounds the objects of one selection.
	MaxSelected = 1000
	// MaxSelectedBytes bounds the memory of one selection, in bytes. An object of etcd has at most 1.5 MiB.
	MaxSelectedBytes = 8 << 20
	// MaxObjectsBytes bounds the memory of all selections that are kept, in bytes, and maxSelections their number. The oldest ones go first.
	MaxObjectsBytes = 32 << 20
	maxSelections   = 10_000
)

// selectedObjects has the objects that policies have selected in a cluster within [ObjectsFor]. Reviews that need the same objects at one time wait for
// one read.
type selectedObjects struct {
	lists   *rest.RESTClient // over a transport that is ItemByItem
	reserve func() (*memory.Reservation, error)
	slots   chan struct{} // holds a token for each read in flight

	mu     sync.Mutex
	reads  map[location]*reading
	kept   list.List // of *reading that have ended, the oldest first
	bytes  int64     // of kept
	closed bool      // nothing is kept any more
}

// location is where objects are in an API server.
type location struct {
	resource                  schema.GroupVersionResource
	namespace, name, selector string
}

// reading is one read of a selection.
type reading struct {
	location

	kind  schema.GroupVersionKind
	begun time.Time
	done  chan struct{} // closed at the end; all that follows is written before

	objects   []*unstructured.Unstructured
	err       error
	abandoned bool // the time of the reader was over: others read again
	bytes     int64
	booked    *memory.Reservation // for bytes
	element   *list.Element       // of kept
}

func newSelectedObjects(c *clients) *selectedObjects {
	return &selectedObjects{lists: c.lists, reserve: c.reserve, slots: make(chan struct{}, MaxObjectReads), reads: map[location]*reading{}}
}

// get returns the objects of a kind at a location. ctx bounds the read.
func (o *selectedObjects) get(ctx context.Context, kind schema.GroupVersionKind, at location) ([]*unstructured.Unstructured, error) {
	for {
		r, mine := o.reading(kind, at)
		if mine {
			r.booked, r.err = o.read(ctx, r)
			o.end(r, ctx.Err() != nil)
			return r.objects, r.err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for them: %w", context.Cause(ctx))
		}
		if !r.abandoned {
			return r.objects, r.err
		}
	}
}

// reading returns the read of a location that goes on or still counts, or a new one, which is the caller's.
func (o *selectedObjects) reading(kind schema.GroupVersionKind, at location) (r *reading, mine bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r = o.reads[at]; r != nil {
		if r.element == nil || r.counts() {
			return r, false
		}
		o.drop(r)
	}
	r = &reading{location: at, kind: kind, begun: time.Now(), done: make(chan struct{})}
	o.reads[at] = r
	return r, true
}

// counts reports whether a read that has ended is recent.
func (r *reading) counts() bool {
	if r.err != nil {
		return time.Since(r.begun) < failedFor
	}
	return time.Since(r.begun) < ObjectsFor
}

// end keeps the result of a read for others.
func (o *selectedObjects) end(r *reading, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer close(r.done)
	if r.abandoned = r.err != nil && over; r.abandoned || o.closed {
		delete(o.reads, r.location)
		r.booked.Release()
		return
	}
	r.element = o.kept.PushBack(r)
	o.bytes += r.bytes
	o.evict()
}

// evict drops the oldest reads: reads that no longer count, and more while there are too many. mu is held.
func (o *selectedObjects) evict() {
	for e := o.kept.Front(); e != nil; e = o.kept.Front() {
		r, _ := e.Value.(*reading)
		if !o.closed && r.counts() && o.bytes <= MaxObjectsBytes && o.kept.Len() <= maxSelections {
			return
		}
		o.drop(r)
	}
}

// drop forgets a read that is kept. mu is held.
func (o *selectedObjects) drop(r *reading) {
	o.kept.Remove(r.element)
	o.bytes -= r.bytes
	delete(o.reads, r.location)
	r.booked.Release()
}

// release gives all memory back.
func (o *selectedObjects) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.evict()
}

// sweep forgets objects when their time is over, until ctx ends.
func (o *selectedObjects) sweep(ctx context.Context) {
	for clock.Sleep(ctx, ObjectsFor) {
		o.mu.Lock()
		o.evict()
		o.mu.Unlock()
	}
}

// read lists the objects. The result books the memory of them that is kept.
func (o *selectedObjects) read(ctx context.Context, r *reading) (*memory.Reservation, error) {
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to read them: %w", context.Cause(ctx))
	}
	defer func() { <-o.slots }()
	booked, err := o.reserve()
	if err != nil {
		return nil, err
	}
	if err := o.list(answers.Booked(ctx, booked), r, booked); err != nil {
		booked.Release()
		r.objects, r.bytes = nil, itemBytes
		return nil, err
	}
	booked.Shrink(booked.Bytes() - r.bytes)
	return booked, nil
}

// list reads the objects of a location, item by item. One object is listed as well: that needs no other permission, and a missing one is not confused
// with a missing resource.
func (o *selectedObjects) list(ctx context.Context, r *reading, booked *memory.Reservation) error {
	opts := metav1.ListOptions{LabelSelector: r.selector}
	if r.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", r.name).String()
	}
	base := "/apis/" + r.resource.GroupVersion().String()
	if r.resource.Group == "" {
		base = "/api/" + r.resource.Version
	}
	request := o.lists.Get().AbsPath(base).Resource(r.resource.Resource).SetHeader("Accept", runtime.ContentTypeJSON)
	if r.namespace != "" {
		request = request.Namespace(r.namespace)
	}
	body, err := request.SpecificallyVersionedParams(&opts, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: the mesh needs the permission to list %s", err, r.resource.GroupResource())
	}
	if err != nil {
		return err
	}
	defer body.Close()
	r.bytes = itemBytes
	_, err = answers.Items(body, func(raw []byte) error {
		bytes := conversion.ExtentOf(raw).Untyped() + itemBytes
		switch r.bytes += bytes; {
		case len(r.objects) == MaxSelected:
			return fmt.Errorf("there are more than %d: select fewer", MaxSelected)
		case r.bytes > MaxSelectedBytes:
			return fmt.Errorf("they take more than %d bytes of memory: select fewer", MaxSelectedBytes)
		}
		if err := booked.Extend(bytes); err != nil {
			return err
		}
		object := map[string]any{}
		if err := utiljson.Unmarshal(raw, &object); err != nil {
			return err
		}
		u := &unstructured.Unstructured{Object: object}
		if u.SetGroupVersionKind(r.kind); r.name != "" && u.GetName() != r.name {
			return errors.New("the API server answered with another object")
		}
		r.objects = append(r.objects, u)
		return nil
	})
	return err
}

// kindResource is the resource of a kind.
type kindResource struct {
	schema.GroupVersionResource

	namespaced bool
}

// resourceOf returns the resource of a kind. For a kind that the cluster is not known to serve, it starts a new discovery.
func (c *clusterConn) resourceOf(kind schema.GroupVersionKind) (kindResource, error) {
	if kind == match.NamespaceKind { // also without discovery
		return kindResource{GroupVersionResource: kind.GroupVersion().WithResource("namespaces")}, nil
	}
	if err := c.check(PartResources); err != nil {
		return kindResource{}, err
	}
	served := c.discovery.current.Load()
	if found, ok := served.kinds[kind]; ok {
		return found, nil
	}
	c.discovery.poke()
	if err := served.failed[kind.Group]; err != nil {
		return kindResource{}, fmt.Errorf("the cluster's discovery of %s failed: %w", kind.Group, err)
	}
	return kindResource{}, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
}

// resourceOf returns the resource of a kind, and the connection that knows it.
func (r *remote) resourceOf(kind schema.GroupVersionKind) (kindResource, *clusterConn, error) {
	if !r.whole && kind != match.NamespaceKind {
		return kindResource{}, nil, errors.New("the Cluster document has a kubeconfig for namespaces alone: give it spec.kubeconfig")
	}
	c, err := r.known()
	if err != nil {
		return kindResource{}, nil, err
	}
	found, err := c.resourceOf(kind)
	return found, c, err
}

// objects returns the selected objects.
func (r *remote) objects(ctx context.Context, s match.Selection) ([]*unstructured.Unstructured, error) {
	found, c, err := r.resourceOf(s.Kind)
	if err != nil {
		return nil, err
	}
	return c.objects.get(ctx, s.Kind, location{found.GroupVersionResource, s.Namespace, s.Name, s.Selector})
}
