// Package registrar writes the entries of a cluster to its API server: the webhook configurations that package registration plans.
//
// An object of the same name that was not made for the cluster is never changed. Labels and annotations of others stay. Mutating
// entries are written first and removed last, so that validating hooks see objects that the mutating ones have completed.
// Which hook an entry calls depends on the plan in its path (match.Hook.In), so no order leaves a hook uncalled.
package registrar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
)

const (
	// FieldManager is the name by which the API server knows the writer.
	FieldManager = "portcullis"
	// maxConflicts is how often an object is written again after another writer has changed it.
	maxConflicts = 5
	// gonePoll is how often it is looked whether a deleted object is gone.
	gonePoll = 200 * time.Millisecond
)

// ErrForeign is the error about an object of the same name that was not made for the cluster.
var ErrForeign = errors.New("was not made by portcullis for this cluster")

// Action is the change of one object.
type Action string

// The actions.
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Deleted   Action = "deleted"
	Absent    Action = "not there"
	// Unreadable is an object that may be there: the caller may not read it, and has not changed it.
	Unreadable Action = "not readable by this user"
)

// Diff is one object before and after a write. Before and After are the stored objects, without the fields that the API server adds (resourceVersion,
// managedFields, ...); nil where there is none. They belong to the caller.
type Diff struct {
	// Object is kind and name, as in validatingwebhookconfiguration/portcullis.
	Object string
	// Action is the change.
	Action Action
	// Before and After are the object.
	Before, After runtime.Object
	// WithoutConditions names the entries whose matchConditions the API server has dropped (Kubernetes before 1.28): they bring more
	// requests than was asked for.
	WithoutConditions []string
}

// Registrar writes entries. Its methods may be called concurrently.
type Registrar struct {
	client     clients
	now        func() time.Time // the API server's
	mutating   kind[*admissionregistrationv1.MutatingWebhookConfiguration]
	validating kind[*admissionregistrationv1.ValidatingWebhookConfiguration]
}

// New returns a registrar for the cluster of a configuration, which bounds the answers ([answers.Transport.Bound]). It does no I/O.
func New(config *rest.Config) (*Registrar, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	return NewWithClient(config, client)
}

// NewWithClient is New with the HTTP client of a configuration. It stays the caller's.
func NewWithClient(config *rest.Config, httpClient *http.Client) (*Registrar, error) {
	over := *httpClient
	date := &dated{next: cmp.Or[http.RoundTripper](httpClient.Transport, http.DefaultTransport)}
	over.Transport = date
	client, err := newClients(config, &over)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	r := newRegistrar(client)
	r.now = date.now
	return r, nil
}

func newRegistrar(client clients) *Registrar {
	admission := client.AdmissionregistrationV1()
	return &Registrar{
		client: client, now: time.Now,
		mutating: kind[*admissionregistrationv1.MutatingWebhookConfiguration]{
			"mutatingwebhookconfiguration/", admission.MutatingWebhookConfigurations(),
			(*admissionregistrationv1.MutatingWebhookConfiguration).DeepCopy,
		},
		validating: kind[*admissionregistrationv1.ValidatingWebhookConfiguration]{
			"validatingwebhookconfiguration/", admission.ValidatingWebhookConfigurations(),
			(*admissionregistrationv1.ValidatingWebhookConfiguration).DeepCopy,
		},
	}
}

// Read returns the entries of a cluster by the name of the objects.
func (r *Registrar) Read(ctx context.Context, name string) (now registration.Objects, err error) {
	if now.Mutating, err = r.mutating.read(ctx, name); err == nil {
		now.Validating, err = r.validating.read(ctx, name)
	}
	if err != nil {
		return registration.Objects{}, err
	}
	return now, nil
}

