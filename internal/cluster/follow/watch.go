package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

const (
	// MaxWebhooksBytes bounds the webhooks of a configuration that are kept, as text, in bytes. It is twice kinds.MaxFollowedBytes, so that the
	// conditions that switch an original off make no difference.
	MaxWebhooksBytes = 2 << 20
	// MaxKept bounds the configurations of one kind that are kept for a cluster.
	MaxKept = 1000
	// MaxKeptBytes bounds the memory of the webhooks of one kind that are kept for a cluster, in bytes.
	MaxKeptBytes = 16 << 20
	// copies is how often kept webhooks are in memory: a round copies them.
	copies = 2
	// itemBytes, labelBytes and conditionBytes are the memory of an object, of a label, and of a matchCondition, beside their texts.
	itemBytes, labelBytes, conditionBytes = 1 << 10, 64, 512
)

// resourceOf is the resource of a kind that is followed.
func resourceOf(kind string) schema.GroupVersionResource {
	resource := "validatingwebhookconfigurations"
	if kind == mutatingKind {
		resource = "mutatingwebhookconfigurations"
	}
	return admissionregistrationv1.SchemeGroupVersion.WithResource(resource)
}

// configuration is a webhook configuration as it is read. Its webhooks stay text, and members that no decision needs are left out, so that it takes
// no more memory than its text.
type configuration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Webhooks json.RawMessage `json:"webhooks"`
}

// DeepCopyObject implements [runtime.Object].
func (c *configuration) DeepCopyObject() runtime.Object {
	out := *c
	c.DeepCopyInto(&out.ObjectMeta)
	out.Webhooks = bytes.Clone(c.Webhooks)
	return &out
}

// observed is a webhook configuration of a cluster with all that decisions need. It is not changed.
type observed struct {
	*unstructured.Unstructured

	unkept string // why its webhooks were not kept, but for the conditions that switch it off; empty if they were
}

// item is an object of a list or a watch.
type item struct {
	metav1.TypeMeta

	name string
	// original is nil if no decision needs more than the next fields: the object is on, not selected, and not of the mesh.
	original   *observed
	uid        types.UID
	version    string
	generation int64

	webhooks int64 // memory of the webhooks
	bytes    int64 // memory of all
}

// DeepCopyObject implements [runtime.Object].
func (i *item) DeepCopyObject() runtime.Object { return i }

// room is the rest of the bounds of one kind.
type room struct {
	objects int
	bytes   int64 // of webhooks
}

func newRoom() room { return room{MaxKept, MaxKeptBytes} }

// take counts an item, and give forgets it. It may be nil.
func (r *room) take(i *item) { r.count(i, 1) }
func (r *room) give(i *item) { r.count(i, -1) }

func (r *room) count(i *item, times int) {
	if i != nil && i.original != nil {
		r.objects -= times
		r.bytes -= int64(times) * i.webhooks
	}
}

// items is a list for a reflector.
type items struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []item
}

// DeepCopyObject implements [runtime.Object].
func (i *items) DeepCopyObject() runtime.Object { return i }

// reference names an object of the cluster.
type reference struct{ kind, name string }

// source is how the objects of a cluster are read.
type source struct {
	config *rest.Config
	client *http.Client
	// lists is a client for lists that are read item by item.
	lists rest.Interface
	// reserve makes an empty reservation of the memory of the cluster.
	reserve func() (*memory.Reservation, error)
}

// seen is the webhook configurations of a cluster, as a watch has them. Its methods may be called concurrently; watch is called once.
type seen struct {
	client  dynamic.Interface
	kinds   []*kindOf
	changed chan struct{} // holds one token after a change

	mu      sync.Mutex
	version int // counts changes that decisions depend on
}

func newSeen(of source, cluster string, selector labels.Selector, changed chan struct{}) (*seen, error) {
	c, err := dynamic.NewForConfigAndClient(of.config, of.client)
	if err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	watches, err := newWatchClient(of.config, of.client)
	if err != nil {
		return nil, fmt.Errorf("follow: %w", err)
	}
	s := &seen{client: c, changed: changed}
	for _, kind := range []string{mutatingKind, validatingKind} {
		s.kinds = append(s.kinds, &kindOf{
			seen: s, kind: kind, cluster: cluster, selector: selector, lists: of.lists, watches: watches, reserve: of.reserve, end: func() {},
		})
	}
	return s, nil
}

