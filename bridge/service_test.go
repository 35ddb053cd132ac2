package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	"github.com/portcullis-mesh/portcullis/dispatcher/review"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// serveGRPC serves the AdmissionService and returns a client of it per identity; "" has no certificate.
func serveGRPC(t *testing.T, b *Bridge) func(identity string) admissionv1.AdmissionServiceClient {
	t.Helper()
	ca, err := certs.NewAuthority("grpc test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(serverTLS(t, ca, tls.VerifyClientCertIfGiven))))
	admissionv1.RegisterAdmissionServiceServer(server, b.AdmissionService())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	e := &edge{Bridge: b, addr: listener.Addr().String(), authority: ca}
	return func(identity string) admissionv1.AdmissionServiceClient {
		conn, err := grpc.NewClient(e.addr, grpc.WithTransportCredentials(credentials.NewTLS(e.clientTLS(t, ca, identity))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return admissionv1.NewAdmissionServiceClient(conn)
	}
}

func grpcReview() *admissionv1.ReviewRequest {
	return &admissionv1.ReviewRequest{
		Stage: admissionv1.Stage_STAGE_VALIDATE, Entry: "closed", Explain: true,
		Request: &admissionv1.AdmissionRequest{Uid: "u1", Cluster: "prod-1", Operation: "CREATE"},
		Facts:   &admissionv1.ClusterFacts{NamespaceExists: proto.Bool(true)},
	}
}

func TestReviewOverGRPC(t *testing.T) {
	var got *review.Request
	reviewer := func(_ context.Context, r *review.Request) (review.Answer, error) {
		got = r
		return review.Answer{
			Response: &admissionv1.AdmissionResponse{Uid: "u1", Allowed: true}, Revision: "r1",
			Outcomes: []*admissionv1.HookOutcome{{Hook: "a.b.c", Outcome: "allowed"}},
		}, nil
	}
	client := serveGRPC(t, newBridge(t, testOptions(reviewer)))("kube-apiserver")
	response, err := client.Review(t.Context(), grpcReview())
	if err != nil {
		t.Fatal(err)
	}
	if !response.GetResponse().GetAllowed() || response.GetRevision() != "r1" || len(response.GetOutcomes()) != 1 {
		t.Errorf("response = %v, want the answer with revision and outcomes", response)
	}
	if got.Stage != admissionv1.Stage_STAGE_VALIDATE || got.Entry.Name != "closed" || !got.Explain || got.Admission.GetCluster() != "prod-1" {
		t.Errorf("request = %+v, want what was asked", got)
	}
}

func TestRefusalsOverGRPC(t *testing.T) {
	tests := map[string]struct {
		identity string
		change   func(r *admissionv1.ReviewRequest)
		reviewer reviewerFunc
		want     codes.Code
		message  string
	}{
		"Without certificate": {"", nil, allow, codes.Unauthenticated, "client certificate"},
		"For a cluster of somebody else": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Request.Cluster = "prod-9" }, allow, codes.PermissionDenied, "spec.identities",
		},
		"For no cluster": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Request.Cluster = "" }, allow, codes.PermissionDenied, "spec.identities",
		},
		"Without request": {"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Request = nil }, allow, codes.PermissionDenied, ""},
		"Without uid": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Request.Uid = "" }, allow, codes.InvalidArgument, "no uid",
		},
		"Without stage": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Stage = 0 }, allow, codes.InvalidArgument, "stage",
		},
		"For the stage of initializers, which is part of the mutating one": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Stage = admissionv1.Stage_STAGE_INITIALIZE }, allow, codes.InvalidArgument, "stage",
		},
		"For a stage that is not known": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Stage = 99 }, allow, codes.InvalidArgument, "stage",
		},
		"An object that hooks have changed": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) { r.Request.ObjectRevision = 1 }, allow, codes.InvalidArgument, "as the API server did",
		},
		"A request that is not whole": {
			"kube-apiserver",
			func(r *admissionv1.ReviewRequest) { r.Request.Projection = admissionv1.Projection_PROJECTION_METADATA },
			allow, codes.InvalidArgument, "as the API server did",
		},
		"An object with a field twice": {
			"kube-apiserver", func(r *admissionv1.ReviewRequest) {
				r.Request.Object = &admissionv1.Object{Raw: []byte(`{"kind":"Pod","metadata":{},"metadata":{"labels":{"a":"b"}}}`)}
			}, allow, codes.InvalidArgument, `duplicate field "metadata"`,
		},
		"Nothing may judge": {
			"kube-apiserver", nil,
			func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{}, errors.New("stale")
			},
			codes.Unavailable, "try again",
		},
		"Nothing may judge, and too many wait for that": {
			"kube-apiserver", nil,
			func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{}, fmt.Errorf("stale: %w", &memory.FullError{})
			},
			codes.Unavailable, "as many bytes as they may",
		},
		"No memory for the decoded objects": {
			"kube-apiserver", nil,
			func(context.Context, *review.Request) (review.Answer, error) {
				return review.Answer{}, fmt.Errorf("%w: %w", review.ErrNoMemory, &memory.FullError{})
			},
			codes.ResourceExhausted, "no memory for the decoded objects",
		},
		"Before the first configuration": {
			"early", nil, allow, codes.Unavailable, "no configuration yet",
		},
		"A panic before the uid is believed": {
			"panic", nil, allow, codes.Internal, "internal error",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := testOptions(test.reviewer)
			options.Authorize = func(caller identity.Peer, cluster string) error {
				switch caller.Name() {
				case "panic":
					panic("boom")
				case "early":
					return review.ErrNoConfiguration
				}
				return grants(caller, cluster)
			}
			request := grpcReview()
			if test.change != nil {
				test.change(request)
			}
			_, err := serveGRPC(t, newBridge(t, options))(test.identity).Review(t.Context(), request)
			if status.Code(err) != test.want || !strings.Contains(err.Error(), test.message) {
				t.Errorf("error = %v, want %v that says %q", err, test.want, test.message)
			}
			if err != nil && strings.Contains(err.Error(), "boom") {
				t.Errorf("error = %v: internal texts stay inside", err)
			}
		})
	}
}

