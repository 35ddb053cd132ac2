package gateway_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/initializer/service"
)

// received is the next message of a watch, which has to be of a type about an object.
func received(t *testing.T, stream grpc.ServerStreamingClient[initializerv1.WatchResponse], kind initializerv1.EventType, name string) *initializerv1.WatchResponse {
	t.Helper()
	m, err := stream.Recv()
	if err != nil || m.GetType() != kind || m.GetObject().GetKey().GetName() != name {
		t.Fatalf("%v, %v, want %v of %q", m, err, kind, name)
	}
	return m
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestAControllerOfGRPC: list, watch, update with a conflict, delete, and a watch that goes on at another dispatcher.
func TestAControllerOfGRPC(t *testing.T) {
	m := newMesh(t)
	a, holder := m.dispatcher(), m.dispatcher()
	one, two, ctx := m.dial(a, "one"), m.dial(holder, "two"), t.Context()
	m.stage(holder, "early", first, second)
	m.stage(holder, "others", second)

	list, err := one.List(ctx, &initializerv1.ListRequest{Cluster: "prod-1"})
	if err != nil || len(list.GetObjects()) != 1 || list.GetObjects()[0].GetRemainingMs() == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	stream, err := one.Watch(ctx, &initializerv1.WatchRequest{Selection: &initializerv1.ListRequest{FirstPending: first}, Bookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	early := received(t, stream, initializerv1.EventType_EVENT_TYPE_ADDED, "early").GetObject()
	if end := received(t, stream, initializerv1.EventType_EVENT_TYPE_BOOKMARK, ""); !end.GetInitialEventsEnd() || end.GetObject().GetResourceVersion() == "" {
		t.Errorf("%v", end)
	}
	resumed, err := m.dial(holder, "one").Watch(ctx, &initializerv1.WatchRequest{ResourceVersion: list.GetResourceVersion()})
	if err == nil {
		_, err = resumed.Header() // it has begun: a watch that begins later gets the last change alone
	}
	if err != nil {
		t.Fatal(err)
	}
	changed, err := one.Update(ctx, &initializerv1.UpdateRequest{Key: early.GetKey(), ResourceVersion: early.GetResourceVersion(), Pending: []string{first, second}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = two.Update(ctx, &initializerv1.UpdateRequest{Key: early.GetKey(), ResourceVersion: early.GetResourceVersion(), Pending: []string{second}})
	wantCode(t, "an update of an older version", err, codes.Aborted)
	_, err = one.Update(ctx, &initializerv1.UpdateRequest{Key: early.GetKey(), ResourceVersion: changed.GetObject().GetResourceVersion()})
	wantCode(t, "an update that removes the second name", err, codes.InvalidArgument)
	done, err := one.Update(ctx, &initializerv1.UpdateRequest{
		Key: early.GetKey(), ResourceVersion: changed.GetObject().GetResourceVersion(), Pending: []string{second},
		Object: &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"early","namespace":"shop"},"done":true}`)},
	})
	if err != nil || !slices.Equal(done.GetObject().GetPending(), []string{second}) {
		t.Fatalf("%v, %v", done, err)
	}
	_, err = one.Update(ctx, &initializerv1.UpdateRequest{Key: early.GetKey(), ResourceVersion: done.GetObject().GetResourceVersion()})
	wantCode(t, "an update of who has acted", err, codes.NotFound)
	for _, s := range []grpc.ServerStreamingClient[initializerv1.WatchResponse]{stream, resumed} {
		received(t, s, initializerv1.EventType_EVENT_TYPE_MODIFIED, "early")
		received(t, s, initializerv1.EventType_EVENT_TYPE_DELETED, "early")
	}

	_, err = two.Delete(ctx, &initializerv1.DeleteRequest{Key: early.GetKey(), Uid: "another"})
	wantCode(t, "a deletion of another uid", err, codes.Aborted)
	_, err = m.dial(a, "viewer").Delete(ctx, &initializerv1.DeleteRequest{Key: early.GetKey()})
	wantCode(t, "a deletion of a viewer", err, codes.PermissionDenied)
	if _, err = m.dial(a, "root").Delete(ctx, &initializerv1.DeleteRequest{Key: early.GetKey(), Uid: early.GetUid()}); err != nil {
		t.Error(err)
	}
	_, err = m.dial(a, "nobody").List(ctx, &initializerv1.ListRequest{})
	wantCode(t, "a list of nobody", err, codes.PermissionDenied)
	_, err = two.Get(ctx, &initializerv1.GetRequest{Key: early.GetKey()})
	wantCode(t, "what is deleted", err, codes.NotFound)

	late := m.dial(m.dispatcher(), "one")
	stream, err = late.Watch(ctx, &initializerv1.WatchRequest{ResourceVersion: early.GetResourceVersion()})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "a watch from before this dispatcher", err, codes.OutOfRange)
	stream, err = late.Watch(ctx, &initializerv1.WatchRequest{ResourceVersion: "x"})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "a watch from nowhere", err, codes.InvalidArgument)
}

// begun is a watch that has begun, of all that a caller sees.
func begun(t *testing.T, c initializerv1.InitializerServiceClient) grpc.ServerStreamingClient[initializerv1.WatchResponse] {
	t.Helper()
	stream, err := c.Watch(t.Context(), &initializerv1.WatchRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestAWatchEndsWhenTheGrantChanges(t *testing.T) {
	m := newMesh(t)
	c := m.dial(m.dispatcher(), "one")
	stream := begun(t, c)
	m.grant("another", service.Access{Reader: true}) // of no concern
	m.grant("one", service.Access{Initializers: []service.Initializer{{Pending: conf + second}}})
	_, err := stream.Recv()
	wantCode(t, "a watch of somebody who is granted another initializer", err, codes.Aborted)
	m.grant("one", service.Access{})
	stream, err = c.Watch(t.Context(), &initializerv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "a watch of somebody who is granted nothing any more", err, codes.PermissionDenied)
}

func TestDrainEndsWatches(t *testing.T) {
	m := newMesh(t)
	d := m.dispatcher()
	c := m.dial(d, "one")
	stream := begun(t, c)
	d.service.Drain()
	_, err := stream.Recv()
	wantCode(t, "an open watch", err, codes.Unavailable)
	stream, err = c.Watch(t.Context(), &initializerv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "a new watch", err, codes.Unavailable)
	if _, err := c.List(t.Context(), &initializerv1.ListRequest{}); err != nil {
		t.Errorf("a list: %v", err)
	}
}

// TestOneCallerOpensNoMoreWatchesThanItLeavesFree: another one is let in then.
func TestOneCallerOpensNoMoreWatchesThanItLeavesFree(t *testing.T) {
	m := newMesh(t)
	d := m.dispatcher()
	c := m.dial(d, "one")
	for range service.MaxStreams / 2 {
		begun(t, c)
	}
	stream, err := c.Watch(t.Context(), &initializerv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "one more watch", err, codes.ResourceExhausted)
	begun(t, m.dial(d, "two"))
}
