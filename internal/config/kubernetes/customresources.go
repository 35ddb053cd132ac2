package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// CustomResourcesName is the name of the source.
const CustomResourcesName = "customresources"

// definitions are the CustomResourceDefinitions of a cluster.
func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// CustomResourcesOptions say where the custom resources are. All fields are required.
type CustomResourcesOptions struct {
	// Client asks the API server, and Lists reads lists of it: see [Clients]. They may list and watch the resources of portcullis.dev:
	// deploy/custom-resources-rbac.yaml.
	Client dynamic.Interface
	Lists  rest.Interface
	// Metadata asks it too. It may get the CustomResourceDefinitions of these resources.
	Metadata metadata.Interface
	// Decoder reads the objects.
	Decoder *config.Decoder
}

// CustomResources is a config.Source: all custom resources of portcullis.dev/v1. Its methods may be called concurrently.
type CustomResources struct {
	o      CustomResourcesOptions
	bounds bounds

	mu      sync.Mutex
	decoded config.DecodeCache[types.UID, string]

	last atomic.Pointer[lastListing] // nil before the first
}

// lastListing holds the resources of the latest listing.
type lastListing struct {
	revision  string
	resources []resource
	sizes     map[string]size // of those that keep their place, by file
	checked   time.Time       // the definitions, last
}

// DefinitionsInterval is how often the definitions are looked at while listings are equal.
const DefinitionsInterval = 10 * time.Second

var _ config.Source = (*CustomResources)(nil)

// NewCustomResources returns a source. It asks nothing yet.
func NewCustomResources(o CustomResourcesOptions) (*CustomResources, error) {
	if o.Client == nil || o.Lists == nil || o.Metadata == nil || o.Decoder == nil {
		return nil, errors.New("config/kubernetes: clients and a decoder are required")
	}
	return &CustomResources{o: o, bounds: defaultBounds()}, nil
}

// Name implements config.Source.
func (s *CustomResources) Name() string { return CustomResourcesName }

// List implements config.Source. It reads from etcd of the cluster, not from a cache, and all kinds as of one moment. A kind that
// the cluster does not know, or whose CustomResourceDefinition is being deleted, is an error: API servers delete the objects of a
// kind one by one before the kind itself.
func (s *CustomResources) List(ctx context.Context) (config.Listing, error) {
	last := s.last.Load()
	if last == nil {
		last = &lastListing{}
	}
	all := shelf[resource]{admission: admit(s.bounds.kept, last.sizes), parts: map[string]resource{}}
	moment, r := metav1.ListOptions{}, reading{lists: s.o.Lists, bounds: s.bounds}
	for _, kind := range kinds.Resources() {
		version, err := r.pages(ctx, "/apis/"+kinds.APIVersion+"/"+kind.Plural, moment, func(raw []byte) error {
			one, p, err := resourceOf(kind, raw)
			if err != nil {
				return err
			}
			return all.put(p, one)
		})
		if err != nil {
			return frozen(last.checked.IsZero(), problemWith(kind, err))
		}
		if moment.ResourceVersion == "" && version != "" {
			moment = metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		}
	}
	sizes, refused := all.admission.end()
	next := &lastListing{resources: slices.Collect(maps.Values(all.parts)), sizes: sizes}
	l := s.listing(next.resources, refused)
	if next.revision = l.Revision; last.revision == l.Revision && time.Since(last.checked) < DefinitionsInterval {
		next.checked = last.checked // no object has gone
	} else {
		next.checked = time.Now()
		if err := s.checkDefinitions(ctx); err != nil {
			return config.Listing{}, err
		}
	}
	s.last.Store(next)
	return l, nil
}

// latest returns the latest listing. It must not be changed.
func (s *CustomResources) latest() (revision string, all []resource) {
	if l := s.last.Load(); l != nil {
		return l.revision, l.resources
	}
	return "", nil
}

// problemWith adds a remedy to an error of the API server.
func problemWith(kind kinds.Resource, err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster knows no %s: install the CustomResourceDefinitions of deploy/chart/portcullis/crds: %w", gvr(kind).GroupResource(), err)
	}
	return fmt.Errorf("%s: %w", gvr(kind).GroupResource(), err)
}

func gvr(kind kinds.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: kinds.Group, Version: kinds.Version, Resource: kind.Plural}
}

// checkDefinitions sees that the kinds are there to stay. It has to come after the listing, and before a listing that differs counts.
func (s *CustomResources) checkDefinitions(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, kind := range kinds.Resources() {
		g.Go(func() error {
			crd, err := s.o.Metadata.Resource(definitions()).Get(ctx, gvr(kind).GroupResource().String(), metav1.GetOptions{})
			if err != nil {
				return problemWith(kind, err)
			}
			if crd.DeletionTimestamp != nil {
				return fmt.Errorf("the CustomResourceDefinition %s is being deleted, with all objects of its kind", crd.Name)
			}
			return nil
		})
	}
	return g.Wait()
}