func TestDenialsOfTheBridgeOverGRPC(t *testing.T) {
	panics := func(context.Context, *review.Request) (review.Answer, error) { panic("boom") }
	client := serveGRPC(t, newBridge(t, testOptions(panics)))("kube-apiserver")
	response, err := client.Review(t.Context(), grpcReview())
	if err != nil || response.GetResponse().GetUid() != "u1" || response.GetResponse().GetStatus().GetCode() != 500 {
		t.Errorf("a panic: %v, error %v, want a denial with 500", response, err)
	}
	large := grpcReview()
	large.Request.Object = &admissionv1.Object{Raw: make([]byte, testLimit)}
	response, err = client.Review(t.Context(), large)
	if err != nil || response.GetResponse().GetUid() != "u1" || response.GetResponse().GetStatus().GetCode() != 413 {
		t.Errorf("over the limit: %v, error %v, want a denial with 413", response, err)
	}
}

func TestBytesInFlightOverGRPC(t *testing.T) {
	g := newGate()
	options := testOptions(g.review)
	options.MaxBodyBytes, options.Memory = 1000, ledger(2*reviewBytes(admissionv1.Stage_STAGE_MUTATE, 1000))
	b := newBridge(t, options)
	client := serveGRPC(t, b)("kube-apiserver")
	request := grpcReview()
	request.Request.Object = &admissionv1.Object{Raw: []byte("{}" + strings.Repeat(" ", 600))}
	first := make(chan error, 1)
	go func() { _, err := client.Review(t.Context(), request); first <- err }()
	<-g.entered
	if _, err := client.Review(t.Context(), request); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("error = %v, want ResourceExhausted", err)
	}
	close(g.open)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if held := b.options.Memory.InUse(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// The answer comes before the caller's deadline; a caller without one is given the default.
func TestDeadlinesOverGRPC(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	before := time.Now()
	callers, _ := ctx.Deadline()
	if got := before.Add(callTime(ctx)); got.After(callers.Add(-transportReserve)) {
		t.Errorf("deadline %v, want %v before the caller's %v", got, transportReserve, callers)
	}
	if got := callTime(t.Context()); got != defaultTimeout {
		t.Errorf("without deadline %v, want %v", got, defaultTimeout)
	}
	long, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if got := callTime(long); got != MaxTimeout-transportReserve {
		t.Errorf("with a deadline of an hour %v, want what the longest entry has", got)
	}
}

func TestReviewsOverGRPCHaveADeadline(t *testing.T) {
	var bounded bool
	client := serveGRPC(t, newBridge(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		bounded = !r.Deadline.IsZero()
		return allow(ctx, r)
	})))("kube-apiserver")
	if _, err := client.Review(t.Context(), grpcReview()); err != nil || !bounded {
		t.Errorf("bounded %t, error %v", bounded, err)
	}
}

func TestAPlainChannelHasNoIdentity(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	admissionv1.RegisterAdmissionServiceServer(server, newBridge(t, testOptions(allow)).AdmissionService())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = admissionv1.NewAdmissionServiceClient(conn).Review(t.Context(), grpcReview())
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("error = %v, want Unauthenticated", err)
	}
	if _, err := (&service{bridge: newBridge(t, testOptions(allow))}).Review(t.Context(), grpcReview()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without channel: %v, want Unauthenticated", err)
	}
}

func TestMetadataThatIsNoTraceIsIgnored(t *testing.T) {
	var joined trace.SpanContext
	client := serveGRPC(t, newBridge(t, testOptions(func(ctx context.Context, r *review.Request) (review.Answer, error) {
		joined = trace.SpanContextFromContext(ctx)
		return allow(ctx, r)
	})))("kube-apiserver")
	const parent = "00-" + parentTrace + "-" + parentSpan + "-01"
	for name, test := range map[string]struct {
		sent []string // of metadata
		want string   // span; empty for none
	}{
		"a trace":                  {[]string{"traceparent", parent, "tracestate", "a=b"}, parentSpan},
		"a trace with a bad state": {[]string{"traceparent", parent, "tracestate", "no state"}, parentSpan},
		"text":                     {[]string{"traceparent", strings.Repeat("x", 1000)}, ""},
		"two traces":               {[]string{"traceparent", parent, "traceparent", parent}, ""},
		"a state alone":            {[]string{"tracestate", "a=b"}, ""},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), test.sent...)
		if response, err := client.Review(ctx, grpcReview()); err != nil || !response.GetResponse().GetAllowed() {
			t.Errorf("%s: %v, error %v", name, response, err)
		}
		if got := joined.SpanID().String(); joined.IsValid() != (test.want != "") || test.want != "" && got != test.want {
			t.Errorf("%s: judged in %v, want the span %q", name, joined, test.want)
		}
	}
}