// Apply writes a registration to the entries of its cluster. With dryRun the API server checks and defaults the objects, and stores
// nothing. The changes before an error are returned too.
//
// The error wraps ErrForeign if an object belongs to another writer. No object is created beside it: half of the entries would have hooks
// see requests that others have not completed. An object of the cluster that is there is still made as wanted. It wraps ErrBreakGlass, and
// nothing is written, if an operator of the cluster has taken the entries off the writes.
func (r *Registrar) Apply(ctx context.Context, to *registration.Registration, dryRun bool) ([]Diff, error) {
	mutating, mutatingErr := r.mutating.stands(ctx, to.Mutating)
	validating, validatingErr := r.validating.stands(ctx, to.Validating)
	foreign := errors.Join(mutatingErr, validatingErr)
	if foreign != nil && (!errors.Is(foreign, ErrForeign) || errors.Is(foreign, ErrBreakGlass)) {
		return nil, foreign
	}
	var changes []Diff
	if mutating || foreign == nil {
		m, err := r.mutating.apply(ctx, to.Mutating, dryRun)
		if err != nil {
			return nil, errors.Join(err, foreign)
		}
		changes = append(changes, m)
	}
	if validating || foreign == nil {
		v, err := r.validating.apply(ctx, to.Validating, dryRun)
		if err != nil {
			return changes, errors.Join(err, foreign)
		}
		changes = append(changes, v)
	}
	return changes, foreign
}

// Remove deletes the entries of a cluster by the name of the objects, and waits until they are gone or ctx ends. The changes before an
// error are returned too. The error wraps ErrForeign if an object belongs to another writer; the other object is removed all the same.
func (r *Registrar) Remove(ctx context.Context, cluster, name string, dryRun bool) (changes []Diff, foreign error) {
	for _, remove := range []func(context.Context, string, string, bool) (Diff, error){r.validating.remove, r.mutating.remove} {
		c, err := remove(ctx, cluster, name, dryRun)
		switch {
		case errors.Is(err, ErrForeign):
			foreign = errors.Join(foreign, err)
		case err != nil:
			return changes, errors.Join(foreign, err)
		default:
			changes = append(changes, c)
		}
	}
	return changes, foreign
}

// object is a webhook configuration, or another object that a cluster is connected by.
type object interface {
	metav1.Object
	runtime.Object
}

// client is a client of client-go for one kind.
type client[T object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// kind is one kind of objects, of one namespace if it has any.
type kind[T object] struct {
	prefix string // of the objects' names in messages
	client client[T]
	clone  func(T) T
}

// object names an object, as in validatingwebhookconfiguration/portcullis.
func (k kind[T]) object(name string) string { return k.prefix + name }

// read returns an object; nil if it is not there.
func (k kind[T]) read(ctx context.Context, name string) (T, error) {
	now, err := k.client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return now, nil
	}
	var none T
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	return none, fmt.Errorf("%s: %w", k.object(name), err)
}

// stands reports whether an object of the same name and cluster as a wanted one is there. The error wraps ErrForeign if it is of another, and
// ErrBreakGlass if it must stay as it is.
func (k kind[T]) stands(ctx context.Context, want T) (bool, error) {
	now, err := k.client.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err == nil {
		cluster, _ := registration.MadeFor(want)
		err = checkWritable(now, cluster)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", k.object(want.GetName()), err)
	}
	return true, nil
}

// apply makes an object be as wanted, also if another writer changes it meanwhile.
func (k kind[T]) apply(ctx context.Context, want T, dryRun bool) (c Diff, err error) {
	for range maxConflicts {
		if c, err = k.applyOnce(ctx, want, dryRun); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return Diff{}, fmt.Errorf("%s: %w", k.object(want.GetName()), err)
	}
	return c, nil
}

