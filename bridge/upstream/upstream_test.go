package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is a time that no test waits for.
const patience = time.Minute

// judge is a dispatcher of one function.
type judge func(ctx context.Context, r *review.Request) (review.Answer, error)

// Review implements [bridge.Reviewer].
func (j judge) Review(ctx context.Context, r *review.Request) (review.Answer, error) {
	return j(ctx, r)
}

// mesh has dispatchers that one authority has certificates for.
type mesh struct {
	*testing.T
	authority *certs.Authority
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	ca, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &mesh{t, ca}
}

func (m *mesh) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(m.authority.CA().CertPEM)
	return pool
}

func (m *mesh) certificate(spec certs.Spec) tls.Certificate {
	m.Helper()
	pair, err := m.authority.Issue(spec)
	if err != nil {
		m.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		m.Fatal(err)
	}
	return certificate
}

// dispatcher serves a judge until stop is called, and returns its address. Reviews in flight are answered before it stops, unless
// it is killed.
func (m *mesh) dispatcher(j judge) (address string, stop, kill func()) {
	m.Helper()
	listener, err := citest.Listen() // TestReviewsGoOnWhileADispatcherRestarts needs the address again.
	if err != nil {
		m.Fatal(err)
	}
	return m.dispatcherOn(listener, j)
}

func (m *mesh) dispatcherOn(listener net.Listener, j judge, options ...grpc.ServerOption) (address string, stop, kill func()) {
	m.Helper()
	b, err := bridge.New(bridge.Options{Reviewer: j, Authorize: func(caller identity.Peer, cluster string) error {
		if caller.Name() != "bridge" || cluster != "east" {
			return errors.New("not allowed")
		}
		return nil
	}})
	if err != nil {
		m.Fatal(err)
	}
	server := grpc.NewServer(append(options, grpc.WaitForHandlers(true), grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{m.certificate(certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: m.pool(), MinVersion: tls.VersionTLS13,
	})))...)
	admissionv1.RegisterAdmissionServiceServer(server, b.AdmissionService())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	kill = func() { server.Stop(); serving.Wait() }
	m.Cleanup(kill)
	return listener.Addr().String(), server.GracefulStop, kill
}

func (m *mesh) reviewer(targets ...string) *Reviewer {
	m.Helper()
	client := &tls.Config{
		Certificates: []tls.Certificate{m.certificate(certs.Spec{Identity: "bridge", Client: true})}, RootCAs: m.pool(), MinVersion: tls.VersionTLS13,
	}
	r, err := New(Options{Targets: targets, Credentials: func(name string) credentials.TransportCredentials {
		own := client.Clone()
		own.ServerName = name
		return credentials.NewTLS(own)
	}})
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(r.Close)
	return r
}

func allowed(_ context.Context, r *review.Request) (review.Answer, error) {
	return review.Answer{Response: &admissionv1.AdmissionResponse{Uid: r.Admission.GetUid(), Allowed: true}, Revision: "r1"}, nil
}

// counted counts the reviews that a judge gets.
func counted(j judge) (judge, *atomic.Int64) {
	var n atomic.Int64
	return func(ctx context.Context, r *review.Request) (review.Answer, error) { n.Add(1); return j(ctx, r) }, &n
}

func request(within time.Duration) *review.Request {
	return &review.Request{
		Stage: admissionv1.Stage_STAGE_VALIDATE, Entry: match.ParseEntry("fail-closed/10."), Deadline: time.Now().Add(within),
		Admission: &admissionv1.AdmissionRequest{Uid: "u", Cluster: "east", Operation: "CREATE"},
	}
}

func (m *mesh) passes(r *Reviewer) {
	m.Helper()
	answer, err := r.Review(m.Context(), request(patience))
	if err != nil || !answer.Response.GetAllowed() || answer.Revision != "r1" || answer.Response.GetUid() != "u" {
		m.Errorf("answer %v, error %v", answer, err)
	}
}

