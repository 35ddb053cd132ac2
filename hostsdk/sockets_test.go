package hostsdk_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/hostsdk/hosttest"
)

// site is a dispatcher behind TLS on a real socket, and the files of a host.
type site struct {
	t         *testing.T
	authority *authority
	dir       string
	log       syncBuffer

	mu     sync.Mutex
	addr   string            // where the dispatcher is now
	client *x509.Certificate // of the last host that it let in
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, authority: newAuthority(t), dir: t.TempDir()}
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// files writes the files of a host with an identity.
func (s *site) files(identity string) {
	s.t.Helper()
	s.authority.write(s.authority.issue(identity), s.path("tls.crt"), s.path("tls.key"), s.path("ca.crt"))
}

// dispatch starts a dispatcher whose certificate an authority issues for names.
func (s *site) dispatch(by *authority, version uint16, names ...string) *hosttest.Listener {
	s.t.Helper()
	l := hosttest.Listen(s.t, hosttest.ListenOptions{Server: []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{by.issue("dispatcher", names...)}, ClientCAs: s.authority.pool(),
		ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version,
		VerifyConnection: func(state tls.ConnectionState) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.client = state.PeerCertificates[0]
			return nil
		},
	}))}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = l.Addr
	return l
}

// run runs a host that knows the dispatcher as mesh.internal, wherever it is.
func (s *site) run(tls hostsdk.TLS) {
	s.t.Helper()
	host, err := hostsdk.New(hostsdk.Options{
		Name: "imagepolicy", Dispatchers: []string{"127.0.0.1:8444"}, ServerName: "mesh.internal", TLS: tls,
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			s.mu.Lock()
			addr := s.addr
			s.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
	}, hostsdk.Validate("allow", allow))
	if err != nil {
		s.t.Fatal(err)
	}
	(&mesh{t: s.t}).launch(host)
}

func (s *site) identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client.Subject.CommonName
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func TestCertificatesAreReplacedWithoutARestart(t *testing.T) {
	s := newSite(t)
	s.files("before")
	l := s.dispatch(s.authority, 0, "mesh.internal")
	s.run(hostsdk.TLSFiles(s.path("tls.crt"), s.path("tls.key"), s.path("ca.crt")))
	works(t, accept(t, l))
	if got := s.identity(); got != "before" {
		t.Errorf("the host is %q", got)
	}
	s.files("after")
	l.Stop()
	l = s.dispatch(s.authority, 0, "mesh.internal")
	works(t, accept(t, l))
	if got := s.identity(); got != "after" {
		t.Errorf("the host is %q", got)
	}
}

// TestStrangersAreNotTalkedTo: the host's identity and its hooks are for dispatchers alone.
func TestStrangersAreNotTalkedTo(t *testing.T) {
	other := newAuthority(t)
	tests := map[string]struct {
		start func(s *site)
		want  string
	}{
		"A dispatcher of another authority.": {
			start: func(s *site) { s.dispatch(other, 0, "mesh.internal") },
			want:  "certificate signed by unknown authority",
		},
		"A dispatcher of another name.": {
			start: func(s *site) { s.dispatch(s.authority, 0, "elsewhere.internal") },
			want:  "not mesh.internal",
		},
		"A dispatcher that speaks nothing newer than TLS 1.2.": {
			start: func(s *site) { s.dispatch(s.authority, tls.VersionTLS12, "mesh.internal") },
			want:  "protocol version",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.files("host")
			tt.start(s)
			s.run(hostsdk.TLSFiles(s.path("tls.crt"), s.path("tls.key"), s.path("ca.crt")))
			waitFor(t, func() bool { return strings.Contains(s.log.String(), tt.want) })
		})
	}
}

// TestAHostLooksAtItsOwnCertificateFirst: a dispatcher refuses it after the handshake of the host.
func TestAHostLooksAtItsOwnCertificateFirst(t *testing.T) {
	for want, change := range map[string]func(*x509.Certificate){
		"the certificate of this host ended at 20":            func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) },
		"the certificate of this host is not valid before 20": func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) },
		"the certificate of this host is for servers":         func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
	} {
		t.Run(want, func(t *testing.T) {
			s := newSite(t)
			s.authority.write(s.authority.issueAs(change, "host"), s.path("tls.crt"), s.path("tls.key"), s.path("ca.crt"))
			s.dispatch(s.authority, 0, "mesh.internal")
			s.run(hostsdk.TLSFiles(s.path("tls.crt"), s.path("tls.key"), s.path("ca.crt")))
			waitFor(t, func() bool { return strings.Contains(s.log.String(), want) })
		})
	}
}