// newWatchClient makes a client that decodes each kind as a configuration.
func newWatchClient(of *rest.Config, over *http.Client) (*rest.RESTClient, error) {
	version := admissionregistrationv1.SchemeGroupVersion
	scheme := runtime.NewScheme()
	for _, kind := range []string{mutatingKind, validatingKind} {
		scheme.AddKnownTypeWithName(version.WithKind(kind), &configuration{})
	}
	metav1.AddToGroupVersion(scheme, version)
	of = rest.CopyConfig(of)
	of.APIPath, of.GroupVersion = "/apis", &version
	of.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientForConfigAndClient(of, over)
}

// watch keeps it current until ctx ends. A watch that breaks begins again with a back-off.
func (s *seen) watch(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	for _, k := range s.kinds {
		both.Go(func() { k.run(ctx) })
	}
}

// listed reports whether both kinds are known. The error says why one is not, or not any more.
func (s *seen) listed() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := true
	for _, k := range s.kinds {
		if k.err != nil {
			return false, k.err
		}
		all = all && k.items != nil
	}
	return all, nil
}

// all are the objects that each round looks at, and others by their names.
func (s *seen) all(others []reference) []*observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*observed
	for _, k := range s.kinds {
		for _, i := range k.items {
			if i.original != nil {
				all = append(all, i.original)
			}
		}
		for _, o := range others {
			if i := k.items[o.name]; o.kind == k.kind && i != nil && i.original == nil {
				all = append(all, i.bare(k.kind))
			}
		}
	}
	return all
}

