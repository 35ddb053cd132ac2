package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
	clusterv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/cluster/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dispatcher is a Server behind a gRPC server in memory. Cluster "west" may not be served.
type dispatcher struct {
	*testing.T
	server  *Server
	conn    *grpc.ClientConn
	revoked atomic.Bool
	webhook custom.Caller // behind each bridge
}

func newDispatcher(t *testing.T) *dispatcher {
	t.Helper()
	d := &dispatcher{T: t}
	r := NewServer(func(_ context.Context, cluster string) error {
		if cluster == "west" || d.revoked.Load() {
			return errors.New("not allowed")
		}
		return nil
	})
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	clusterv1.RegisterClusterServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); serving.Wait() })
	d.server, d.conn = r, conn
	return d
}

// bridge serves an API server until stop is called.
func (d *dispatcher) bridge(api http.Handler) (stop func()) {
	d.Helper()
	server := httptest.NewServer(api)
	to, err := url.Parse(server.URL)
	if err != nil {
		d.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.Context())
	transport := &http.Transport{}
	handler := NewHandler(to, answers.Transport{RoundTripper: transport}, d.webhook, slog.New(slog.DiscardHandler))
	before := connected(d.server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = Serve(ctx, d.conn, "east", handler) })
	stop = sync.OnceFunc(func() { cancel(); serving.Wait(); transport.CloseIdleConnections(); server.Close() })
	d.Cleanup(stop)
	d.until("the bridge is connected", func() bool { return connected(d.server) > before })
	return stop
}

func (d *dispatcher) until(what string, done func() bool) {
	d.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			d.Fatalf("waited in vain until %s", what)
		}
	}
}

// get sends a request to the API server of the cluster.
func (d *dispatcher) get(path string, header http.Header) (code int, body string, err error) {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), http.MethodGet, "http://east.invalid"+path, http.NoBody)
	if err != nil {
		d.Fatal(err)
	}
	r.Header = header
	response, err := d.server.Transport("east").RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// echo answers with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Accept"))
	for _, name := range []string{"Authorization", "Impersonate-User", "X-Remote-User", "Cookie"} {
		if v := r.Header.Get(name); v != "" {
			fmt.Fprintf(w, " LEAKED %s", name)
		}
	}
}

func TestADispatcherReachesTheAPIServer(t *testing.T) {
	d := newDispatcher(t)
	if _, _, err := d.get("/version", nil); !errors.Is(err, ErrNoBridge) {
		t.Errorf("without a bridge: %v", err)
	}
	d.bridge(http.HandlerFunc(echo))
	header := http.Header{
		"Accept": {"application/json"}, "Authorization": {"Bearer x"}, "Impersonate-User": {"root"}, "X-Remote-User": {"root"}, "Cookie": {"a=b"},
	}
	code, body, err := d.get("/api/v1/namespaces?watch=true&limit=5", header)
	if err != nil || code != http.StatusOK || body != "GET /api/v1/namespaces?watch=true&limit=5 application/json" {
		t.Errorf("%d %q %v", code, body, err)
	}
	code, body, err = d.get("/api/v1/secrets", header)
	if err != nil || code != http.StatusForbidden || !strings.Contains(body, "may not ask for GET /api/v1/secrets") {
		t.Errorf("%d %q %v", code, body, err)
	}
}

func TestManyRequestsShareOneStream(t *testing.T) {
	d := newDispatcher(t)
	large := strings.Repeat("x", 3*maxChunk+1)
	d.bridge(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, large+r.URL.Path) }))
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			path := fmt.Sprintf("/api/v1/namespaces/n%d", i)
			if code, body, err := d.get(path, nil); err != nil || code != http.StatusOK || body != large+path {
				t.Errorf("%s: %d, %d bytes, %v", path, code, len(body), err)
			}
		})
	}
	all.Wait()
}