func TestReviewsAreSpreadAndPassedOnWhole(t *testing.T) {
	m := newMesh(t)
	var got atomic.Pointer[review.Request]
	a, first := counted(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		got.Store(r)
		return allowed(ctx, r)
	})
	b, second := counted(allowed)
	one, _, _ := m.dispatcher(a)
	two, _, _ := m.dispatcher(b)
	r := m.reviewer(one, two)
	for first.Load() == 0 || second.Load() == 0 { // connections are made in the background
		m.passes(r)
	}
	if r := got.Load(); r.Stage != admissionv1.Stage_STAGE_VALIDATE || r.Entry.String() != "fail-closed/10." || r.Admission.GetOperation() != "CREATE" {
		t.Errorf("the dispatcher got %+v", r)
	}
	if !r.Ready() {
		t.Error("not ready")
	}
}

func TestAReviewThatNothingMayJudgeGoesToAnotherDispatcher(t *testing.T) {
	m := newMesh(t)
	stale, asked := counted(func(context.Context, *review.Request) (review.Answer, error) {
		return review.Answer{}, errors.New("no fresh configuration")
	})
	one, _, _ := m.dispatcher(stale)
	two, _, _ := m.dispatcher(allowed)
	r := m.reviewer(one, two)
	for asked.Load() < 3 {
		m.passes(r)
	}
}

func TestReviewsGoOnWhileADispatcherRestarts(t *testing.T) {
	m := newMesh(t)
	one, stop, _ := m.dispatcher(allowed)
	two, _, _ := m.dispatcher(allowed)
	r := m.reviewer(one, two)
	m.passes(r)
	stop()
	for range 50 {
		m.passes(r)
	}
	listener, err := net.Listen("tcp", one)
	if err != nil {
		t.Fatal(err)
	}
	back, n := counted(allowed)
	m.dispatcherOn(listener, back)
	for n.Load() == 0 {
		m.passes(r)
	}
}

func TestWithoutADispatcherTheErrorComesInTime(t *testing.T) {
	m := newMesh(t)
	one, stop, _ := m.dispatcher(allowed)
	stop()
	r := m.reviewer(one)
	asked := request(300 * time.Millisecond)
	if _, err := r.Review(t.Context(), asked); !errors.Is(err, bridge.ErrNoDispatcher) {
		t.Errorf("error %v", err)
	}
	if r.Ready() {
		t.Error("ready without a dispatcher")
	}
}

