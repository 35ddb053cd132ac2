package bridge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	k8sadmission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of the tests: it ends a hang, and is never the time that a test takes.
const patience = 20 * time.Second

// reviewerFunc is a Reviewer of one function.
type reviewerFunc func(ctx context.Context, r *review.Request) (review.Answer, error)

func (f reviewerFunc) Review(ctx context.Context, r *review.Request) (review.Answer, error) {
	return f(ctx, r)
}

// allow is the trivial Reviewer.
func allow(_ context.Context, r *review.Request) (review.Answer, error) {
	return review.Answer{
		Response: &admissionv1.AdmissionResponse{Uid: r.Admission.GetUid(), Allowed: true},
		Revision: "r1",
	}, nil
}

// grants is who may speak for which cluster in the tests.
func grants(caller identity.Peer, cluster string) error {
	if caller.Name() == "kube-apiserver" && (cluster == "prod-1" || cluster == "prod-2") {
		return nil
	}
	return errors.New("not granted")
}

// testOptions are small limits, so that their edges are cheap to reach.
func testOptions(reviewer reviewerFunc) Options {
	return Options{Reviewer: reviewer, Authorize: grants, MaxBodyBytes: testLimit, Memory: ledger(4 << 20)}
}

const testLimit = 128 << 10

// ledger is a memory budget.
func ledger(total int64) *memory.Ledger {
	l, err := memory.New(memory.Options{Total: total})
	if err != nil {
		panic(err)
	}
	return l
}

func newBridge(t testing.TB, options Options) *Bridge {
	t.Helper()
	b, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// edge is a Bridge that serves on a network, loopback unless said otherwise, and the certificates to call it with.
type edge struct {
	*Bridge
	addr      string
	connect   func(ctx context.Context) (net.Conn, error)
	authority *certs.Authority
	server    *Server
	stop      func() error // ends Serve and returns its error; may be called again
}

// serve runs a Bridge behind real TLS. Callers without certificate are let in as far as the Bridge's own answer.
func serve(t testing.TB, options Options) *edge {
	t.Helper()
	return serveWith(t, newBridge(t, options), tls.VerifyClientCertIfGiven, ServerOptions{})
}

func serveWith(t testing.TB, b *Bridge, auth tls.ClientAuthType, options ServerOptions) *edge {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	return serveOn(t, listener, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}, b, auth, options)
}

// serveInBubble serves in memory: in a bubble of synctest no time passes while anything computes, however busy the machine.
func serveInBubble(t testing.TB, b *Bridge, options ServerOptions) *edge {
	t.Helper()
	network := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	return serveOn(t, network, network.dial, b, tls.VerifyClientCertIfGiven, options)
}

// pipes is a listener of connections in memory with the deadlines of a socket.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func serveOn(
	t testing.TB, listener net.Listener, connect func(context.Context) (net.Conn, error), b *Bridge, auth tls.ClientAuthType, options ServerOptions,
) *edge {
	t.Helper()
	ca, err := certs.NewAuthority("bridge test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	alpn := DefaultALPN()
	if options.TLS != nil {
		alpn = options.TLS.NextProtos
	}
	options.Handler, options.TLS = b, serverTLS(t, ca, auth, alpn...)
	server, err := NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	stop := sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() { _ = stop() })
	return &edge{Bridge: b, addr: listener.Addr().String(), connect: connect, authority: ca, server: server, stop: stop}
}

func serverTLS(t testing.TB, ca *certs.Authority, auth tls.ClientAuthType, alpn ...string) *tls.Config {
	t.Helper()
	dir := t.TempDir()
	pair, err := ca.Issue(certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, caFile := dir+"/tls.crt", dir+"/tls.key", dir+"/ca.crt"
	if err := errors.Join(pair.Write(certFile, keyFile), ca.CA().WriteCert(caFile)); err != nil {
		t.Fatal(err)
	}
	reloader, err := certs.OpenReloader(certs.ReloaderOptions{CertFile: certFile, KeyFile: keyFile, CAFile: caFile})
	if err != nil {
		t.Fatal(err)
	}
	return reloader.ServerTLS(tls.VersionTLS12, auth, alpn...)
}

// clientTLS is the configuration of a caller; without an identity it has no certificate.
func (e *edge) clientTLS(t testing.TB, ca *certs.Authority, identity string) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.authority.CA().CertPEM)
	config := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	if identity == "" {
		return config
	}
	pair, err := ca.Issue(certs.Spec{Identity: identity, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{cert}
	return config
}

// client is an HTTP client as an API server is one: HTTP/1.1, keeping its connections.
func (e *edge) client(t testing.TB) *http.Client { return e.clientAs(t, "kube-apiserver") }

// clientAs is client with the certificate of an identity; empty has none.
func (e *edge) clientAs(t testing.TB, identity string) *http.Client {
	t.Helper()
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return e.connect(ctx) },
		TLSClientConfig: e.clientTLS(t, e.authority, identity), MaxIdleConnsPerHost: 64,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// only lets a client speak one version of HTTP.
func only(t testing.TB, client *http.Client, version int) *http.Client {
	t.Helper()
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		t.Fatal("not an http.Transport")
	}
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(version == 1)
	transport.Protocols.SetHTTP2(version == 2)
	return client
}

