package initializer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// sized is the Pod p in a number of bytes.
func sized(bytes int) string {
	o := pod("p")
	return o + strings.Repeat(" ", bytes-len(o))
}

// refusal checks the error of Stage.
func refusal(t *testing.T, err error, want initializer.FullError, text string) {
	t.Helper()
	var full *initializer.FullError
	if !errors.As(err, &full) {
		t.Errorf("error %v, want %+v", err, want)
		return
	}
	if diff := cmp.Diff(want, *full); diff != "" || err.Error() != text {
		t.Errorf("error %q (-want +got):\n%s", err, diff)
	}
}

// Each limit, at its edge. Nothing asks etcd.
func TestBounds(t *testing.T) {
	for name, test := range map[string]struct {
		limits initializer.Limits
		held   []string // cluster/size of the objects that are held before
		next   string   // cluster/size of the refused object
		want   initializer.FullError
		text   string
	}{
		"half of all for one cluster": {
			initializer.Limits{Holds: 4}, []string{"a/200", "a/200"}, "a/200",
			initializer.FullError{Bound: initializer.Cluster, Cluster: "a", InUse: 2, Limit: 2}, `too many held reviews of cluster "a": 2 of 2`,
		},
		"the share of a cluster": {
			initializer.Limits{Holds: 100, HoldsPerCluster: 1}, []string{"a/200", "b/200"}, "a/200",
			initializer.FullError{Bound: initializer.Cluster, Cluster: "a", InUse: 1, Limit: 1}, `too many held reviews of cluster "a": 1 of 1`,
		},
		"all": {
			initializer.Limits{Holds: 1}, nil, "a/200",
			initializer.FullError{Bound: initializer.Cluster, Cluster: "a", InUse: 0, Limit: 0}, `too many held reviews of cluster "a": 0 of 0`,
		},
		"bytes": {
			initializer.Limits{Bytes: 1000}, []string{"a/500"}, "a/200",
			initializer.FullError{Bound: initializer.Bytes, Cluster: "a", InUse: 500, Limit: 500}, `no room for another staged object of cluster "a": 500 of 500 bytes are in use`,
		},
		"bytes of a cluster": {
			initializer.Limits{Bytes: 1000, BytesPerCluster: 300}, []string{"a/200"}, "a/101",
			initializer.FullError{Bound: initializer.Bytes, Cluster: "a", InUse: 200, Limit: 300}, `no room for another staged object of cluster "a": 200 of 300 bytes are in use`,
		},
		"an object": {
			initializer.Limits{ObjectBytes: 200}, []string{"a/200"}, "a/201",
			initializer.FullError{Bound: initializer.Object, Cluster: "a", InUse: 201, Limit: 200}, `the object is too large to be staged: it has 201 bytes, and may have 200`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stagerAlone(t, initializer.Options{Limits: test.limits})
			stage := func(who string) (*initializer.Hold, error) {
				var size int
				cluster, number, _ := strings.Cut(who, "/")
				if _, err := fmt.Sscan(number, &size); err != nil {
					t.Fatal(err)
				}
				return s.Stage(podReview(cluster, "r", sized(size)))
			}
			var held []*initializer.Hold
			for _, who := range test.held {
				h, err := stage(who)
				if err != nil {
					t.Fatalf("%s: %v", who, err)
				}
				held = append(held, h)
			}
			_, err := stage(test.next)
			refusal(t, err, test.want, test.text)
			for _, h := range held {
				h.Release(t.Context())
				h.Release(t.Context()) // a second time does nothing
			}
			for _, who := range test.held { // there is room again
				h, err := stage(who)
				if err != nil {
					t.Errorf("after the end of all: %s: %v", who, err)
					continue
				}
				h.Release(t.Context())
			}
		})
	}
}

