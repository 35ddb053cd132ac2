package initializer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/config/embedded"
	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/initializer"
	"github.com/portcullis-mesh/portcullis/initializer/staged"
)

// patience bounds what a slow machine may take.
const patience = 2 * time.Minute

// The initializers of the tests, in order.
const first, second, third = "a.example.com", "b.example.com", "c.example.com"

// mesh is an etcd with dispatchers that stage in it.
type mesh struct {
	t      *testing.T
	client *clientv3.Client
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &mesh{t, s.Client()}
}

// dispatcher is one that stages.
type dispatcher struct {
	*initializer.Stager

	t     *testing.T
	store *staged.Store
}

func (m *mesh) dispatcher(o initializer.Options) *dispatcher {
	m.t.Helper()
	store, err := staged.New(staged.Options{Client: m.client})
	if err != nil {
		m.t.Fatal(err)
	}
	o.Store, o.ID = store, "d1"
	s, err := initializer.NewStager(o)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(m.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	m.t.Cleanup(func() {
		s.Close()
		stop()
		running.Wait()
	})
	return &dispatcher{s, m.t, store}
}

// podReview is the review of a CREATE of a Pod.
func podReview(cluster, uid, object string) *review.Request {
	pods := &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &review.Request{Stage: admissionv1.Stage_STAGE_MUTATE, Admission: &admissionv1.AdmissionRequest{
		Uid: uid, Cluster: cluster, Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: pods, RequestResource: pods,
		Namespace: "default", Operation: "CREATE", UserInfo: &admissionv1.UserInfo{Username: "ann"}, Object: &admissionv1.Object{Raw: []byte(object)},
	}}
}

// pod is the JSON of a Pod.
func pod(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default"}}`, name)
}

func (d *dispatcher) stage(r *review.Request) *initializer.Hold {
	d.t.Helper()
	h, err := d.Stage(r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { h.Release(context.WithoutCancel(d.t.Context())) })
	return h
}

// asked is a call that was started.
type asked struct {
	t      *testing.T
	result chan review.Result
	cancel func()
}

// start asks the first of the pending initializers.
func start(t *testing.T, h *initializer.Hold, object string, pending ...string) *asked {
	t.Helper()
	x := &asked{t: t, result: make(chan review.Result, 1)}
	x.cancel = h.Start(t.Context(), review.Call{Deadline: time.Now().Add(patience)}, []byte(object), pending, nil, func(r review.Result) { x.result <- r })
	return x
}

// end is the result of the call.
func (x *asked) end() review.Result {
	x.t.Helper()
	select {
	case r := <-x.result:
		return r
	case <-time.After(patience):
		x.t.Fatal("the call does not end")
		return review.Result{}
	}
}

// allowed is the object after the patch of the call.
func (x *asked) allowed(object string) string {
	x.t.Helper()
	r := x.end()
	if !r.Verdict.GetAllowed() {
		x.t.Fatalf("result %+v", r)
	}
	if len(r.Verdict.GetPatch()) == 0 {
		return object
	}
	patched, err := conversion.ApplyPatch([]byte(object), r.Verdict.GetPatch())
	if err != nil {
		x.t.Fatal(err)
	}
	return string(patched.Raw)
}

// controller is an initializer that acts through a store.
type controller struct {
	t     *testing.T
	store *staged.Store
	name  string
}

// turn waits until the controller is the first of the pending initializers of the only object.
func (c controller) turn() *initializerv1.StagedObject {
	c.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		all, _, err := c.store.List(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, o := range all {
			if len(o.GetPending()) > 0 && o.GetPending()[0] == c.name {
				return o
			}
		}
	}
	c.t.Fatalf("%s has no turn", c.name)
	return nil
}

// update makes a change of an object.
func (c controller) update(o *initializerv1.StagedObject, change initializer.Change) error {
	change.ResourceVersion = o.GetResourceVersion()
	next, err := initializer.Update(o, change, initializer.Rules{
		Granted:    func(name string) bool { return name == c.name },
		Configured: func(string) bool { return true }, MaxObjectBytes: initializer.DefaultObjectBytes, Now: time.Now(),
	})
	if err != nil {
		return err
	}
	_, err = c.store.Update(c.t.Context(), o.GetKey(), o.GetResourceVersion(), next)
	return err
}

// act replaces the object at the turn of the controller, and removes its name.
func (c controller) act(object string) {
	c.t.Helper()
	o := c.turn()
	if err := c.update(o, initializer.Change{Object: []byte(object), Pending: o.GetPending()[1:]}); err != nil {
		c.t.Error(err)
	}
}

// gone waits until nothing is staged.
func (d *dispatcher) gone() {
	d.t.Helper()
	all, _, err := d.store.List(d.t.Context())
	if err != nil || len(all) > 0 {
		d.t.Errorf("still staged: %v, %v", all, err)
	}
}

func labelled(name, label string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","labels":{%q:"yes"}}}`, name, label)
}

func equalJSON(t *testing.T, what, want, got string) {
	t.Helper()
	if patch, err := conversion.DiffPatch([]byte(want), []byte(got)); err != nil || patch != nil {
		t.Errorf("%s: %s, want %s (%v)", what, got, want, err)
	}
}

// Two controllers, which watch another dispatcher, initialize an object one after the other.
func TestControllersInitializeInOrder(t *testing.T) {
	m := newMesh(t)
	d, other := m.dispatcher(initializer.Options{}), m.dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))

	call := start(t, h, pod("p"), first, second)
	controller{t, other.store, first}.act(labelled("p", "a"))
	object := call.allowed(pod("p"))
	equalJSON(t, "after the first one", labelled("p", "a"), object)

	call = start(t, h, object, second)
	if uid, version := h.Staged(); uid == "" || version == "" {
		t.Errorf("staged as %q, version %q", uid, version)
	}
	controller{t, other.store, second}.act(labelled("p", "b"))
	equalJSON(t, "after the second one", labelled("p", "b"), call.allowed(object))
	h.Release(t.Context())
	other.gone()
}

