package initializer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// marked is a Pod with the marks of those who have acted.
func marked(name, marks string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","annotations":{"marks":%q}}}`, name, marks)
}

// marksOf reads them.
func marksOf(object []byte) string {
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object, &o) != nil {
		return "no JSON"
	}
	return o.Metadata.Annotations["marks"]
}

// serve acts for an initializer, as one replica of its controller, until ctx ends. It leaves objects alone that another replica has changed.
func (c controller) serve(ctx context.Context, mark string) {
	for ; ctx.Err() == nil; wait(ctx, 10*time.Millisecond) {
		all, _, err := c.store.List(ctx)
		if err != nil {
			continue
		}
		for _, o := range all {
			if len(o.GetPending()) > 0 && o.GetPending()[0] == c.name {
				raw := o.GetObject().GetRaw()
				_ = c.update(o, initializer.UpdateRequest{Object: []byte(marked(o.GetKey().GetName(), marksOf(raw)+mark)), Pending: o.GetPending()[1:]})
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// initialized has the initializers of an object act, and asks again when etcd has not answered, as the client of an API server would.
func initialized(t *testing.T, d *dispatcher, name string) string {
	t.Helper()
	h := d.stage(podReview("prod", name, marked(name, "")))
	defer h.Release(t.Context())
	object := marked(name, "")
	for _, pending := range [][]string{{first, second}, {second}} {
		for deadline := time.Now().Add(patience); ; {
			call := start(t, h, object, pending...)
			r := <-call.result
			if r.Failure == nil {
				call.result <- r
				object = call.allowed(object)
				break
			}
			if r.Failure.Kind != review.FailureUnavailable || time.Now().After(deadline) {
				t.Errorf("%s: %v", name, r.Failure)
				return object
			}
		}
	}
	return object
}

// Many are held by two dispatchers, with two replicas of each initializer, when the leader of etcd is killed: none is lost, none is
// initialized twice or out of order, and nothing stays.
func TestManyHoldsWhileAMemberIsKilled(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	var all []*dispatcher
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	for range 2 {
		m := &mesh{t, etcd.Client(etcd.Options(etcdtest.User))}
		d := m.dispatcher(initializer.Options{})
		all = append(all, d)
		serving.Go(func() { controller{t, d.store, first}.serve(ctx, "a") })
		serving.Go(func() { controller{t, d.store, second}.serve(ctx, "b") })
	}
	defer serving.Wait()
	defer stop()

	const holds, killAfter = 60, 20
	ended := make(chan struct{}, holds)
	slots := make(chan struct{}, 12)
	var holding sync.WaitGroup
	for i := range holds {
		holding.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots; ended <- struct{}{} }()
			name := fmt.Sprint("p", i)
			if marks := marksOf([]byte(initialized(t, all[i%len(all)], name))); marks != "ab" {
				t.Errorf("%s was initialized by %q", name, marks)
			}
		})
	}
	for range killAfter {
		<-ended
	}
	etcd.Leader().Kill()
	holding.Wait()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		left, _, err := all[0].store.List(t.Context())
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still staged: %v, %v", left, err)
		}
	}
}

// A dispatcher that crashes leaves its object to the lease. Others see that.
func TestACrashedDispatcherLeavesNothing(t *testing.T) {
	citest.Gate(t, "waits for the end of a lease: 6 s")
	t.Parallel()
	m := newMesh(t)
	d, other := m.dispatcher(initializer.Options{Now: func() time.Time { return time.Unix(1000, 0) }}), m.dispatcher(initializer.Options{})
	r := podReview("prod", "r1", pod("p"))
	r.Deadline = time.Unix(1000, 0) // its time is over at once: the lease is not renewed
	call := start(t, d.stage(r), pod("p"), first)
	o := controller{t, other.store, first}.turn()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := other.store.Wait(ctx, o); err == nil || ctx.Err() != nil { // nobody releases it
		t.Errorf("the end of the lease: %v", err)
	}
	if r := call.end(); r.Failure == nil || r.Failure.Kind != review.FailureUnavailable { // nobody has deleted it
		t.Errorf("result %+v", r)
	}
	other.gone()
}