// client2 is an HTTP/2 client.
func (e *edge) client2(t testing.TB) *http.Client {
	t.Helper()
	return only(t, e.client(t), 2)
}

func (e *edge) url(path string) string { return "https://" + e.addr + path }

// wire is a raw connection: tests write bytes to it that need not be HTTP.
type wire struct {
	net.Conn
	reader *bufio.Reader
}

// secure opens a connection and makes its handshake.
func (e *edge) secure(ctx context.Context, config *tls.Config) (net.Conn, error) {
	conn, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

func (e *edge) dial(t testing.TB) *wire { return e.dialAs(t, "kube-apiserver") }

// dialAs opens a connection with the certificate of an identity; empty has none.
func (e *edge) dialAs(t testing.TB, identity string) *wire {
	t.Helper()
	conn, err := e.secure(t.Context(), e.clientTLS(t, e.authority, identity))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{Conn: conn, reader: bufio.NewReader(conn)}
}

func (w *wire) send(t testing.TB, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// receive reads one response with its whole body.
func (w *wire) receive(t testing.TB) (*http.Response, []byte) {
	t.Helper()
	response, err := http.ReadResponse(w.reader, &http.Request{Method: http.MethodPost})
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("reading the answer's body: %v", err)
	}
	return response, body
}

const validatePath = "/v1/clusters/prod-1/validate"

// post is a request as an API server writes it, with headers replaced or added by name.
func post(path, body string, headers ...string) string {
	fields := map[string]string{
		"Host": "bridge", "Content-Type": "application/json", "Content-Length": fmt.Sprint(len(body)),
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		fields[name] = value
		if value == "" {
			delete(fields, name)
		}
	}
	var text strings.Builder
	text.WriteString("POST " + path + " HTTP/1.1\r\n")
	for name, value := range fields {
		text.WriteString(name + ": " + value + "\r\n")
	}
	return text.String() + "\r\n" + body
}

// reviewOf is an AdmissionReview as an API server writes it, padded to a size; 0 does not pad.
func reviewOf(uid string, size int) string {
	const tail = `"}}}}`
	head := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + uid + `",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"operation":"CREATE","namespace":"default","userInfo":{"username":"alice"},` +
		`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`
	return head + strings.Repeat("x", max(0, size-len(head)-len(tail))) + tail
}

// alphaReview is an AdmissionReview as an API server of Kubernetes 1.7 writes it: it has no uid.
const alphaReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{` +
	`"kind":{"group":"","version":"v1","kind":"Pod"},"object":{"apiVersion":"v1","kind":"Pod"},"operation":"CREATE",` +
	`"namespace":"default","resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{"username":"alice"}},` +
	`"status":{"allowed":false}}`

// answered is an answer as a caller reads it.
type answered struct {
	status  int
	uid     string // of the AdmissionReview; empty in a Status
	allowed bool
	code    int32 // of the denial or of the Status
	message string
	header  http.Header
}

func understand(t testing.TB, response *http.Response, body []byte) answered {
	t.Helper()
	got := answered{status: response.StatusCode, header: response.Header}
	if ct := response.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type = %q, want JSON (body %q)", ct, body)
	}
	if response.StatusCode != http.StatusOK {
		var status metav1.Status
		if err := json.Unmarshal(body, &status); err != nil {
			t.Errorf("the body of a %d is no Status: %v\n%s", response.StatusCode, err, body)
		}
		if status.Kind != "Status" || int(status.Code) != response.StatusCode || status.Status != metav1.StatusFailure {
			t.Errorf("Status = %+v, want one with code %d", status, response.StatusCode)
		}
		got.code, got.message = status.Code, status.Message
		return got
	}
	var answer struct {
		metav1.TypeMeta
		Response *k8sadmission.AdmissionResponse `json:"response"`
		Status   *struct {                       // of v1alpha1
			Allowed bool           `json:"allowed"`
			Result  *metav1.Status `json:"status"`
		} `json:"status"`
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&answer)
	if alpha := answer.Status; err == nil && answer.APIVersion == patchless && alpha != nil {
		answer.Response = &k8sadmission.AdmissionResponse{Allowed: alpha.Allowed, Result: alpha.Result}
	} else if alpha != nil {
		t.Errorf("a status in %q:\n%s", answer.APIVersion, body)
	}
	if err != nil || answer.Response == nil {
		t.Errorf("the answer is no AdmissionReview: %v\n%s", err, body)
		return got
	}
	got.uid, got.allowed = string(answer.Response.UID), answer.Response.Allowed
	if answer.Response.Result != nil {
		got.code, got.message = answer.Response.Result.Code, answer.Response.Result.Message
	}
	return got
}

// ask sends a review through an HTTP client. It may be called from any goroutine.
func ask(t testing.TB, client *http.Client, url, body string) answered {
	t.Helper()
	response, err := client.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("asking: %v", err)
		return answered{}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("reading the answer: %v", err)
		return answered{}
	}
	return understand(t, response, text)
}

// eventually waits for a condition that another goroutine makes true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never became true: %s", what)
		}
	}
}
