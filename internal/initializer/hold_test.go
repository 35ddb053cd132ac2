package initializer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// patience bounds the wait for a slow machine.
const patience = 2 * time.Minute

// The initializers of the tests, in order.
const first, second, third = "conf/a.example.com", "conf/b.example.com", "conf/c.example.com"

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

// dispatcher is a dispatcher with a Stager.
type dispatcher struct {
	*initializer.Stager

	t     *testing.T
	store *staged.Store
}

func (m *mesh) dispatcher(o initializer.Options) *dispatcher {
	m.t.Helper()
	return m.dispatcherWriting(0, o)
}

// dispatcherWriting is a dispatcher that writes so many bytes within the retention; 0 means the default.
func (m *mesh) dispatcherWriting(bytes int64, o initializer.Options) *dispatcher {
	m.t.Helper()
	store, err := staged.New(staged.Options{Client: m.client, WrittenBytes: bytes})
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

// idOf is the identity of the hook that is an initializer.
func idOf(pending string) match.HookID {
	configuration, name, _ := strings.Cut(pending, "/")
	return match.HookID{Configuration: configuration, Name: name}
}

// start asks the first of the pending initializers.
func start(t *testing.T, h *initializer.Hold, object string, pending ...string) *asked {
	t.Helper()
	return startAll(t, h, nil, 1, object, pending...)[0]
}

// startAll asks as many of the pending initializers at the same time.
func startAll(t *testing.T, h *initializer.Hold, ask func(int, func(review.Result)) func(), count int, object string, pending ...string) []*asked {
	t.Helper()
	var calls []review.Call
	all := make([]*asked, count)
	for i := range all {
		all[i] = &asked{t: t, result: make(chan review.Result, 1)}
		hook := &match.Hook{ID: idOf(pending[i])}
		calls = append(calls, review.Call{Hook: hook, Deadline: time.Now().Add(patience)})
	}
	cancel := h.Start(t.Context(), calls, []byte(object), pending, ask, func(i int, r review.Result) { all[i].result <- r })
	for i := range all {
		all[i].cancel = func() { cancel(i) }
	}
	return all
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
func (c controller) update(o *initializerv1.StagedObject, change initializer.UpdateRequest) error {
	change.ResourceVersion = o.GetResourceVersion()
	names := make([]string, len(change.Pending))
	for i, pending := range change.Pending {
		names[i] = initializer.NameOf(pending)
	}
	change.Pending = names
	next, err := initializer.Update(o, change, initializer.Rules{
		Granted:    func(pending string) bool { return pending == c.name },
		Configured: func(name string) []string { return []string{"conf/" + name} }, MaxObjectBytes: initializer.DefaultObjectBytes, Now: time.Now(),
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
	if err := c.update(o, initializer.UpdateRequest{Object: []byte(object), Pending: o.GetPending()[1:]}); err != nil {
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

// labelled is the Pod p with a label.
func labelled(label string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","labels":{%q:"yes"}}}`, label)
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
	controller{t, other.store, first}.act(labelled("a"))
	object := call.allowed(pod("p"))
	equalJSON(t, "after the first one", labelled("a"), object)

	call = start(t, h, object, second)
	if uid, version := h.Staged(); uid == "" || version == "" {
		t.Errorf("staged as %q, version %q", uid, version)
	}
	controller{t, other.store, second}.act(labelled("b"))
	equalJSON(t, "after the second one", labelled("b"), call.allowed(object))
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
	if err := c.update(c.turn(), initializer.UpdateRequest{Result: status}); err != nil {
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

// host is the stream to a host: the test answers, or sees that the call is cancelled.
type host struct {
	asked     chan func(review.Result)
	cancelled chan struct{}
}

func newHost() *host {
	return &host{asked: make(chan func(review.Result), 1), cancelled: make(chan struct{})}
}

// ask has the contract of a backend.
func (h *host) ask(done func(review.Result)) (cancel func()) {
	var ended sync.Once
	end := func(r review.Result) { ended.Do(func() { done(r) }) }
	h.asked <- end
	return func() {
		ended.Do(func() {
			close(h.cancelled)
			r := review.Cancelled()
			r.Timing = review.Timing{Queued: time.Millisecond, Host: time.Second, Instance: "host-1"}
			done(r)
		})
	}
}

// startAsking asks the hosts of the first of the pending initializers.
func startAsking(t *testing.T, h *initializer.Hold, to *host, object string, pending ...string) *asked {
	t.Helper()
	return startAll(t, h, func(_ int, done func(review.Result)) func() { return to.ask(done) }, 1, object, pending...)[0]
}

// request waits until the host is asked.
func (h *host) request(t *testing.T) func(review.Result) {
	t.Helper()
	select {
	case answer := <-h.asked:
		return answer
	case <-time.After(patience):
		t.Fatal("the host is not asked")
		return nil
	}
}

func patchOf(t *testing.T, from, to string) []byte {
	t.Helper()
	patch, err := conversion.DiffPatch([]byte(from), []byte(to))
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// A host is asked once its object is staged; its answer is staged with the next initializer, which is a controller here.
func TestAHostAndThenAController(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h, to := d.stage(podReview("prod", "r1", pod("p"))), newHost()
	call := startAsking(t, h, to, pod("p"), first, second)
	answer := to.request(t)
	if uid, version := h.Staged(); uid == "" || version == "" {
		t.Errorf("the host is asked before the object is staged: %q, %q", uid, version)
	}
	answer(review.Result{
		Verdict: &admissionv1.AdmissionResponse{Allowed: true, Patch: patchOf(t, pod("p"), labelled("a")), PatchType: "JSONPatch", Warnings: []string{"w"}},
		Timing:  review.Timing{Host: time.Second},
	})
	r := call.end()
	if r.Verdict.GetWarnings()[0] != "w" || r.Timing.Host != time.Second || r.Timing.Queued <= 0 {
		t.Errorf("result %+v", r)
	}
	call = start(t, h, labelled("a"), second)
	o := controller{t, d.store, second}.turn()
	equalJSON(t, "what the controller sees", labelled("a"), string(o.GetObject().GetRaw()))
	controller{t, d.store, second}.act(labelled("b"))
	equalJSON(t, "after both", labelled("b"), call.allowed(labelled("a")))
	h.Release(t.Context())
	d.gone()
}

// Events that end the wait for a host.
func TestAHostIsNoLongerAsked(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*testing.T, *dispatcher, *asked)
		want func(review.Result) bool
	}{
		"when the object is deleted": {
			func(t *testing.T, d *dispatcher, _ *asked) {
				o := controller{t, d.store, first}.turn()
				if _, err := d.store.Delete(t.Context(), o.GetKey(), "", ""); err != nil {
					t.Error(err)
				}
			},
			func(r review.Result) bool {
				return r.Verdict.GetStatus().GetReason() == "Conflict" && r.Timing.Instance == ""
			},
		},
		"when a controller has refused it": {
			func(t *testing.T, d *dispatcher, _ *asked) {
				c := controller{t, d.store, first}
				if err := c.update(c.turn(), initializer.UpdateRequest{Result: &admissionv1.Status{Status: "Failure", Message: "no"}}); err != nil {
					t.Error(err)
				}
			},
			func(r review.Result) bool { return r.Verdict.GetStatus().GetMessage() == "no" },
		},
		"when a controller has acted": {
			func(t *testing.T, d *dispatcher, _ *asked) { controller{t, d.store, first}.act(pod("p")) },
			func(r review.Result) bool {
				return r.Verdict.GetAllowed() && r.Verdict.GetPatch() == nil && r.Verdict.GetPatchType() == ""
			},
		},
		"when the call is cancelled": {
			func(_ *testing.T, _ *dispatcher, call *asked) { call.cancel() },
			func(r review.Result) bool {
				return r.Failure != nil && r.Failure.Kind == review.FailureCancelled && // the record of a timeout says whom it waited for
					r.Timing.Instance == "host-1" && r.Timing.Host == time.Second && r.Timing.Queued > time.Millisecond && r.Timing.Staged.UID != ""
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newMesh(t).dispatcher(initializer.Options{})
			to := newHost()
			call := startAsking(t, d.stage(podReview("prod", "r1", pod("p"))), to, pod("p"), first)
			to.request(t)
			test.do(t, d, call)
			if r := call.end(); !test.want(r) {
				t.Errorf("result %+v", r)
			}
			select {
			case <-to.cancelled:
			case <-time.After(patience):
				t.Error("the host is still asked")
			}
		})
	}
}

// A call that is cancelled while its hosts are being asked waits for them: its result names the instance that it waited for.
func TestACallIsCancelledWhileItsHostIsBeingAsked(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	to := newHost()
	slow := func(_ int, done func(review.Result)) func() {
		cancel := to.ask(done)
		<-time.After(20 * time.Millisecond) // the call is cancelled meanwhile
		return cancel
	}
	call := startAll(t, d.stage(podReview("prod", "r1", pod("p"))), slow, 1, pod("p"), first)[0]
	to.request(t)
	call.cancel()
	select {
	case r := <-call.result:
		if r.Failure == nil || r.Failure.Kind != review.FailureCancelled || r.Timing.Instance != "host-1" {
			t.Errorf("result %+v", r)
		}
	default:
		t.Error("the call was not done when its cancellation returned")
	}
}

// The names that an initializer adds are waited for within its call, unless they stand behind the next one.
func TestInitializersAreAdded(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, h, pod("p"), first, second)
	a := controller{t, d.store, first}
	if err := a.update(a.turn(), initializer.UpdateRequest{Object: []byte(labelled("a")), Pending: []string{"conf/x.example.com", second, third}}); err != nil {
		t.Fatal(err)
	}
	x := controller{t, d.store, "conf/x.example.com"}
	x.turn()
	select {
	case r := <-call.result:
		t.Fatalf("the call ends before the added one has acted: %+v", r)
	default:
	}
	x.act(labelled("x"))
	object := call.allowed(pod("p"))
	equalJSON(t, "after the added one", labelled("x"), object)

	call = start(t, h, object, second)
	controller{t, d.store, second}.act(object)
	controller{t, d.store, third}.act(labelled("c"))
	equalJSON(t, "after the one behind the second", labelled("c"), call.allowed(object))
}

// A controller need not wait for the holder: if it acts before its call, it acts once.
func TestTheNextOneActsEarly(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, h, pod("p"), first, second)
	controller{t, d.store, first}.act(labelled("a"))
	object := call.allowed(pod("p"))
	controller{t, d.store, second}.act(labelled("b"))
	call = start(t, h, object, second) // whether or not its watch has told of that
	equalJSON(t, "after both", labelled("b"), call.allowed(object))
}

// The time of an initializer is over, and the next one is asked with the object of the chain, even if the first one acts at that moment.
func TestTheNextOneIsAskedAfterATimeout(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, h, pod("p"), first, second)
	a := controller{t, d.store, first}
	late := a.turn()
	call.cancel()
	call.end()
	call = start(t, h, pod("p"), second)
	b := controller{t, d.store, second}
	equalJSON(t, "what the second one sees", pod("p"), string(b.turn().GetObject().GetRaw()))
	var refused *initializer.RefusedError
	err := a.update(late, initializer.UpdateRequest{Object: []byte(labelled("a"))})
	if !errors.Is(err, staged.ErrConflict) && !errors.As(err, &refused) {
		t.Errorf("the first one acts after its time: %v", err)
	}
	b.act(labelled("b"))
	equalJSON(t, "at the end", labelled("b"), call.allowed(pod("p")))
}

func TestATimeoutNamesTheStagedObject(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))
	result := make(chan review.Result, 1)
	start(t, h, pod("p"), first).cancel() // it may take a while until there is a staged object: this call has only the time that is left
	call := start(t, h, pod("p"), first)
	controller{t, d.store, first}.turn()
	call.cancel()
	short := review.Call{Hook: &match.Hook{ID: idOf(first)}, Deadline: time.Now().Add(50 * time.Millisecond)}
	h.Start(t.Context(), []review.Call{short}, []byte(pod("p")), []string{first}, nil, func(_ int, r review.Result) { result <- r })
	r := <-result
	uid, version := h.Staged()
	if r.Failure == nil || r.Failure.Kind != review.FailureTimeout || !strings.Contains(r.Failure.Error(), fmt.Sprintf("uid %q, resource version %q", uid, version)) {
		t.Errorf("result %+v", r.Failure)
	}
}

// One object of a name is held at a time; another review is told which, and the same one, which comes by another dispatcher, replaces it.
func TestRepeatedCreates(t *testing.T) {
	m := newMesh(t)
	d, other := m.dispatcher(initializer.Options{}), m.dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, h, pod("p"), first)
	o := controller{t, other.store, first}.turn()

	s := start(t, other.stage(podReview("prod", "r2", pod("p"))), pod("p"), first).end().Verdict.GetStatus()
	want := &admissionv1.Status{
		Status: "Failure", Code: 409, Reason: "AlreadyExists", Message: `pods "p" already exists: it is being initialized and waits for "a.example.com"`,
		Details: &admissionv1.StatusDetails{Name: "p", Kind: "pods", Uid: o.GetUid()},
	}
	if diff := cmp.Diff(want, s, protocmp.Transform()); diff != "" {
		t.Errorf("another review (-want +got):\n%s", diff)
	}

	again := other.stage(podReview("prod", "r1", pod("p")))
	second := start(t, again, pod("p"), first)
	if s := call.end().Verdict.GetStatus(); s.GetReason() != "Conflict" {
		t.Errorf("the first hold of the same review: %v", s)
	}
	h.Release(t.Context())
	controller{t, d.store, first}.act(labelled("a"))
	equalJSON(t, "the second hold", labelled("a"), second.allowed(pod("p")))
	again.Release(t.Context())
	d.gone()
}

func TestGeneratedNames(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{})
	const object = `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"p-","namespace":"default"}}`
	names := map[string]bool{}
	for i := range 3 {
		call := start(t, d.stage(podReview("prod", fmt.Sprint("r", i), object)), object, first)
		t.Cleanup(call.cancel)
	}
	for deadline := time.Now().Add(patience); len(names) < 3; <-time.After(5 * time.Millisecond) {
		all, _, err := d.store.List(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v, %v", all, err)
		}
		for _, o := range all {
			names[o.GetKey().GetName()] = true
			equalJSON(t, "the object", object, string(o.GetObject().GetRaw()))
		}
	}
	for name := range names {
		if len(name) != len("p-")+5 || !strings.HasPrefix(name, "p-") {
			t.Errorf("name %q", name)
		}
	}
}
