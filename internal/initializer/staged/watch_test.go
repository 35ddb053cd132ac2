package staged_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

func watch(t *testing.T, s *staged.Store, after string, buffer int) *staged.Watcher {
	t.Helper()
	w, err := s.Watch(t.Context(), after, buffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next is the next event of a watch.
func next(t *testing.T, w *staged.Watcher) staged.Event {
	t.Helper()
	select {
	case e, ok := <-w.Events():
		if !ok {
			t.Fatalf("the watch has ended: %v", w.Err())
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event comes")
		return staged.Event{}
	}
}

// told describes an event as the tests compare it: type, name, and content, and that before.
func told(e staged.Event) string {
	s := fmt.Sprintf("%s %s %s", e.Type.String()[len("EVENT_TYPE_"):], e.Object.GetKey().GetName(), e.Object.GetObject().GetRaw())
	if e.Previous != nil {
		s += fmt.Sprintf(" before %s", e.Previous.GetObject().GetRaw())
	}
	return s
}

// expect reads the events of a watch, and checks that their revisions grow.
func expect(t *testing.T, w *staged.Watcher, want ...string) (last staged.Event) {
	t.Helper()
	for _, line := range want {
		e := next(t, w)
		equal(t, "event", line, told(e))
		if e.Revision <= last.Revision {
			t.Errorf("an event at %d after one at %d", e.Revision, last.Revision)
		}
		if v := fmt.Sprint(e.Revision); e.Object != nil && v != e.Object.GetResourceVersion() {
			t.Errorf("an event at %s of an object at %s", v, e.Object.GetResourceVersion())
		}
		last = e
	}
	return last
}

func small(name, uid string) *initializerv1.StagedObject {
	o := pod("prod", name, uid)
	o.Object.Raw = []byte(`{}`)
	return o
}

func TestAWatchTellsEveryChange(t *testing.T) {
	client := etcd(t)
	s, other := open(t, staged.Options{Client: client}), open(t, staged.Options{Client: client})
	before := create(t, s, small("p", "u1"))
	_, version := list(t, s)
	w := watch(t, s, version, 100)
	before = update(t, other, before, `1`)
	before = update(t, other, before, `2`)
	create(t, other, small("q", "u2"))
	if _, err := other.Delete(t.Context(), before.GetKey(), "", ""); err != nil {
		t.Fatal(err)
	}
	create(t, other, small("p", "u3"))
	last := expect(t, w, "MODIFIED p 1 before {}", "MODIFIED p 2 before 1", "ADDED q {}", "DELETED p 2 before 2", "ADDED p {}")
	w.Bookmark()
	if e := next(t, w); e.Type != initializerv1.EventType_EVENT_TYPE_BOOKMARK || e.Revision < last.Revision || e.Object != nil {
		t.Errorf("bookmark %+v", e)
	}
	w.Stop()
	if _, ok := <-w.Events(); ok || w.Err() != nil {
		t.Errorf("after the end: %t, %v", ok, w.Err())
	}
	w.Bookmark()

	// Later, and from another dispatcher: the latest of each object, and the deletions of earlier objects.
	expect(t, watch(t, other, version, 1), "ADDED q {}", "DELETED p ", "ADDED p {}")
	expect(t, watch(t, s, fmt.Sprint(last.Revision-1), 1), "ADDED p {}")
	now := watch(t, s, "", 1)
	create(t, other, small("r", "u4"))
	expect(t, now, "ADDED r {}")
}

func TestWatchesThatCannotBegin(t *testing.T) {
	client := etcd(t)
	s := open(t, staged.Options{Client: client})
	_, version := list(t, s)
	create(t, s, small("p", "u1"))
	for name, after := range map[string]string{"a version of long ago": "0", "a version that is yet to come": "1000000"} {
		if _, err := s.Watch(t.Context(), after, 1); !errors.Is(err, staged.ErrTooOld) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, after := range []string{"x", "-1", "1.0"} {
		if _, err := s.Watch(t.Context(), after, 1); err == nil || errors.Is(err, staged.ErrTooOld) {
			t.Errorf("version %q: %v", after, err)
		}
	}
	expect(t, watch(t, s, version, 1), "ADDED p {}")
}

// A reader that does not read loses its watch, and nobody else does.
func TestASlowReaderHoldsUpNobody(t *testing.T) {
	s := open(t, staged.Options{Client: etcd(t)})
	slow, fast := watch(t, s, "", 2), watch(t, s, "", 2)
	o := create(t, s, small("p", "u1"))
	expect(t, fast, "ADDED p {}")
	for i := range 5 {
		o = update(t, s, o, fmt.Sprint(i))
		next(t, fast)
	}
	slow.Bookmark() // there is no room, or no watch: it is left out
	var got []string
	for e := range slow.Events() {
		got = append(got, told(e))
	}
	equal(t, "what the slow one had", []string{"ADDED p {}", "MODIFIED p 0 before {}"}, got)
	if !errors.Is(slow.Err(), staged.ErrSlow) {
		t.Errorf("the reason of its end: %v", slow.Err())
	}
}

func TestEverythingEndsWithTheStore(t *testing.T) {
	s, err := staged.New(staged.Options{Client: etcd(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	o := create(t, s, small("p", "u1"))
	w := watch(t, s, "", 1)
	waited := make(chan error, 1)
	go func() {
		_, err := s.Wait(t.Context(), o)
		waited <- err
	}()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-waited; !errors.Is(err, staged.ErrStopped) {
		t.Errorf("a wait: %v", err)
	}
	for range w.Events() {
	}
	if !errors.Is(w.Err(), staged.ErrStopped) {
		t.Errorf("a watch: %v", w.Err())
	}
	if _, _, err := s.List(t.Context()); !errors.Is(err, staged.ErrStopped) {
		t.Errorf("a list: %v", err)
	}
	if _, err := s.Watch(t.Context(), "", 1); !errors.Is(err, staged.ErrStopped) {
		t.Errorf("another watch: %v", err)
	}
}

// A name with any characters is another object than every other name, and stays below its cluster.
func TestNamesReachNoOtherKey(t *testing.T) {
	client := etcd(t)
	s := open(t, staged.Options{Client: client})
	keys := []*initializerv1.StagedKey{}
	for _, parts := range [][3]string{
		{"a", "", "x/y"}, {"a", "x", "y"}, {"a", "x%2Fy", ""}, {"a", "x/y", ""}, {"a/", "x", "y"}, {"a", "..", "y"}, {"a", "", "../b"}, {"", "a", "y"}, {"a", "x", "y/"},
	} {
		k := pod(parts[0], parts[2], "u").Key
		k.Namespace = parts[1]
		keys = append(keys, k)
		create(t, s, &initializerv1.StagedObject{Key: k, Uid: "u"})
	}
	objects, _ := list(t, s)
	if len(objects) != len(keys) {
		t.Errorf("%d objects, want %d", len(objects), len(keys))
	}
	for _, k := range keys {
		got, err := s.Get(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "key", k, got.GetKey())
	}
	below, err := client.Get(t.Context(), "/portcullis/staged/a/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || below.Count != 7 {
		t.Errorf("cluster a has %d keys, want 7: %v", below.Count, err)
	}
}