// A result of an initializer reaches the creator.
func TestAResultRefuses(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, h, pod("p"), first, second)
	c := controller{t, d.store, first}
	status := &admissionv1.Status{Status: "Failure", Code: 422, Reason: "Invalid", Message: "no such image"}
	if err := c.update(c.turn(), initializer.Change{Result: status}); err != nil {
		t.Fatal(err)
	}
	if r := call.end(); r.Verdict.GetAllowed() || r.Verdict.GetStatus().GetMessage() != "no such image" {
		t.Errorf("result %+v", r)
	}
	h.Release(t.Context())
	d.gone()
}

// Who deletes the staged object refuses it.
func TestADeletionRefuses(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	call := start(t, d.stage(podReview("prod", "r1", pod("p"))), pod("p"), first)
	o := controller{t, d.store, first}.turn()
	if _, err := d.store.Delete(t.Context(), o.GetKey(), o.GetUid(), ""); err != nil {
		t.Fatal(err)
	}
	s := call.end().Verdict.GetStatus()
	if s.GetCode() != 409 || s.GetReason() != "Conflict" || s.GetMessage() != `pods "p" was deleted while it was being initialized` {
		t.Errorf("status %v", s)
	}
	d.gone()
}

func TestACancelledCallIsDone(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, h, pod("p"), first)
	controller{t, d.store, first}.turn()
	call.cancel()
	select {
	case r := <-call.result:
		if r.Failure == nil || r.Failure.Kind != review.FailureCancelled {
			t.Errorf("result %+v", r)
		}
	default:
		t.Error("the call was not done when its cancellation returned")
	}
	h.Release(t.Context())
	d.gone()
	if r := start(t, h, pod("p"), first).end(); r.Failure == nil || r.Failure.Kind != review.FailureCancelled {
		t.Errorf("a call after the release: %+v", r)
	}
}