func (k kind[T]) applyOnce(ctx context.Context, want T, dryRun bool) (Diff, error) {
	c := Diff{Object: k.object(want.GetName())}
	now, err := k.client.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made, err := k.client.Create(ctx, want, metav1.CreateOptions{DryRun: dry(dryRun), FieldManager: FieldManager})
		if err != nil {
			return Diff{}, err
		}
		c.Action, c.After, c.WithoutConditions = Created, k.stripped(made), withoutConditions(want, made)
		return c, nil
	}
	if err != nil {
		return Diff{}, err
	}
	cluster, _ := registration.MadeFor(want)
	if err := checkWritable(now, cluster); err != nil {
		return Diff{}, err
	}
	next := k.over(now, want)
	// The API server knows the defaults: a write that changes nothing is none.
	checked, err := k.client.Update(ctx, next, metav1.UpdateOptions{DryRun: dry(true), FieldManager: FieldManager})
	if err != nil {
		return Diff{}, err
	}
	c.Before, c.After, c.WithoutConditions = k.stripped(now), k.stripped(checked), withoutConditions(want, checked)
	if apiequality.Semantic.DeepEqual(c.Before, c.After) {
		c.Action = Unchanged
		return c, nil
	}
	c.Action = Updated
	if !dryRun {
		_, err = k.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager})
	}
	return c, err
}

// over returns want as an update of now: with the version of now, so that a change by another writer is a conflict, and with the other
// labels and annotations of now.
func (k kind[T]) over(now, want T) T {
	next := k.clone(want)
	next.SetResourceVersion(now.GetResourceVersion())
	next.SetUID(now.GetUID())
	next.SetLabels(merged(now.GetLabels(), want.GetLabels()))
	next.SetAnnotations(merged(now.GetAnnotations(), want.GetAnnotations()))
	next.SetFinalizers(now.GetFinalizers())
	next.SetOwnerReferences(now.GetOwnerReferences())
	return next
}

func merged(now, want map[string]string) map[string]string {
	all := maps.Clone(now)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, want)
	return all
}

// stripped is a copy without the fields that the API server sets by itself.
func (k kind[T]) stripped(o T) T {
	o = k.clone(o)
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	o.SetGeneration(0)
	o.SetUID("")
	o.SetCreationTimestamp(metav1.Time{})
	return o
}

// checkWritable returns an error unless an object may be changed for a cluster.
func checkWritable(o metav1.Object, cluster string) error {
	if err := checkOwner(o, cluster); err != nil {
		return err
	}
	return checkBreakGlass(o)
}

func checkOwner(o metav1.Object, cluster string) error {
	of, ours := registration.MadeFor(o)
	switch {
	case !ours:
		return fmt.Errorf("it %w: choose another name (--name, or spec.registration.name), or delete it if it is not needed", ErrForeign)
	case of != cluster:
		return fmt.Errorf("it %w: it is for cluster %q: choose another name (--name, or spec.registration.name), or unregister that cluster", ErrForeign, of)
	}
	return nil
}

// remove deletes an object and waits until it is gone.
func (k kind[T]) remove(ctx context.Context, cluster, name string, dryRun bool) (Diff, error) {
	c := Diff{Object: k.object(name), Action: Deleted}
	now, err := k.client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.Action = Absent
		return c, nil
	}
	if err == nil {
		err = checkOwner(now, cluster)
	}
	if err != nil {
		return Diff{}, fmt.Errorf("%s: %w", c.Object, err)
	}
	c.Before = k.stripped(now)
	uid := now.GetUID()
	err = k.client.Delete(ctx, name, metav1.DeleteOptions{DryRun: dry(dryRun), Preconditions: &metav1.Preconditions{UID: &uid}})
	if err == nil && !dryRun {
		err = k.awaitGone(ctx, name, uid)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return Diff{}, fmt.Errorf("%s: %w", c.Object, err)
	}
	return c, nil
}

// awaitGone waits until an object is gone: finalizers of others may hold it.
func (k kind[T]) awaitGone(ctx context.Context, name string, uid types.UID) error {
	for {
		now, err := k.client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.GetUID() != uid {
			return nil
		}
		if err != nil {
			return err
		}
		if !clock.Sleep(ctx, gonePoll) {
			return fmt.Errorf("it is deleted and not gone; finalizers %v hold it", now.GetFinalizers())
		}
	}
}

func dry(run bool) []string {
	if run {
		return []string{metav1.DryRunAll}
	}
	return nil
}