func TestAWatchIsPassedOnAsItComes(t *testing.T) {
	d := newDispatcher(t)
	events, ended := make(chan string), make(chan struct{})
	d.bridge(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for {
			select {
			case e := <-events:
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://east.invalid/api/v1/namespaces?watch=true", http.NoBody)
	opened := make(chan *http.Response)
	go func() {
		response, err := d.server.Transport("east").RoundTrip(r)
		if err != nil {
			t.Error(err)
		}
		opened <- response
	}()
	events <- "first"
	response := <-opened
	defer response.Body.Close()
	read := func(want string) {
		t.Helper()
		line := make([]byte, len(want)+1)
		if _, err := io.ReadFull(response.Body, line); err != nil || string(line) != want+"\n" {
			t.Errorf("read %q, %v", line, err)
		}
	}
	read("first")
	events <- "second"
	read("second")
	cancel() // the API server is told that nobody watches any more
	<-ended
}

func TestAnotherBridgeTakesOver(t *testing.T) {
	d := newDispatcher(t)
	name := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	}
	d.bridge(name("one"))
	stop := d.bridge(name("two"))
	if _, body, _ := d.get("/version", nil); body != "two" {
		t.Errorf("the newest does not answer, but %q", body)
	}
	stop()
	d.until("the other one answers", func() bool { _, body, _ := d.get("/version", nil); return body == "one" })
	if n := connected(d.server); n != 1 {
		t.Errorf("%d bridges", n)
	}
}

func TestBridgesAreAuthorizedAndBounded(t *testing.T) {
	d := newDispatcher(t)
	err := Serve(t.Context(), d.conn, "west", http.NotFoundHandler())
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("another cluster: %v", err)
	}
	if err := Serve(t.Context(), d.conn, "", http.NotFoundHandler()); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no cluster: %v", err)
	}
	for range MaxPerCluster {
		d.bridge(http.NotFoundHandler())
	}
	if err := Serve(t.Context(), d.conn, "east", http.NotFoundHandler()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one bridge too many: %v", err)
	}
	if n := connected(d.server); n != MaxPerCluster {
		t.Errorf("%d bridges", n)
	}
}

func TestABridgeThatIsNotAllowedAnyMoreIsLetGo(t *testing.T) {
	d := newDispatcher(t)
	d.bridge(http.HandlerFunc(echo))
	if _, _, err := d.get("/version", nil); err != nil {
		t.Fatal(err)
	}
	d.revoked.Store(true)
	d.until("the bridge is gone", func() bool { return connected(d.server) == 0 })
	if _, _, err := d.get("/version", nil); !errors.Is(err, ErrNoBridge) {
		t.Errorf("it is still asked: %v", err)
	}
}

func TestAllowedRequests(t *testing.T) {
	for request, want := range map[string]bool{
		"GET /version": true, "GET /api": true, "GET /api/v1": true, "GET /apis": true, "GET /apis/apps": true, "GET /apis/apps/v1": true,
		"GET /api/v1/namespaces": true, "GET /api/v1/namespaces/kube-system": true,
		"GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions": true, "GET /apis/apiregistration.k8s.io/v1/apiservices": true,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews": true,

		"GET /": false, "GET /api/v1/secrets": false, "GET /api/v1/namespaces/a/secrets": false, "GET /api/v1/namespaces/a/pods/b": false,
		"GET /apis/apps/v1/deployments": false, "GET /version/x": false, "GET /healthz": false, "GET /api/v1/": false,
		"GET //api/v1/namespaces": false, "GET /api/v1/namespaces/..%2fsecrets": false, "GET /api/v1/namespaces/../secrets": false,
		"DELETE /api/v1/namespaces/a": false, "PUT /api/v1/namespaces/a": false, "PATCH /api/v1/namespaces/a": false,
		"POST /api/v1/namespaces": false, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": false,
		"GET /apis/authorization.k8s.io/v1/subjectaccessreviews": false, "GET /api/v1/namespaces/": false, "GET /api/v1/namespaces/..": false, "CONNECT /api/v1/namespaces/a": false,
	} {
		method, path, _ := strings.Cut(request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "http://east.invalid/", http.NoBody)
		u, err := url.Parse("http://east.invalid" + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.URL = u; allowed(r) != want {
			t.Errorf("%s: allowed is %t", request, !want)
		}
	}
}

// connected is the number of bridges of cluster east.
func connected(r *Server) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bridges["east"])
}