// A dispatcher that does not reach etcd any more loses its object long before the time of the review is over, so that another dispatcher may
// take the next CREATE. Its own review fails, and is not told that somebody has deleted the object.
func TestADispatcherThatIsCutOffLosesItsObject(t *testing.T) {
	citest.Gate(t, "waits for the end of a lease: 8 s")
	t.Parallel()
	etcd := etcdtest.Start(t)
	cut, o := etcd.Followers()[0], etcd.Options(etcdtest.User)
	alone, others := o, o
	alone.Endpoints, others.Endpoints = nil, nil
	for i, member := range etcd.Members {
		if member == cut {
			alone.Endpoints = append(alone.Endpoints, o.Endpoints[i])
		} else {
			others.Endpoints = append(others.Endpoints, o.Endpoints[i])
		}
	}
	d, other := (&mesh{t, etcd.Client(alone)}).dispatcher(initializer.Options{}), (&mesh{t, etcd.Client(others)}).dispatcher(initializer.Options{})
	r := podReview("prod", "r1", pod("p"))
	r.Deadline = time.Now().Add(patience)
	h := d.stage(r)
	lost := start(t, h, pod("p"), first)
	held := controller{t, other.store, first}.turn()
	for uid := ""; uid == ""; uid, _ = h.Staged() { // its dispatcher has the answer too
		wait(t.Context(), 5*time.Millisecond)
	}

	cut.Clients.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	if _, err := other.store.Wait(ctx, held); !errors.Is(err, staged.ErrNotFound) {
		t.Fatalf("the object is still there long after its dispatcher was cut off: %v", err)
	}
	again := start(t, other.stage(podReview("prod", "r2", pod("p"))), pod("p"), first)
	controller{t, other.store, first}.act(labelled("a"))
	equalJSON(t, "the next CREATE", labelled("a"), again.allowed(pod("p")))
	cut.Clients.Heal()
	if r := lost.end(); r.Failure == nil || r.Failure.Kind != review.FailureUnavailable {
		t.Errorf("the result of the review that has lost its object: %+v", r)
	}
}

// A hold that lasts longer than its lease keeps its object.
func TestALeaseIsRenewed(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	d := m.dispatcher(initializer.Options{})
	call := start(t, d.stage(podReview("prod", "r1", pod("p"))), pod("p"), first)
	c := controller{t, d.store, first}
	c.turn()
	leases, err := m.client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("leases %v, %v", leases, err)
	}
	for last, deadline := int64(0), time.Now().Add(patience); ; <-time.After(100 * time.Millisecond) {
		left, err := m.client.TimeToLive(t.Context(), leases.Leases[0].ID)
		if err != nil || left.TTL < 0 || time.Now().After(deadline) {
			t.Fatalf("the lease is not renewed: %v, %v", left, err)
		}
		if last > 0 && left.TTL > last {
			break
		}
		last = left.TTL
	}
	c.act(labelled("a"))
	equalJSON(t, "the object", labelled("a"), call.allowed(pod("p")))
}

// An etcd that has no leader for a while, as during an election, costs a hold that while, and no more.
func TestAHoldOutlastsAnElection(t *testing.T) {
	citest.Gate(t, "waits for elections of an etcd: 5 s")
	t.Parallel()
	etcd := etcdtest.Start(t)
	m := &mesh{t, etcd.Client(etcd.Options(etcdtest.User))}
	d := m.dispatcher(initializer.Options{})
	h := d.stage(podReview("prod", "r1", marked("p", "")))
	call := start(t, h, marked("p", ""), first, second)
	controller{t, d.store, first}.act(marked("p", "a"))
	call.allowed(marked("p", ""))

	gone := etcd.Followers()
	for _, member := range gone {
		member.Kill()
	}
	created := start(t, d.stage(podReview("prod", "r2", marked("q", ""))), marked("q", ""), third)
	updated := start(t, h, marked("p", "ax"), second) // the chain has made a change
	select {
	case r := <-created.result:
		t.Fatalf("the first call of a hold has ended without a leader of etcd: %+v", r)
	case r := <-updated.result:
		t.Fatalf("the second call of a hold has ended without a leader of etcd: %+v", r)
	case <-time.After(3 * time.Second): // as long as an election takes
	}
	for _, member := range gone {
		member.Restart()
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	serving.Go(func() { controller{t, d.store, second}.serve(ctx, "b") })
	serving.Go(func() { controller{t, d.store, third}.serve(ctx, "c") })
	if got := marksOf([]byte(created.allowed(marked("q", "")))); got != "c" {
		t.Errorf("the object of the first call was initialized by %q", got)
	}
	if got := marksOf([]byte(updated.allowed(marked("p", "ax")))); got != "axb" {
		t.Errorf("the object of the second call was initialized by %q", got)
	}
}

// An etcd that does not answer costs a review no more than its own time, and a release no more than its caller's.
func TestAnEtcdThatHangs(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	m := &mesh{t, etcd.Client(etcd.Options(etcdtest.User))}
	d := m.dispatcher(initializer.Options{})
	held := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, held, pod("p"), first)
	controller{t, d.store, first}.turn()
	call.cancel()
	call.end()
	for _, member := range etcd.Members {
		member.Clients.Hang()
	}
	second := &asked{t: t, result: make(chan review.Result, 1)}
	short := review.Call{Hook: &match.Hook{ID: idOf(first)}, Deadline: time.Now().Add(100 * time.Millisecond)}
	d.stage(podReview("prod", "r2", pod("q"))).Start(t.Context(), []review.Call{short}, []byte(pod("q")),
		[]string{first}, nil, func(_ int, r review.Result) { second.result <- r })
	r := second.end()
	if r.Failure == nil || r.Failure.Kind != review.FailureUnavailable {
		t.Errorf("the result of a call: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	held.Release(ctx) // goes on in the background
	for _, member := range etcd.Members {
		member.Clients.Heal()
	}
	held.Release(t.Context())
	d.Close()
	for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		left, _, err := d.store.List(t.Context())
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still staged: %v, %v", left, err)
		}
	}
}
