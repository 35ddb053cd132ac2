package hostile

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"

	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// tls is the configuration of a client of the listener for hosts.
func (a *attack) tls(identity string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.authorities(), Certificates: []tls.Certificate{a.certificate(a.Mesh[identity])}}
}

// dialer dials from an address of the tenant. Each address has its share of handshakes.
func (a *attack) dialer() *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 66, 6, 6)}, Timeout: time.Second}
}

// client is one for HTTP, with certificates or without.
func (a *attack) client(certificates ...tls.Certificate) *http.Client {
	transport := &http.Transport{
		DialContext: a.dialer().DialContext, ForceAttemptHTTP2: true, DisableKeepAlives: len(certificates) == 0,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.authorities(), Certificates: certificates},
	}
	a.ends = append(a.ends, transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// authorities are those that the tenant believes.
func (a *attack) authorities() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Authority)
	return pool
}

// certificate is a pair as crypto/tls wants it.
func (a *attack) certificate(pair pki.Pair) tls.Certificate {
	certificate, err := pair.TLS()
	if err != nil {
		panic(err)
	}
	return certificate
}

// url is where the reviews of a stage of a cluster are posted.
func (a *attack) url(cluster, stage string) string {
	return a.Bridge + "/v1/clusters/" + cluster + "/" + stage
}

// dial connects to the listener for hosts until the attack has ended.
func (a *attack) dial(identity string) *grpc.ClientConn { return a.dials(identity, 1)[0] }

// dials makes so many connections: each has a bound of streams.
func (a *attack) dials(identity string, count int) []*grpc.ClientConn {
	a.Helper()
	var all []*grpc.ClientConn
	for range count {
		conn, err := grpc.NewClient("passthrough:///"+a.Hosts, grpc.WithTransportCredentials(credentials.NewTLS(a.tls(identity))),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return a.dialer().DialContext(ctx, "tcp", address)
			}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			a.Fatal(err)
		}
		a.ends = append(a.ends, func() { conn.Close() })
		all = append(all, conn)
	}
	return all
}

// code is the code of a call that has ended.
func code(err error) string { return status.Code(err).String() }

// host sends any frame on its sessions.
func host() role {
	return role{
		name: "a host", inputs: []string{"Hello of a host", "a verdict of a host"},
		documents: func(*attack) []string {
			return []string{
				mesh.Cluster(tenantName, tenantName, ""), validating(tenantName, tenantHook, "failurePolicy: Ignore, timeoutSeconds: 1"),
				routeIn(tenantName, tenantName, tenantName),
			}
		},
		begin: func(a *attack) {
			granted, other := hostv1.NewHostServiceClient(a.dial(tenantName)), hostv1.NewHostServiceClient(a.dial(strangerName))
			frames := floods()
			a.act(16, func(ctx context.Context, n int) string {
				if n%4 == 0 {
					return converse(ctx, other, frames[n%len(frames)])
				}
				return converse(ctx, granted, frames[n%len(frames)])
			})
			a.review("validate", []body{whole(func(n int) []byte { return reviewOf(n, 100_000) })})
		},
	}
}

// flood writes the frames of one session.
type flood func(ctx context.Context, s grpc.BidiStreamingClient[hostv1.ConnectRequest, hostv1.ConnectResponse]) error

// converse is a session. It is read if the flood says so.
func converse(ctx context.Context, client hostv1.HostServiceClient, write flood) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	session, err := client.Connect(ctx)
	if err != nil {
		return code(err)
	}
	if err := write(ctx, session); err != nil && err != io.EOF { //nolint:errorlint // as gRPC documents it
		return code(err)
	}
	for {
		if _, err := session.Recv(); err != nil {
			return code(err)
		}
	}
}

// hello offers hooks.
func hello(change func(*hostv1.Hello)) *hostv1.ConnectRequest {
	h := &hostv1.Hello{
		ProtocolMin: 1, ProtocolMax: 1, Host: tenantName, Instance: rand.Text(), MaxOutstanding: 1 << 30,
		Hooks: []*hostv1.HookOffer{{Name: tenantHook, Stage: admissionv1.Stage_STAGE_VALIDATE}},
	}
	change(h)
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Hello{Hello: h}}
}

// verdictOf answers a call, whether it was made or not.
func verdictOf(call uint64, response *admissionv1.AdmissionResponse) *hostv1.ConnectRequest {
	return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Verdict{Verdict: &hostv1.Verdict{
		CallId: call, Outcome: &hostv1.Verdict_Response{Response: response},
	}}}
}

