package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk/kube/initializers"
	"github.com/portcullis-mesh/portcullis/internal/initializer/gateway"
)

// answering is a service whose methods the test writes.
type answering struct {
	initializerv1.UnimplementedInitializerServiceServer

	watch func(*initializerv1.WatchRequest, grpc.ServerStreamingServer[initializerv1.WatchResponse]) error
}

func (answering) MayCall(context.Context) error { return nil }

func (answering) Admit(ctx context.Context) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

func (answering) Turn(context.Context) (done func(), err error) { return func() {}, nil }

func (answering) Spend(context.Context, int) error { return nil }

func (answering) Get(context.Context, *initializerv1.GetRequest) (*initializerv1.GetResponse, error) {
	return &initializerv1.GetResponse{Object: &initializerv1.StagedObject{}}, nil
}

func (a answering) Watch(r *initializerv1.WatchRequest, s grpc.ServerStreamingServer[initializerv1.WatchResponse]) error {
	return a.watch(r, s)
}

type callerKey struct{}

// serving is a gateway in front of a service. The caller of a request is its header From.
func serving(t *testing.T, s gateway.Service) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(gateway.Options{
		Service: s,
		Identify: func(r *http.Request) (context.Context, func()) {
			return context.WithValue(r.Context(), callerKey{}, r.Header.Get("From")), func() {}
		},
		Caller: func(ctx context.Context) string { return ctx.Value(callerKey{}).(string) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestBodiesInFlightAreBounded: a caller that sends its bodies slowly gets half of all places, and the next caller half of the rest.
func TestBodiesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serving(t, answering{})
		var answers []*httptest.ResponseRecorder
		var bodies []*io.PipeWriter
		ended := map[*httptest.ResponseRecorder]chan struct{}{} // closed when a request has its answer
		send := func(who, method string) *httptest.ResponseRecorder {
			body, end := io.Pipe()
			r := httptest.NewRequestWithContext(t.Context(), method, initializers.Path("prod-1")+web, body)
			r.Header.Set("From", who)
			w := httptest.NewRecorder()
			w.Code = 0 // until it is answered
			answers, bodies = append(answers, w), append(bodies, end)
			done := make(chan struct{})
			ended[w] = done
			go func() {
				defer close(done)
				g.ServeHTTP(w, r)
			}()
			synctest.Wait()
			return w
		}
		late := func(w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
			select {
			case <-ended[w]:
				t.Errorf("a refusal comes at once: %d", w.Code)
			default:
			}
			<-ended[w]
			return w
		}
		for _, caller := range []struct {
			who  string
			room int
		}{{"one", gateway.MaxBodies / 2}, {"two", gateway.MaxBodies / 4}} {
			for i := range caller.room {
				if w := send(caller.who, http.MethodPut); w.Code != 0 {
					t.Fatalf("%s, body %d: %d %s", caller.who, i, w.Code, w.Body)
				}
			}
			if w := late(send(caller.who, http.MethodPatch)); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%s, one more: %d %s", caller.who, w.Code, w.Body)
			}
			if w := send(caller.who, http.MethodGet); w.Code != http.StatusAccepted {
				t.Errorf("%s, a request without a body: %d %s", caller.who, w.Code, w.Body)
			}
		}
		// A caller holds at most as many as it leaves free. Beside the second, the first has a place again once it holds 11.
		for i := range gateway.MaxBodies/2 - 11 {
			_ = bodies[i].Close()
			synctest.Wait()
			if answers[i].Code == 0 {
				t.Error("a request whose body has ended is not answered")
			}
		}
		if w := send("one", http.MethodDelete); w.Code != 0 {
			t.Errorf("after some have ended: %d %s", w.Code, w.Body)
		}
		if w := late(send("one", http.MethodDelete)); w.Code != http.StatusTooManyRequests {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		for _, end := range bodies {
			_ = end.Close()
		}
	})
}

// TestBookmarksOfAWatch: they are asked for as in Kubernetes, and have nothing but a version.
func TestBookmarksOfAWatch(t *testing.T) {
	for query, want := range map[string]bool{"": false, "&allowWatchBookmarks=true": true, "&allowWatchBookmarks=false": false} {
		g := serving(t, answering{watch: func(r *initializerv1.WatchRequest, s grpc.ServerStreamingServer[initializerv1.WatchResponse]) error {
			if r.GetBookmarks() != want {
				t.Errorf("%q: bookmarks: %t", query, r.GetBookmarks())
			}
			if err := s.SendHeader(nil); err != nil {
				return err
			}
			return s.Send(&initializerv1.WatchResponse{
				Type: initializerv1.EventType_EVENT_TYPE_BOOKMARK, Object: &initializerv1.StagedObject{ResourceVersion: "7"},
			})
		}})
		w := httptest.NewRecorder()
		path := initializers.Path("prod-1") + "/api/v1/pods?watch=true&includeUninitialized=true&resourceVersion=5" + query
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		const bookmark = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"}}}`
		if got := strings.TrimSpace(w.Body.String()); got != bookmark {
			t.Errorf("%q: %s, want %s", query, got, bookmark)
		}
	}
}
