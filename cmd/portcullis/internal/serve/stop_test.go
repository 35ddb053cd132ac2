package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
)

// stopping is a dispatcher with a host whose first hook holds its verdicts until it is let.
type stopping struct {
	reviews admissionv1.AdmissionServiceClient
	host    *hostsdk.Host
	hosts   string // address of the listener
	called  chan struct{}
	verdict chan struct{} // closed: give it
	stop    context.CancelFunc
	ended   chan error
}

func newStopping(t *testing.T, drainTimeout time.Duration) *stopping {
	t.Helper()
	a, d := sampleApp(t, func(_ *dev, c *serveConfig) { c.drainTimeout = drainTimeout })
	s := &stopping{called: make(chan struct{}, 1), verdict: make(chan struct{}), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	serving := make(chan listen.ReadyInfo, 1)
	go func() {
		s.ended <- a.run(ctx, func(info listen.ReadyInfo) error {
			serving <- info
			return nil
		})
	}()
	s.hosts = within(t, "the listeners", serving).Hosts
	s.addHost(t, d)
	s.addReviewer(t, d)
	return s
}

// addHost connects the sample host. It ends with the test.
func (s *stopping) addHost(t *testing.T, d *dev) {
	t.Helper()
	allow := func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }
	var err error
	s.host, err = hostsdk.New(hostsdk.Options{
		Name: "sample-host", Dispatchers: []string{s.hosts},
		TLS:    hostsdk.TLSFiles(d.path("certs/host.crt"), d.path("certs/host.key"), d.path("certs/ca.crt")),
		Logger: slog.New(slog.DiscardHandler),
	},
		hostsdk.Mutate("owner.portcullis.dev", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			s.called <- struct{}{}
			<-s.verdict
			return hostsdk.Patch([]byte(`[{"op":"add","path":"/metadata/labels","value":{"portcullis.dev/owner":"me"}}]`)), nil
		}),
		hostsdk.Mutate("cost-center.portcullis.dev", func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
			return hostsdk.Patch([]byte(`[{"op":"add","path":"/metadata/labels/portcullis.dev~1cost-center","value":"mine"}]`)), nil
		}),
		hostsdk.Validate("pinned-images.portcullis.dev", allow),
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	left := make(chan error, 1)
	go func() { left <- s.host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := within(t, "the end of the host", left); err != nil {
			t.Error(err)
		}
	})
	within(t, "the host", s.host.Ready())
}

// addReviewer connects somebody who sends reviews by gRPC.
func (s *stopping) addReviewer(t *testing.T, d *dev) {
	t.Helper()
	ca, cert, key := d.clientFiles()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	conn, err := grpc.NewClient("passthrough:///"+s.hosts, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{pair},
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.reviews = admissionv1.NewAdmissionServiceClient(conn)
}

// review is the creation of a Pod, as mutating hooks see it.
func (s *stopping) review(ctx context.Context) (*admissionv1.ReviewResponse, error) {
	return s.reviews.Review(ctx, &admissionv1.ReviewRequest{
		Stage: admissionv1.Stage_STAGE_MUTATE,
		Request: &admissionv1.AdmissionRequest{
			Uid: "one", Cluster: devCluster, Operation: "CREATE", Namespace: "default", Name: "pod",
			Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object: &admissionv1.Object{Raw: []byte(
				`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod","namespace":"default"},"spec":{"containers":[{"name":"a","image":"a:1"}]}}`)},
		},
	})
}

// told reports whether the host has heard that it shall leave.
func (s *stopping) told() bool {
	for _, session := range s.host.Status().Sessions {
		if session.Leaving {
			return true
		}
	}
	return false
}

// closed reports whether the listener takes nobody any more.
func (s *stopping) closed(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.hosts)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

func TestADirectReviewKeepsItsHostsWhileTheProcessStops(t *testing.T) {
	s := newStopping(t, long)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		r, err := s.review(ctx)
		if err == nil && !bytes.Contains(r.GetResponse().GetPatch(), []byte("cost-center")) {
			err = fmt.Errorf("the second hook was not asked: %v", r.GetResponse())
		}
		answer <- err
	}()
	within(t, "the first hook", s.called)

	s.stop()
	for !s.told() && !s.closed(ctx) && ctx.Err() == nil { // whichever comes first, it has reached this listener
		<-time.After(time.Millisecond)
	}
	close(s.verdict)

	if err := within(t, "the answer", answer); err != nil {
		t.Errorf("the review lost the hosts of its second hook: %v", err)
	}
	if err := within(t, "the end of the process", s.ended); err != nil {
		t.Error(err)
	}
}

func TestACallerWhoStaysDoesNotKeepTheProcess(t *testing.T) {
	s := newStopping(t, long)
	close(s.verdict)
	if _, err := s.review(t.Context()); err != nil {
		t.Fatal(err)
	}

	s.stop()

	if err := within(t, "the end of the process", s.ended); err != nil {
		t.Error(err)
	}
}

func TestAReviewThatDoesNotEndDoesNotKeepTheProcess(t *testing.T) {
	s := newStopping(t, time.Millisecond)
	answer := make(chan error, 1)
	go func() {
		_, err := s.review(t.Context())
		answer <- err
	}()
	within(t, "the first hook", s.called)

	s.stop()

	if err := within(t, "the end of the process", s.ended); err != nil {
		t.Error(err)
	}
	if err := within(t, "the answer", answer); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want that the connection is lost", err)
	}
	close(s.verdict)
}