func TestAReviewThatMayHaveBeenJudgedIsNotSentAgain(t *testing.T) {
	m := newMesh(t)
	var kills [2]func()
	var asked atomic.Int64
	dying := func(i int) judge {
		return func(ctx context.Context, _ *review.Request) (review.Answer, error) {
			if asked.Add(1) == 1 {
				go kills[i]()
			}
			<-ctx.Done()
			return review.Answer{}, ctx.Err()
		}
	}
	var targets [2]string
	for i := range targets {
		targets[i], _, kills[i] = m.dispatcher(dying(i))
	}
	r := m.reviewer(targets[:]...)
	if _, err := r.Review(t.Context(), request(patience)); !errors.Is(err, bridge.ErrNoDispatcher) {
		t.Errorf("error %v", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("dispatchers were asked %d times, want once", n)
	}
}

func TestAnswersOfADispatcherThatAreErrorsAreNotRepeated(t *testing.T) {
	m := newMesh(t)
	j, asked := counted(allowed)
	one, _, _ := m.dispatcher(j)
	r := m.reviewer(one)
	foreign := request(patience)
	foreign.Admission.Cluster = "west"
	if _, err := r.Review(t.Context(), foreign); !errors.Is(err, bridge.ErrNoDispatcher) || asked.Load() != 0 {
		t.Errorf("error %v after %d reviews", err, asked.Load())
	}
}

// TestAReviewThatIsRefusedForItsContentIsDenied: as an error it would pass a fail-open entry.
func TestAReviewThatIsRefusedForItsContentIsDenied(t *testing.T) {
	m := newMesh(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j, asked := counted(allowed)
	address, _, _ := m.dispatcherOn(listener, j, grpc.MaxRecvMsgSize(10_000))
	r := m.reviewer(address)
	for name, tt := range map[string]struct {
		object string
		code   int32
	}{
		"bytes behind the object":          {`{} {}`, http.StatusBadRequest},
		"a message past the limit of gRPC": {`{"x":"` + strings.Repeat("x", 20_000) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		padded := request(patience)
		padded.Admission.Object = &admissionv1.Object{Raw: []byte(tt.object)}
		answer, err := r.Review(t.Context(), padded)
		if err != nil || answer.Response.GetAllowed() || answer.Response.GetStatus().GetCode() != tt.code || answer.Response.GetUid() != "u" {
			t.Errorf("%s: %v, %v", name, answer.Response, err)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d were judged", n)
	}
}

// TestADispatcherWithoutMemoryIsNoDenial: it does not depend on the review, and another dispatcher may have the memory.
func TestADispatcherWithoutMemoryIsNoDenial(t *testing.T) {
	m := newMesh(t)
	full, asked := counted(func(context.Context, *review.Request) (review.Answer, error) {
		return review.Answer{}, review.ErrNoMemory
	})
	one, _, _ := m.dispatcher(full)
	_, err := m.reviewer(one).Review(t.Context(), request(2*time.Second))
	if !errors.Is(err, bridge.ErrNoDispatcher) || !errors.Is(err, bridge.ErrOverloaded) {
		t.Errorf("error %v", err)
	}
	two, _, _ := m.dispatcher(allowed)
	r := m.reviewer(one, two)
	for before := asked.Load(); asked.Load() < before+3; {
		m.passes(r)
	}
}

// TestTheReasonIsLoggedOnce: an operator sees why the reviews of a bridge are not judged, and when they are again.
func TestTheReasonIsLoggedOnce(t *testing.T) {
	var text bytes.Buffer
	u := &Reviewer{log: slog.New(slog.NewTextHandler(&text, nil))}
	refused := status.Error(codes.PermissionDenied, "identity may not")
	for _, err := range []error{nil, refused, refused, status.Error(codes.Unavailable, "gone"), nil, nil, refused} {
		u.note(err)
	}
	if n := strings.Count(text.String(), "identity may not"); n != 2 {
		t.Errorf("logged %d times, want twice:\n%s", n, text.String())
	}
	if n := strings.Count(text.String(), "judges again"); n != 1 {
		t.Errorf("%d ends, want one:\n%s", n, text.String())
	}
}

func TestBadTargetsAreRefused(t *testing.T) {
	many := make([]string, MaxTargets+1)
	for i := range many {
		many[i] = "a:1"
	}
	for _, targets := range [][]string{nil, {"a"}, {":1"}, {"a:"}, many} {
		if _, err := New(Options{Targets: targets, Credentials: func(string) credentials.TransportCredentials { return nil }}); err == nil {
			t.Errorf("%q is accepted", targets)
		}
	}
}

func TestTheTraceOfAReviewReachesTheDispatcher(t *testing.T) {
	m := newMesh(t)
	joined := make(chan trace.SpanContext, 1)
	address, _, _ := m.dispatcher(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		joined <- trace.SpanContextFromContext(ctx)
		return allowed(ctx, r)
	})
	reviewer := m.reviewer(address)
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	for name, sent := range map[string]trace.SpanContextConfig{
		"sampled":     {TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state},
		"not sampled": {TraceID: trace.TraceID{3}, SpanID: trace.SpanID{4}},
		"no trace":    {},
	} {
		want := trace.NewSpanContext(sent)
		answer, err := reviewer.Review(trace.ContextWithSpanContext(t.Context(), want), request(patience))
		if err != nil || !answer.Response.GetAllowed() {
			t.Fatalf("%s: answer %v, error %v", name, answer, err)
		}
		if got := <-joined; !got.Equal(want.WithRemote(want.IsValid())) {
			t.Errorf("%s: the dispatcher judges in %v, want %v", name, got, want)
		}
	}
}