// changes counts the changes so far.
func (s *seen) changes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// edit makes a change, which returns whether a decision depends on it.
func (s *seen) edit(change func() bool) {
	s.mu.Lock()
	matters := change()
	if matters {
		s.version++
	}
	s.mu.Unlock()
	if !matters {
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// bare is the object of an item without an original.
func (i *item) bare(kind string) *observed {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
	o.SetName(i.name)
	o.SetUID(i.uid)
	o.SetResourceVersion(i.version)
	o.SetGeneration(i.generation)
	return &observed{Unstructured: o}
}

// kindOf is the objects of one kind, for a reflector, which is the only writer.
type kindOf struct {
	*seen

	kind, cluster string
	selector      labels.Selector
	lists         rest.Interface
	watches       *rest.RESTClient
	reserve       func() (*memory.Reservation, error)

	// Of the writer.
	end    func()              // ends the reflector
	booked *memory.Reservation // for all items
	left   room

	// Guarded by mu.
	items map[string]*item // by name; nil before the first list
	err   error            // why they are not current; nil if they are
}

var _ cache.ReflectorStore = (*kindOf)(nil)

// run keeps the objects current until ctx ends. It lists them again after an event that could not be kept: an object that is missing here would be
// taken to be gone.
func (k *kindOf) run(ctx context.Context) {
	defer func() { k.booked.Release() }()
	for ctx.Err() == nil {
		life, end := context.WithCancel(ctx)
		k.end = end
		lw := &cache.ListWatch{ListWithContextFunc: k.list, WatchFuncWithContext: k.begin}
		cache.NewReflectorWithOptions(withoutStreamedList{lw}, &configuration{}, k, cache.ReflectorOptions{Name: "follow " + k.kind}).RunWithContext(life)
		end()
		clock.Sleep(ctx, failurePause)
	}
}

// withoutStreamedList keeps the reflector from streaming the first list, which is read item by item.
type withoutStreamedList struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is the name by which k8s.io/client-go/util/watchlist asks.
func (withoutStreamedList) IsWatchListSemanticsUnSupported() bool { return true }

func (k *kindOf) begin(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := k.watches.Get().Resource(resourceOf(k.kind).Resource).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	return answers.Shortened(w), nil
}

// list reads a whole list item by item, and books the kept parts.
func (k *kindOf) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	o.Limit, o.Continue = 0, ""
	list, err := k.read(ctx, &o)
	if err != nil && ctx.Err() == nil {
		k.failed(err)
	}
	return list, err
}

func (k *kindOf) read(ctx context.Context, o *metav1.ListOptions) (*items, error) {
	booked, err := k.reserve()
	if err != nil {
		return nil, err
	}
	defer booked.Release()
	resource := resourceOf(k.kind)
	request := k.lists.Get().AbsPath("/apis", resource.Group, resource.Version, resource.Resource).SetHeader("Accept", runtime.ContentTypeJSON)
	body, err := request.SpecificallyVersionedParams(o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(answers.Booked(ctx, booked))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list, left := &items{}, newRoom()
	list.ListMeta, err = answers.Items(body, func(raw []byte) error {
		c := &configuration{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, c); err != nil {
			return err
		}
		i, err := k.kept(c, left, booked)
		if err != nil {
			return fmt.Errorf("keeping item %d: %w", len(list.Items), err)
		}
		left.take(i)
		list.Items = append(list.Items, *i)
		return nil
	})
	return list, err
}

// kept books and returns the part of an object that decisions need. Selected objects past MaxKept are left out: far fewer
// are followed.
func (k *kindOf) kept(c *configuration, left room, booked *memory.Reservation) (*item, error) {
	i := &item{name: c.Name, uid: c.UID, version: c.ResourceVersion, generation: c.Generation}
	i.bytes = itemBytes + int64(len(i.name)+len(i.uid)+len(i.version))
	of, ours := registration.MadeFor(c)
	_, marked := c.Annotations[touch.Annotation]
	// API servers, which are written in Go, escape nothing in the name of the condition.
	mayBeOff := bytes.Contains(c.Webhooks, []byte(config.FollowedCondition))
	if !mayBeOff && !marked && (!ours || of != k.cluster) && (left.objects <= 0 || !k.selector.Matches(labels.Set(c.Labels))) {
		return i, booked.Extend(i.bytes)
	}
	// A patch depends on whether there are annotations, and on the mesh's own alone.
	maps.DeleteFunc(c.Annotations, func(name, _ string) bool { return !strings.HasPrefix(name, "portcullis.dev/") })
	for _, texts := range []map[string]string{c.Labels, c.Annotations} {
		for name, value := range texts {
			i.bytes += copies * (int64(len(name)+len(value)) + labelBytes)
		}
	}
	i.original = i.bare(k.kind)
	i.original.SetLabels(c.Labels)
	i.original.SetAnnotations(c.Annotations)
	extent := conversion.ExtentOf(c.Webhooks).Untyped()
	// As if each webhook had a condition that switches it off, so that an original takes no more when it is off.
	on := bytes.Count(c.Webhooks, []byte(`"clientConfig"`)) - bytes.Count(c.Webhooks, []byte(config.FollowedCondition))
	i.webhooks = extent + conditionBytes*int64(max(0, on))
	switch {
	case len(c.Webhooks) > MaxWebhooksBytes:
		i.original.unkept = fmt.Sprintf("the copies of a cluster have at most %d bytes together: select fewer objects", kinds.MaxFollowedBytes)
	case i.webhooks > left.bytes:
		i.original.unkept = fmt.Sprintf("the selected objects of a kind take more than %d bytes of memory: select fewer", MaxKeptBytes)
	}
	if i.original.unkept != "" {
		i.webhooks = 0
		if !mayBeOff {
			return i, booked.Extend(i.bytes)
		}
	}
	return i, k.keepWebhooks(i, c.Webhooks, extent, booked)
}

// keepWebhooks decodes the webhooks of an object: the conditions that switch it off alone, if the object is not kept. extent is their memory.
func (k *kindOf) keepWebhooks(i *item, text []byte, extent int64, booked *memory.Reservation) error {
	var webhooks any
	during := copies*extent + i.bytes
	if err := booked.Extend(during); err != nil {
		return err
	}
	if len(text) > 0 {
		if err := utiljson.Unmarshal(text, &webhooks); err != nil {
			return err
		}
	}
	if i.original.unkept != "" {
		alone, places := conditionsAlone(webhooks)
		webhooks = alone
		i.bytes += copies * conditionBytes * places
	} else {
		i.bytes += copies * extent
	}
	if webhooks != nil {
		i.original.Object["webhooks"] = webhooks
	}
	booked.Shrink(during - i.bytes)
	return booked.Extend(i.bytes - during)
}

// conditionsAlone is a list of webhooks with their conditions that switch an original off alone, at the same places, and the number of places.
func conditionsAlone(webhooks any) (alone []any, places int64) {
	list, _ := webhooks.([]any)
	for _, w := range list {
		webhook, _ := w.(map[string]any)
		conditions, _ := webhook["matchConditions"].([]any)
		kept := make([]any, len(conditions))
		for i, c := range conditions {
			if kept[i] = map[string]any{}; isOurs(c) {
				kept[i] = map[string]any{"name": config.FollowedCondition, "expression": config.FollowedExpression}
			}
		}
		alone = append(alone, map[string]any{"matchConditions": kept})
		places += 1 + int64(len(kept))
	}
	return alone, places
}

// failed notes that the objects are not current.
func (k *kindOf) failed(err error) {
	k.edit(func() bool { k.err = fmt.Errorf("the %ss of the cluster: %w", k.kind, err); return true })
}

// lost notes that an event could not be kept, and has the objects listed again.
func (k *kindOf) lost(err error) error {
	if err != nil {
		k.failed(err)
		k.end()
	}
	return err
}

// Add implements cache.ReflectorStore.
func (k *kindOf) Add(obj any) error { return k.Update(obj) }

// Update implements cache.ReflectorStore.
func (k *kindOf) Update(obj any) error { return k.lost(k.update(obj)) }

func (k *kindOf) update(obj any) error {
	c, ok := obj.(*configuration)
	if !ok {
		return fmt.Errorf("the watch told of a %T", obj)
	}
	before := k.items[c.Name]
	if before == nil {
		if before = (&item{}); len(k.items) >= answers.MaxItems {
			return fmt.Errorf("more than %d objects", answers.MaxItems)
		}
	}
	k.left.give(before)
	i, err := k.kept(c, k.left, k.booked)
	if err != nil {
		return err
	}
	k.left.take(i)
	k.booked.Shrink(before.bytes)
	k.edit(func() bool {
		k.items[i.name] = i
		return i.original != nil || before.original != nil
	})
	return nil
}

// Delete implements cache.ReflectorStore.
func (k *kindOf) Delete(obj any) error {
	c, ok := obj.(*configuration)
	if !ok {
		return k.lost(fmt.Errorf("the watch told of a %T", obj))
	}
	if before := k.items[c.Name]; before != nil {
		k.booked.Shrink(before.bytes)
		k.left.give(before)
		k.edit(func() bool { delete(k.items, c.Name); return before.original != nil })
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (k *kindOf) Replace(objs []any, _ string) error { return k.lost(k.replace(objs)) }

func (k *kindOf) replace(objs []any) (err error) {
	all, bytes, left := make(map[string]*item, len(objs)), int64(0), newRoom()
	for _, obj := range objs {
		i, ok := obj.(*item)
		if !ok {
			return fmt.Errorf("the list has a %T", obj)
		}
		if before := all[i.name]; before != nil {
			return errors.New("the list has two objects of one name")
		}
		all[i.name] = i
		bytes += i.bytes
		left.take(i)
	}
	if k.booked == nil {
		if k.booked, err = k.reserve(); err != nil {
			return err
		}
	}
	more := bytes - k.booked.Bytes()
	k.booked.Shrink(-more)
	if err := k.booked.Extend(more); err != nil {
		return err
	}
	k.left = left
	k.edit(func() bool { k.items, k.err = all, nil; return true })
	return nil
}

// Resync implements cache.ReflectorStore.
func (*kindOf) Resync() error { return nil }