// floods are sessions of hosts.
func floods() []flood {
	type session = grpc.BidiStreamingClient[hostv1.ConnectRequest, hostv1.ConnectResponse]
	plain := func(*hostv1.Hello) {}
	offers := func(count, bytes int) flood {
		return func(_ context.Context, s session) error {
			return s.Send(hello(func(h *hostv1.Hello) {
				for n := range count {
					h.Hooks = append(h.Hooks, &hostv1.HookOffer{Name: fmt.Sprintf("%d-%s", n, strings.Repeat("n", bytes)), Stage: admissionv1.Stage_STAGE_VALIDATE})
				}
			}))
		}
	}
	repeated := func(frame func(n uint64) *hostv1.ConnectRequest) flood {
		return func(ctx context.Context, s session) error {
			err := s.Send(hello(plain))
			for n := uint64(1); err == nil && ctx.Err() == nil && n < 100_000; n++ {
				err = s.Send(frame(n))
			}
			return err
		}
	}
	large := &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{strings.Repeat("w", 3<<20)}}
	huge := &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{strings.Repeat("w", 8<<20)}}
	items := &admissionv1.AdmissionResponse{Allowed: true, Warnings: make([]string, 100_000)}
	return []flood{
		func(_ context.Context, s session) error { return s.Send(hello(plain)) },
		offers(1000, 100), offers(1000, 500), offers(20_000, 10), offers(10, 100_000),
		func(_ context.Context, s session) error {
			return s.Send(hello(func(h *hostv1.Hello) { h.Host, h.Zone = strings.Repeat("h", 200_000), strings.Repeat("z", 200_000) }))
		},
		repeated(func(n uint64) *hostv1.ConnectRequest {
			return verdictOf(n, &admissionv1.AdmissionResponse{Allowed: true})
		}),
		repeated(func(n uint64) *hostv1.ConnectRequest { return verdictOf(n, large) }),
		repeated(func(n uint64) *hostv1.ConnectRequest { return verdictOf(n, items) }),
		repeated(func(n uint64) *hostv1.ConnectRequest { return verdictOf(n, huge) }),
		repeated(func(uint64) *hostv1.ConnectRequest { return hello(plain) }),
		repeated(func(n uint64) *hostv1.ConnectRequest {
			return &hostv1.ConnectRequest{Frame: &hostv1.ConnectRequest_Credit{Credit: &hostv1.Credit{MaxOutstanding: uint32(n)}}}
		}),
		func(ctx context.Context, s session) error { // reads nothing
			if err := s.Send(hello(plain)); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}
}

// directCaller asks AdmissionService, and the JSON edge in its stages.
func directCaller() role {
	return role{
		name: "a direct caller", inputs: []string{"an object of a direct caller"},
		documents: func(*attack) []string {
			return []string{
				mesh.Cluster(tenantName, tenantName, ""), validating(tenantName, tenantHook, "failurePolicy: Ignore, timeoutSeconds: 1"),
				routeIn(tenantName, tenantName, tenantName),
			}
		},
		begin: func(a *attack) {
			a.hangingHost(tenantHook)
			client, objects := admissionv1.NewAdmissionServiceClient(a.dial(tenantName)), objects()
			a.act(24, func(ctx context.Context, n int) string {
				resource := &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"}
				_, err := client.Review(ctx, &admissionv1.ReviewRequest{Stage: admissionv1.Stage_STAGE_ADMIT, Explain: n%2 == 0, Request: &admissionv1.AdmissionRequest{
					Uid: fmt.Sprint(n), Cluster: []string{tenantName, victimName}[n/2%2], Operation: "CREATE", Namespace: "default", Name: "pod", Resource: resource,
					Kind: &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Object: &admissionv1.Object{Raw: objects[n%len(objects)]},
				}})
				return code(err)
			})
			a.review("admit", bodies())
			a.review("enforce", bodies())
		},
	}
}

// objects are Pods of a kind.
func objects() [][]byte {
	pod := func(rest string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod","namespace":"default"}` + rest + `}`)
	}
	return [][]byte{
		pod(""), pod(`,"a":"` + strings.Repeat("a", 1<<20) + `"`), pod(`,"a":"` + strings.Repeat("a", 20<<20) + `"`),
		pod(`,"a":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000)), pod(`,"a":[` + strings.Repeat(`{},`, 500_000) + `{}]`),
		pod(`,"kind":"Secret"`), pod(`,"a":"` + "\xff" + `"`), []byte("null"), nil,
	}
}

// stranger proves nothing.
func stranger() role {
	return role{
		name: "a stranger", inputs: []string{"handshakes and connections"},
		begin: func(a *attack) {
			bridge := strings.TrimPrefix(a.Bridge, "https://")
			addresses := []string{bridge, a.Hosts}
			a.act(200, func(ctx context.Context, n int) string { // says nothing, or nearly nothing
				return a.hold(ctx, addresses[n%2], [][]byte{nil, {0x16, 3, 1, 2}, []byte("GET / HTTP/1.1\r\n"), []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}[n/2%4])
			})
			unknown := a.client()
			a.act(8, func(ctx context.Context, n int) string {
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url(victimName, "validate"), strings.NewReader("{}"))
				if err != nil {
					return err.Error()
				}
				return outcomeOf(unknown.Do(request))
			})
		},
	}
}

// hold opens a connection, says a little, and waits until the other side has enough of it.
func (a *attack) hold(ctx context.Context, address string, text []byte) string {
	conn, err := a.dialer().DialContext(ctx, "tcp", address)
	if err != nil {
		return "no connection"
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write(text); err != nil {
		return "closed"
	}
	_, _ = io.Copy(io.Discard, conn)
	return "closed"
}
