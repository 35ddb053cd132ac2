package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// watch answers with events until the caller or the service ends them, or the time is over.
func (g *Gateway) watch(ctx context.Context, a *answer, q *query) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	r := &initializerv1.WatchRequest{Selection: a.target.list(), ResourceVersion: q.resourceVersion, Bookmarks: q.bookmarks || q.initialEvents}
	switch {
	case q.initialEvents:
		r.ResourceVersion = "" // all that is there now, which is not older than any version
	case q.noInitialEvents && r.GetResourceVersion() == "":
		now, err := g.o.Service.List(ctx, r.GetSelection())
		if err != nil {
			return err
		}
		r.ResourceVersion = now.GetResourceVersion()
	}
	e := &events{ctx: ctx, gateway: g, answer: a, query: q, shown: map[string]bool{}}
	defer e.close()
	err := g.o.Service.Watch(r, e)
	if ctx.Err() != nil || a.events != nil && grpcstatus.Code(err) == codes.Unavailable {
		return nil // its reader goes on where it was
	}
	return err
}

var errNotSent = errors.New("gateway: the stream has ended")

// events writes the messages of a watch as events of Kubernetes. It is the stream of a call of Watch.
type events struct {
	grpc.ServerStream // nil: other methods are not called

	ctx     context.Context //nolint:containedctx // a stream has one
	gateway *Gateway
	answer  *answer
	query   *query

	mu    sync.Mutex // guards the fields below, and the answer: the service may leave a Send behind
	ended bool
	shown map[string]bool // uids of the objects that were sent and not taken back; of a watch with a selector
}

var _ grpc.ServerStreamingServer[initializerv1.WatchResponse] = (*events)(nil)

// Context is part of grpc.ServerStream.
func (e *events) Context() context.Context { return e.ctx }

// SendHeader is part of grpc.ServerStream: the watch has begun.
func (e *events) SendHeader(metadata.MD) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errNotSent
	}
	e.answer.events = e
	_ = e.answer.control.SetWriteDeadline(time.Now().Add(timeout))
	e.answer.w.Header().Set("Content-Type", jsonType)
	e.answer.w.Header().Set("Cache-Control", "no-cache, private")
	e.answer.w.WriteHeader(http.StatusOK)
	return e.answer.control.Flush()
}

// Send is part of grpc.ServerStreamingServer.
func (e *events) Send(m *initializerv1.WatchResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return errNotSent
	}
	done, err := e.gateway.o.Service.Turn(e.ctx)
	if err != nil {
		return err
	}
	kind, object, err := e.event(m)
	done()
	if err != nil || kind == "" {
		return err
	}
	return e.write(kind, object)
}

// event is a message as an event; of no type if there is nothing to say.
func (e *events) event(m *initializerv1.WatchResponse) (kind string, object json.RawMessage, err error) {
	o := m.GetObject()
	switch m.GetType() {
	case initializerv1.EventType_EVENT_TYPE_BOOKMARK:
		object, err = bookmark(o.GetResourceVersion(), m.GetInitialEventsEnd() && e.query.initialEvents)
		return "BOOKMARK", object, err
	case initializerv1.EventType_EVENT_TYPE_ADDED:
		kind = "ADDED"
	case initializerv1.EventType_EVENT_TYPE_MODIFIED:
		kind = "MODIFIED"
	case initializerv1.EventType_EVENT_TYPE_DELETED:
		kind = "DELETED"
	default:
		return "", nil, nil
	}
	if kind = e.selected(kind, o); kind == "" {
		return "", nil, nil
	}
	object, err = encode(o)
	return kind, object, err
}

// selected is the type of an event for a reader who sees only the objects that the query selects: an object comes and goes with its labels.
func (e *events) selected(kind string, o *initializerv1.StagedObject) string {
	if e.query.uninitialized && e.query.labels.Empty() && e.query.fields.Empty() {
		return kind
	}
	before, now := e.shown[o.GetUid()], kind != "DELETED" && e.query.selects(o)
	// A reader that goes on after a version has been sent objects that this watch does not know.
	resumed := e.query.resourceVersion != "" && !e.query.initialEvents && kind != "ADDED"
	switch {
	case now:
		e.shown[o.GetUid()] = true
		if !before && !resumed {
			return "ADDED"
		}
		return kind
	case before || resumed && e.query.uninitialized:
		delete(e.shown, o.GetUid())
		return "DELETED"
	}
	return ""
}

// bookmark is the object of a bookmark.
func bookmark(version string, initialEventsEnd bool) (json.RawMessage, error) {
	o := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}}
	o.SetResourceVersion(version)
	if initialEventsEnd {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return marshal(o)
}

// write writes an event. The lock is held.
func (e *events) write(kind string, object json.RawMessage) error {
	raw, err := marshal(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}{kind, object})
	if err != nil {
		return err
	}
	_ = e.answer.control.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := e.answer.w.Write(append(raw, '\n')); err != nil {
		return err
	}
	return e.answer.control.Flush()
}

// fail ends the watch with an error. ABORTED becomes 410, since a reader has to list again after either.
func (e *events) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if code := grpcstatus.Code(err); code == codes.Aborted {
		err = grpcstatus.Error(codes.OutOfRange, grpcstatus.Convert(err).Message())
	}
	if raw, err := marshal(statusOf(err, e.answer.target)); err == nil {
		_ = e.write("ERROR", raw) // the caller has gone
	}
}

// close waits for a Send that is under way, and lets no other begin.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
}

// apiVersion is the apiVersion of the objects of the path.
func (t target) apiVersion() string {
	return schema.GroupVersion{Group: t.resource.GetGroup(), Version: t.resource.GetVersion()}.String()
}