func TestTLSConfigIsUsedAsItIs(t *testing.T) {
	s := newSite(t)
	l := s.dispatch(s.authority, 0, "mesh.internal")
	s.run(hostsdk.TLSConfig(&tls.Config{
		Certificates: []tls.Certificate{s.authority.issue("from-memory")}, RootCAs: s.authority.pool(),
	}))
	works(t, accept(t, l))
	if got := s.identity(); got != "from-memory" {
		t.Errorf("the host is %q", got)
	}
}

// TestCertificatesOfASupplierAreReplaced without files.
func TestCertificatesOfASupplierAreReplaced(t *testing.T) {
	s := newSite(t)
	var identity atomic.Value
	identity.Store("before")
	l := s.dispatch(s.authority, 0, "mesh.internal")
	s.run(hostsdk.TLSFrom(func() (*tls.Config, error) {
		return &tls.Config{
			Certificates: []tls.Certificate{s.authority.issue(identity.Load().(string))}, RootCAs: s.authority.pool(),
		}, nil
	}))
	works(t, accept(t, l))
	identity.Store("after")
	l.Stop()
	works(t, accept(t, s.dispatch(s.authority, 0, "mesh.internal")))
	if got := s.identity(); got != "after" {
		t.Errorf("the host is %q", got)
	}
}

func TestTLSFilesThatAreNoCertificates(t *testing.T) {
	s := newSite(t)
	s.files("host")
	if err := os.WriteFile(s.path("ca.crt"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, err := hostsdk.New(hostsdk.Options{
		Name: "h", Dispatchers: []string{"127.0.0.1:1"}, TLS: hostsdk.TLSFiles(s.path("tls.crt"), s.path("tls.key"), s.path("ca.crt")),
	}, hostsdk.Validate("allow", allow))
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("error %v", err)
	}
}

// TestReviewsUpToTheAnnouncedSizeAreTaken sends a review that just fits, and one larger: gRPC ends the stream then, and
// the host comes back.
func TestReviewsUpToTheAnnouncedSizeAreTaken(t *testing.T) {
	const limit = 5 << 20 // More than gRPC takes by default.
	l := hosttest.Listen(t, hosttest.ListenOptions{})
	host, err := hostsdk.New(hostsdk.Options{
		Name: "h", Dispatchers: []string{l.Addr}, TLS: hostsdk.Plaintext(), MaxFrameBytes: limit,
		Logger: quiet(),
	}, hostsdk.Validate("allow", allow))
	if err != nil {
		t.Fatal(err)
	}
	(&mesh{t: t}).launch(host)
	s := accept(t, l)
	works(t, s)
	large := hosttest.Create(pod)
	large.Object.Raw = make([]byte, limit-1000)
	if _, err := s.Ask(t.Context(), "allow", large); err != nil {
		t.Errorf("a review that fits: %v", err)
	}
	large.Object.Raw = make([]byte, limit)
	if v, err := s.Ask(t.Context(), "allow", large); err == nil {
		t.Errorf("a review that does not fit: %v", v)
	}
	works(t, accept(t, l))
}

// TestALargeReviewHoldsNothingUp: a ping that is sent while a review of 6 MB is on its way is answered before it.
func TestALargeReviewHoldsNothingUp(t *testing.T) {
	l := hosttest.Listen(t, hosttest.ListenOptions{})
	size := make(chan int, 1)
	host, err := hostsdk.New(hostsdk.Options{
		Name: "h", Dispatchers: []string{l.Addr}, TLS: hostsdk.Plaintext(), Logger: quiet(),
	},
		hostsdk.Validate("allow", allow),
		hostsdk.Validate("measure", func(_ context.Context, r *hostsdk.Request) (*hostsdk.Response, error) {
			size <- len(r.RawObject())
			return hostsdk.Allow(), nil
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	(&mesh{t: t}).launch(host)
	s := accept(t, l)
	large := hosttest.Create(pod)
	large.Object.Raw = make([]byte, 6<<20)
	encoded, err := proto.Marshal(&hostv1.Review{
		CallId: 1 << 20, Request: large,
		Hooks: []*hostv1.HookCall{{Name: "measure", Stage: admissionv1.Stage_STAGE_VALIDATE, RemainingMs: 60_000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(encoded, 1<<20) {
		if len(size) != 0 {
			t.Error("the review was judged before it was whole")
		}
		works(t, s) // a small review
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		chunk := &hostv1.Chunk{CallId: 1 << 20, TotalBytes: uint64(len(encoded)), Hooks: 1, Data: part}
		if err := s.Send(&hostv1.ConnectResponse{Frame: &hostv1.ConnectResponse_Chunk{Chunk: chunk}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-size; got != 6<<20 {
		t.Errorf("the handler was given %d bytes", got)
	}
}
