package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Times of a StatusWriter.
const (
	// statusInterval is how often it is looked for statuses that have changed.
	statusInterval = time.Second
	// statusTimeout bounds one write.
	statusTimeout = 5 * time.Second
	// maxMessage bounds the message of a condition, in bytes.
	maxMessage = 1024
)

// Status reports to the author of a custom resource.
type Status struct {
	// ObservedGeneration is metadata.generation of the document that it is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// InForce is how many dispatchers of those known judge by the document: "2/2".
	InForce string `json:"inForce,omitempty"`
	// Served is how many hosts serve each hook of the document, at least; empty when hosts serve none.
	Served string `json:"served,omitempty"`
	// Conditions are the conditions of the document.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Statuses has the statuses of the documents of one listing of a source.
type Statuses struct {
	// Revision is the revision of the listing.
	Revision string
	// Status returns the status of an object whose document is the manifest. The writer completes generations and times.
	Status func(key config.Key, manifest []byte) Status
}

// StatusOptions configure a StatusWriter. All but Logger are required.
type StatusOptions struct {
	// Source has the custom resources.
	Source *CustomResources
	// Client writes their statuses, within its own limit of requests.
	Client dynamic.Interface
	// Leases has the lease, in Namespace, and ID names this dispatcher there.
	Leases    coordinationclient.LeasesGetter
	Namespace string
	ID        string
	// Statuses reads the configuration in force.
	Statuses func(context.Context) (*Statuses, error)
	// Logger receives failures; nil logs nothing.
	Logger *slog.Logger
}

// StatusWriter writes the statuses of custom resources, while it holds the lease. A status is no part of a document: writing it makes
// no revision.
type StatusWriter struct {
	o       StatusOptions
	written map[types.UID]string // the resource version that a status was written for; owned by the goroutine of Run
}

// NewStatusWriter returns a writer. It does no I/O.
func NewStatusWriter(o StatusOptions) (*StatusWriter, error) {
	if o.Source == nil || o.Client == nil || o.Leases == nil || o.Namespace == "" || o.ID == "" || o.Statuses == nil {
		return nil, errors.New("config/kubernetes: all options of a StatusWriter but the logger are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &StatusWriter{o: o}, nil
}

// Run writes statuses whenever this dispatcher holds the lease, until ctx ends. Reviews do not wait for it.
func (w *StatusWriter) Run(ctx context.Context) error {
	lease := reconcile.NewCandidate(w.o.ID, reconcile.StatusLease(w.o.Namespace), w.o.Logger)
	if err := lease.CampaignThrough(ctx, w.o.Leases); err != nil {
		return err
	}
	loop := reconcile.Loop{
		Lease: lease, Failed: func(err error) { w.o.Logger.Warn("statuses of custom resources are not written", "error", err) },
		Reconcile: func(ctx context.Context) (time.Duration, error) {
			if !lease.Leads() {
				return statusInterval, nil
			}
			return statusInterval, w.Write(ctx)
		},
	}
	loop.Run(ctx)
	return nil
}

// Write writes the statuses that differ from the API server's, as of the last listing of the source. It does nothing while the mesh
// has not looked at that listing. One object that cannot be written does not keep the others. It is not for concurrent use.
func (w *StatusWriter) Write(ctx context.Context) error {
	revision, latest := w.o.Source.latest()
	if latest == nil {
		return nil
	}
	statuses, err := w.o.Statuses(ctx)
	if err != nil || statuses.Revision != revision {
		return err
	}
	written := make(map[types.UID]string, len(latest))
	var errs []error
	for i := range latest {
		r := &latest[i]
		uid, version := r.uid, r.resourceVersion
		if done, ok := w.written[uid]; !ok || done != version {
			changed, err := w.write(ctx, r, statuses)
			errs = append(errs, err)
			if err != nil || !changed {
				continue
			}
		}
		written[uid] = version // the next listing has another
	}
	w.written = written
	return errors.Join(errs...)
}

// write writes the status of a resource, if it is another one. Another version of the resource wins: the next listing has it.
func (w *StatusWriter) write(ctx context.Context, r *resource, statuses *Statuses) (changed bool, err error) {
	next := statuses.Status(r.key(), r.document)
	next.complete(r.status, r.generation)
	if equality.Semantic.DeepEqual(r.status, next) {
		return false, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&next)
	if err != nil {
		return false, err
	}
	object, err := r.withStatus(content)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_, err = w.o.Client.Resource(gvr(r.kind)).UpdateStatus(ctx, object, metav1.UpdateOptions{FieldManager: "portcullis"})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil, err
}

// complete sets the generation, and the times of conditions, which those keep that have not changed.
func (s *Status) complete(before Status, generation int64) {
	conditions := slices.Clone(before.Conditions)
	for _, c := range s.Conditions {
		c.Message = identity.Redact(c.Message) // it may quote an error; first, since half a secret is not recognized
		c.ObservedGeneration, c.Message = generation, strings.ToValidUTF8(c.Message[:min(len(c.Message), maxMessage)], "")
		meta.SetStatusCondition(&conditions, c)
	}
	s.Conditions = slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return meta.FindStatusCondition(s.Conditions, c.Type) == nil })
	s.ObservedGeneration = generation
}

// key is the object that the resource is.
func (r *resource) key() config.Key {
	return config.KeyOfKind(kinds.APIVersion, r.kind.Kind, r.name)
}

// IsDocument reports whether the manifest of an object is a document with a status in Statuses.
func IsDocument(o *config.Object, document []byte) bool {
	return o.Source == CustomResourcesName && bytes.Equal(bytes.TrimSpace(o.Manifest), document)
}
