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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
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
	// Client asks the API server. It may list and watch the resources of portcullis.dev: deploy/custom-resources-rbac.yaml.
	Client dynamic.Interface
	// Metadata asks it too. It may get the CustomResourceDefinitions of these resources.
	Metadata metadata.Interface
	// Decoder reads the objects.
	Decoder *config.Decoder
}

// CustomResources is a config.Source: all custom resources of portcullis.dev/v1. Its methods may be called concurrently.
type CustomResources struct {
	o CustomResourcesOptions

	mu      sync.Mutex
	decoded config.DecodeCache[types.UID, string]

	last atomic.Pointer[lastListing] // nil before the first
}

// lastListing holds the resources of the latest listing.
type lastListing struct {
	revision  string
	resources []resource
	checked   time.Time // the definitions, last
}

// DefinitionsInterval is how often the definitions are looked at while listings are equal.
const DefinitionsInterval = 10 * time.Second

var _ config.Source = (*CustomResources)(nil)

// NewCustomResources returns a source. It asks nothing yet.
func NewCustomResources(o CustomResourcesOptions) (*CustomResources, error) {
	if o.Client == nil || o.Metadata == nil || o.Decoder == nil {
		return nil, errors.New("config/kubernetes: clients and a decoder are required")
	}
	return &CustomResources{o: o}, nil
}

// Name implements config.Source.
func (s *CustomResources) Name() string { return CustomResourcesName }

// List implements config.Source. It reads from etcd of the cluster, not from a cache, and all kinds as of one moment. A kind that
// the cluster does not know, or whose CustomResourceDefinition is being deleted, is an error: API servers delete the objects of a
// kind one by one before the kind itself.
func (s *CustomResources) List(ctx context.Context) (config.Listing, error) {
	var all []resource
	moment := metav1.ListOptions{}
	for _, kind := range kinds.Resources() {
		items, version, err := s.list(ctx, kind, moment)
		if err != nil {
			return config.Listing{}, problemWith(kind, err)
		}
		all = append(all, items...)
		if moment.ResourceVersion == "" && version != "" {
			moment = metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		}
	}
	l := s.listing(all)
	next := &lastListing{revision: l.Revision, resources: all}
	if last := s.last.Load(); last != nil && last.revision == l.Revision && time.Since(last.checked) < DefinitionsInterval {
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

func (s *CustomResources) list(ctx context.Context, kind kinds.Resource, moment metav1.ListOptions) (all []resource, version string, err error) {
	version, err = pages(moment, func(options metav1.ListOptions) (metav1.ListInterface, error) {
		page, err := s.o.Client.Resource(gvr(kind)).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			all = append(all, resource{kind: kind, object: &page.Items[i]})
		}
		return page, nil
	})
	return all, version, err
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
func (s *CustomResources) listing(all []resource) config.Listing {
	slices.SortFunc(all, func(a, b resource) int { return strings.Compare(a.file(), b.file()) })
	digest := sha256.New()
	for i := range all {
		all[i].version = all[i].digest()
		fmt.Fprintf(digest, "%s %s\n", all[i].file(), all[i].version)
	}
	return config.Listing{
		Revision: hex.EncodeToString(digest.Sum(nil)[:16]),
		Decode:   func() ([]config.Object, config.Problems) { return s.decode(all) },
	}
}

func (s *CustomResources) decode(all []resource) ([]config.Object, config.Problems) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := make([]config.Part[types.UID, string], 0, len(all))
	for _, r := range all {
		parts = append(parts, config.Part[types.UID, string]{
			Key: r.object.GetUID(), Version: r.version,
			Decode: func(b *config.Budget) ([]config.Object, config.Problems) { return r.decode(s.o.Decoder, b) },
		})
	}
	return within(MaxObjects, "custom resources")(s.decoded.Decode(parts))
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

// resource is a custom resource as the API server has it.
type resource struct {
	kind    kinds.Resource
	object  *unstructured.Unstructured
	version string // the same for the same document
}

// file names the resource in findings.
func (r *resource) file() string {
	return gvr(r.kind).GroupResource().String() + "/" + r.object.GetName()
}

// digest is the same as long as the document is: a status is no part of it.
func (r *resource) digest() string {
	sum := sha256.New()
	_ = json.NewEncoder(sum).Encode(r.metadata()) //nolint:errchkjson // texts
	return fmt.Sprintf("%s %d %x", r.object.GetUID(), r.object.GetGeneration(), sum.Sum(nil)[:16])
}

// metadata returns the author's part of the metadata: the rest is the API server's.
func (r *resource) metadata() map[string]any {
	m := map[string]any{"name": r.object.GetName()}
	if labels := r.object.GetLabels(); len(labels) > 0 {
		m["labels"] = labels
	}
	annotations := r.object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation) // kubectl's own copy of the document
	if len(annotations) > 0 {
		m["annotations"] = annotations
	}
	return m
}

// decode reads the resource as a document: strictly, as files are read.
func (r *resource) decode(decoder *config.Decoder, budget *config.Budget) ([]config.Object, config.Problems) {
	data, err := r.document()
	if err != nil {
		return nil, config.Problems{{Severity: match.SeverityError, Code: config.CodeInternal, File: r.file(), Message: err.Error()}}
	}
	return decoder.DecodeWithin(budget, r.file(), data)
}

// document is the resource as its author wrote it, as JSON.
func (r *resource) document() ([]byte, error) {
	document := maps.Clone(r.object.Object)
	delete(document, "status")
	document["metadata"] = r.metadata()
	return json.Marshal(document)
}