// stagerAlone is one whose store has an etcd that nobody asks.
func stagerAlone(t *testing.T, o initializer.Options) *initializer.Stager {
	t.Helper()
	store, err := staged.New(staged.Options{Client: newMesh(t).client})
	if err != nil {
		t.Fatal(err)
	}
	o.Store, o.ID = store, "d1"
	s, err := initializer.NewStager(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// However many a cluster holds, another one has room for its first ones, in number and in bytes.
func TestAFloodOfOneClusterLeavesRoomForOthers(t *testing.T) {
	s := stagerAlone(t, initializer.Options{Limits: initializer.Limits{Holds: 100, Bytes: 100 * 1000}})
	var held []*initializer.Hold
	flood := func(cluster string, size int) (n int) {
		for range 200 {
			h, err := s.Stage(podReview(cluster, "r", sized(size)))
			if err != nil {
				continue
			}
			held = append(held, h)
			n++
		}
		return n
	}
	if n := flood("a", 100); n != 50 {
		t.Errorf("a flood holds %d of 100", n)
	}
	if n := flood("b", 10_000); n != 4 { // of the 95 kB that are left, 47.5 at most
		t.Errorf("another one holds %d", n)
	}
	for i := range 3 {
		if n := flood(fmt.Sprint("c", i), 100); n < 5 {
			t.Errorf("a third one holds %d", n)
		}
	}
	for _, h := range held {
		h.Release(t.Context())
	}
}

// An object that has grown in the chain is too large for the next initializer.
func TestAnObjectThatGrows(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{Limits: initializer.Limits{ObjectBytes: 200}})
	h := d.stage(podReview("prod", "r1", pod("p")))
	r := start(t, h, sized(201), first).end()
	if r.Failure == nil || r.Failure.Kind != review.FailureTooLarge {
		t.Errorf("result %+v", r)
	}
	start(t, h, sized(200), first)
	controller{t, d.store, first}.turn()
	h.Release(t.Context())
	d.gone()
}

// The bytes of an object that a controller has made larger count.
func TestBytesFollowTheObject(t *testing.T) {
	d := newMesh(t).dispatcher(initializer.Options{Limits: initializer.Limits{Bytes: 1000}})
	h := d.stage(podReview("a", "r1", sized(100)))
	call := start(t, h, sized(100), first)
	controller{t, d.store, first}.act(sized(800))
	call.allowed(sized(100))
	if _, err := d.Stage(podReview("b", "r2", sized(101))); err == nil {
		t.Error("another one has room beside an object that has grown")
	}
	d.stage(podReview("b", "r2", sized(100)))
	h.Release(t.Context())
	d.stage(podReview("b", "r3", sized(400)))
}

func TestReviewsThatCannotBeStaged(t *testing.T) {
	s := stagerAlone(t, initializer.Options{})
	if _, err := s.Stage(podReview("prod", "r1", `[]`)); err == nil || !strings.Contains(err.Error(), "not JSON") {
		t.Errorf("an array: %v", err)
	}
	for name, o := range map[string]initializer.Options{
		"no store": {ID: "d1"}, "negative holds": {ID: "d1", Limits: initializer.Limits{Holds: -1}}, "negative bytes": {ID: "d1", Limits: initializer.Limits{Bytes: -1}},
	} {
		if name != "no store" {
			store, err := staged.New(staged.Options{Client: newMesh(t).client})
			if err != nil {
				t.Fatal(err)
			}
			o.Store = store
		}
		if _, err := initializer.NewStager(o); err == nil {
			t.Errorf("%s: there is a stager", name)
		}
	}
}

// The metrics after a hold of each kind.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	d := newMesh(t).dispatcher(initializer.Options{Metrics: registry, Limits: initializer.Limits{HoldsPerCluster: 2, ObjectBytes: 1000}})
	release := func(h *initializer.Hold) { h.Release(t.Context()) }

	h := d.stage(podReview("prod", "r1", pod("p")))
	call := start(t, h, pod("p"), first)
	controller{t, d.store, first}.act(pod("p"))
	call.allowed(pod("p"))
	if _, err := d.Stage(podReview("prod", "r0", sized(1001))); err == nil {
		t.Error("a large object is staged")
	}
	second := d.stage(podReview("prod", "r2", pod("p")))
	start(t, second, pod("p"), first).end() // there is one
	if _, err := d.Stage(podReview("prod", "r3", pod("p"))); err == nil {
		t.Error("a third one is staged")
	}
	want := []string{"portcullis_initializer_held_reviews{prod} = 2"}
	got := shown(t, registry)
	if !slices.Contains(got, want[0]) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	release(h)
	release(second)

	h = d.stage(podReview("prod", "r4", pod("p")))
	call = start(t, h, pod("p"), first)
	c := controller{t, d.store, first}
	if err := c.update(c.turn(), initializer.UpdateRequest{Result: &admissionv1.Status{Status: "Failure"}}); err != nil {
		t.Fatal(err)
	}
	call.end()
	release(h)

	h = d.stage(podReview("prod", "r5", pod("p")))
	call = start(t, h, pod("p"), first)
	o := c.turn()
	if _, err := d.store.Delete(t.Context(), o.GetKey(), "", ""); err != nil {
		t.Fatal(err)
	}
	call.end()
	release(h)

	h, to := d.stage(podReview("prod", "r6", pod("p"))), newHost()
	call = startAsking(t, h, to, pod("p"), first)
	to.request(t)(review.Result{Verdict: &admissionv1.AdmissionResponse{Allowed: true}})
	call.end()
	release(h)

	h = d.stage(podReview("prod", "r7", pod("p")))
	start(t, h, pod("p"), first).cancel()
	release(h)
	release(d.stage(podReview("prod", "r8", pod("p"))))

	if diff := cmp.Diff([]string{
		"portcullis_initializer_holds_ended_total{answered} = 1", "portcullis_initializer_holds_ended_total{cancelled} = 1",
		"portcullis_initializer_holds_ended_total{deleted} = 1", "portcullis_initializer_holds_ended_total{exists} = 1",
		"portcullis_initializer_holds_ended_total{failed} = 0", "portcullis_initializer_holds_ended_total{initialized} = 1",
		"portcullis_initializer_holds_ended_total{none} = 1", "portcullis_initializer_holds_ended_total{refused} = 1",
		"portcullis_initializer_holds_refused_total{bytes} = 0", "portcullis_initializer_holds_refused_total{cluster} = 1",
		"portcullis_initializer_holds_refused_total{memory} = 0", "portcullis_initializer_holds_refused_total{object} = 1",
		"portcullis_initializer_holds_refused_total{store} = 0", "portcullis_initializer_holds_refused_total{total} = 0",
		"portcullis_initializer_holds_refused_total{written} = 0",
	}, shown(t, registry)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// TestWritesOverTimeAreBounded: the budget has two pages, and a cluster gets the first alone.
func TestWritesOverTimeAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := newMesh(t).dispatcherWriting(8<<10, initializer.Options{Metrics: registry})
	for i, written := range []bool{true, false} {
		uid := fmt.Sprint("r", i)
		h := d.stage(podReview("prod", uid, pod(uid)))
		call := start(t, h, pod(uid), first)
		if written {
			controller{t, d.store, first}.turn()
			call.cancel()
		}
		if r := call.end(); r.Failure == nil || (r.Failure.Kind == review.FailureOverload) == written {
			t.Errorf("review %d: %+v", i, r)
		}
		h.Release(t.Context())
	}
	if got := shown(t, registry); !slices.Contains(got, "portcullis_initializer_holds_refused_total{written} = 1") {
		t.Errorf("metrics %v", got)
	}
}

// shown are the metrics of a registry, a line for each series.
func shown(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, pair := range m.GetLabel() {
				labels = "{" + pair.GetValue() + "}"
			}
			lines = append(lines, fmt.Sprint(f.GetName(), labels, " = ", m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return lines
}
