package service

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/staged"
)

// reader is the other end of a stream: it takes a message when read is sent to.
type reader struct {
	grpc.ServerStream

	ctx   context.Context
	begun chan struct{}
	read  chan struct{}
	got   chan string // names, and versions of bookmarks
}

func (r *reader) Context() context.Context     { return r.ctx }
func (r *reader) SendHeader(metadata.MD) error { close(r.begun); return nil }
func (r *reader) Send(m *initializerv1.WatchResponse) error {
	select {
	case <-r.read:
		if m.GetType() == initializerv1.EventType_EVENT_TYPE_BOOKMARK {
			r.got <- "bookmark " + m.GetObject().GetResourceVersion()
		} else {
			r.got <- m.GetObject().GetKey().GetName()
		}
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

type watches struct {
	*Service

	t     *testing.T
	store *staged.Store
}

// newWatches is a service with a real etcd, to which everybody is an operator.
func newWatches(t *testing.T) *watches {
	t.Helper()
	etcd, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	store, err := staged.New(staged.Options{Client: etcd.Client()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	s, err := New(Options{Store: store, Grants: onlyOne{}, Identity: func(context.Context) identity.Peer { return identity.Named("one") }})
	if err != nil {
		t.Fatal(err)
	}
	return &watches{s, t, store}
}

// open opens a watch. ended gets how it ends.
func (w *watches) open() (r *reader, ended chan error) {
	return w.openFor(&initializerv1.WatchRequest{})
}

// openFor opens a watch with a request.
func (w *watches) openFor(request *initializerv1.WatchRequest) (r *reader, ended chan error) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	r, ended = &reader{ctx: ctx, begun: make(chan struct{}), read: make(chan struct{}), got: make(chan string, 100)}, make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- w.Watch(request, r) })
	w.t.Cleanup(func() { stop(); running.Wait() })
	<-r.begun
	return r, ended
}

func (w *watches) stage(name string) {
	w.t.Helper()
	o := pod("a")
	o.Key.Name, o.ResourceVersion, o.Uid, o.Expires = name, "", name, timestamppb.New(time.Now().Add(time.Hour))
	if _, _, err := w.store.Create(w.t.Context(), o, time.Hour); err != nil {
		w.t.Fatal(err)
	}
}

// TestASlowReaderLosesItsStream: and others get everything.
func TestASlowReaderLosesItsStream(t *testing.T) {
	w := newWatches(t)
	w.buffer = 2
	slow, ended := w.open()
	fast, _ := w.open()
	for i := range 10 {
		w.stage(strconv.Itoa(i))
		fast.read <- struct{}{}
		if got := <-fast.got; got != strconv.Itoa(i) {
			t.Fatalf("the other reader got %s, want %d", got, i)
		}
	}
	close(slow.read)
	if err := <-ended; status.Code(err) != codes.Aborted {
		t.Errorf("the slow one: %v", err)
	}
	if n := len(slow.got); n > 4 {
		t.Errorf("it got %d messages, and has room for 2", n)
	}
}

func TestAReaderThatStopsReadingLosesItsStream(t *testing.T) {
	w := newWatches(t)
	w.sendTimeout = 50 * time.Millisecond
	_, ended := w.open()
	w.stage("web")
	if err := <-ended; status.Code(err) != codes.Aborted {
		t.Error(err)
	}
	if n := w.streams.InUse(); n != 0 {
		t.Errorf("%d streams are counted", n)
	}
}

// TestOneCallerHasNoMoreCallsThanItLeavesFree: the bound is at half of all when nobody else calls.
func TestOneCallerHasNoMoreCallsThanItLeavesFree(t *testing.T) {
	w := newWatches(t)
	for i := range MaxCalls / 2 {
		if _, _, err := w.enter(t.Context()); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := w.List(t.Context(), nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
}

// TestBookmarks: a reader that asks for them is told how far it is although nothing changes, and others are not.
func TestBookmarks(t *testing.T) {
	w := newWatches(t)
	if w.bookmarks != time.Minute {
		t.Errorf("the time between two bookmarks is %v", w.bookmarks)
	}
	w.bookmarks = 10 * time.Millisecond
	marked, _ := w.openFor(&initializerv1.WatchRequest{Bookmarks: true})
	plain, _ := w.open()
	next := func(r *reader) string {
		t.Helper()
		r.read <- struct{}{}
		return <-r.got
	}
	for range 3 { // the first one ends the objects from the beginning
		if got := next(marked); !strings.HasPrefix(got, "bookmark ") {
			t.Errorf("%q", got)
		}
	}
	w.stage("web")
	key := pod("a").GetKey()
	key.Name = "web"
	o, err := w.store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	got := next(marked)
	for got != "web" { // bookmarks that were made before
		got = next(marked)
	}
	version, is := strings.CutPrefix(next(marked), "bookmark ")
	after, err := strconv.Atoi(version)
	if at, _ := strconv.Atoi(o.GetResourceVersion()); !is || err != nil || after < at {
		t.Errorf("after the object of version %s: a bookmark of %q", o.GetResourceVersion(), version)
	}
	if got := next(plain); got != "web" {
		t.Errorf("the other reader got %q first", got)
	}
}