// listing names the objects, and leaves the decoding of changed ones to the listing.
func (s *CustomResources) listing(all []resource, refused []refusal) config.Listing {
	slices.SortFunc(all, func(a, b resource) int { return strings.Compare(a.file(), b.file()) })
	digest := sha256.New()
	for i := range all {
		fmt.Fprintf(digest, "%s %s\n", all[i].file(), all[i].version)
	}
	digestOf(digest, refused)
	return config.Listing{
		Revision: hex.EncodeToString(digest.Sum(nil)[:16]),
		Decode: func() ([]config.Object, config.Problems) {
			objects, problems := s.decode(all)
			return objects, append(problems, problemsOf(refused, s.bounds.kept, "custom resources", func(name string) []string { return []string{name} })...)
		},
	}
}

func (s *CustomResources) decode(all []resource) ([]config.Object, config.Problems) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]config.Part[types.UID, string], 0, len(all))
	for _, r := range all {
		parts = append(parts, config.Part[types.UID, string]{
			Key: r.uid, Version: r.version,
			Decode: func(b *config.Budget) ([]config.Object, config.Problems) { return r.decode(s.o.Decoder, b) },
		})
	}
	return s.decoded.Decode(parts)
}

// Watch implements config.Source. API servers end a watch every few minutes.
func (s *CustomResources) Watch(ctx context.Context, notify func()) error {
	var all []func(context.Context) (watch.Interface, error)
	for _, kind := range kinds.Resources() {
		all = append(all, func(ctx context.Context) (watch.Interface, error) {
			w, err := s.o.Client.Resource(gvr(kind)).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, problemWith(kind, err)
			}
			return w, nil
		})
	}
	if err := watchAll(ctx, notify, all...); err != nil {
		return fmt.Errorf("watching %w", err)
	}
	return nil
}

// resource is the part of a custom resource that is kept.
type resource struct {
	kind            kinds.Resource
	name            string
	uid             types.UID
	resourceVersion string
	generation      int64
	document        []byte // as its author wrote it, as JSON
	version         string // the same for the same document: a status is no part of it
	status          Status // as far as it is one
}

// maxStatusBytes bounds a status that is read, in bytes. A longer one was written by someone else, and is replaced.
const maxStatusBytes = 16 << 10

// resourceOf reads a custom resource.
func resourceOf(kind kinds.Resource, raw []byte) (r resource, p part, err error) {
	content := map[string]any{}
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return r, p, err
	}
	o := &unstructured.Unstructured{Object: content}
	r = resource{kind: kind, name: o.GetName(), uid: o.GetUID(), resourceVersion: o.GetResourceVersion(), generation: o.GetGeneration()}
	p = part{name: r.file(), created: o.GetCreationTimestamp().Time, size: size{1, objectBytes}}
	if status, ok := content["status"].(map[string]any); ok {
		text, err := json.Marshal(status)
		if err != nil {
			return r, p, err
		}
		if len(text) <= maxStatusBytes && runtime.DefaultUnstructuredConverter.FromUnstructured(status, &r.status) == nil {
			p.size.bytes += int64(len(text))
		} else {
			r.status = Status{}
		}
	}
	delete(content, "status")
	content["apiVersion"], content["kind"], content["metadata"] = kinds.APIVersion, kind.Kind, authored(o)
	if r.document, err = json.Marshal(content); err != nil {
		return r, p, err
	}
	metadata, err := json.Marshal(content["metadata"])
	if err != nil {
		return r, p, err
	}
	sum := sha256.Sum256(metadata)
	r.version = fmt.Sprintf("%s %d %x", r.uid, r.generation, sum[:16])
	p.size.bytes += int64(len(r.document))
	return r, p, nil
}

// authored is the author's part of the metadata of an object: the rest is the API server's.
func authored(o *unstructured.Unstructured) map[string]any {
	m := map[string]any{"name": o.GetName()}
	if labels := o.GetLabels(); len(labels) > 0 {
		m["labels"] = labels
	}
	annotations := o.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation) // kubectl's own copy of the document
	if len(annotations) > 0 {
		m["annotations"] = annotations
	}
	return m
}

// file names the resource in findings.
func (r *resource) file() string { return gvr(r.kind).GroupResource().String() + "/" + r.name }

// decode reads the resource as a document: strictly, as files are read.
func (r *resource) decode(decoder *config.Decoder, budget *config.Budget) ([]config.Object, config.Problems) {
	return decoder.DecodeWithin(budget, r.file(), r.document)
}

// withStatus is the resource with another status, as its update wants it: without the metadata that an update of a status leaves alone.
func (r *resource) withStatus(status map[string]any) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(r.document, &o.Object); err != nil {
		return nil, err
	}
	o.SetUID(r.uid)
	o.SetResourceVersion(r.resourceVersion)
	o.SetGeneration(r.generation)
	o.Object["status"] = status
	return o, nil
}
