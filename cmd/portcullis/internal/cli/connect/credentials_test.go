package connect_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/connect"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/mesh"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/review"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// pki is an authority and its files, in a directory.
type pki struct {
	*certs.Authority

	dir string
}

func newPKI(t *testing.T, name string) pki {
	t.Helper()
	ca, err := certs.NewAuthority(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := pki{ca, t.TempDir()}
	if err := ca.CA().WriteCert(p.file("ca.crt")); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p pki) file(name string) string { return filepath.Join(p.dir, name) }

// issue writes NAME.crt and NAME.key.
func (p pki) issue(t *testing.T, name string, spec certs.Spec) {
	t.Helper()
	pair, err := p.Issue(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(p.file(name+".crt"), p.file(name+".key")); err != nil {
		t.Fatal(err)
	}
}

// serveMesh serves a mesh without services by the files server.crt of an authority, for clients of the same. It returns its address.
func serveMesh(t *testing.T, p pki) string {
	t.Helper()
	files, err := certs.OpenReloader(certs.ReloaderOptions{CertFile: p.file("server.crt"), KeyFile: p.file("server.key"), CAFile: p.file("ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	return serveGRPC(t, grpc.Creds(credentials.NewTLS(files.ServerTLS(tls.VersionTLS13, tls.RequireAndVerifyClientCert, "h2"))))
}

func serveGRPC(t *testing.T, options ...grpc.ServerOption) string {
	t.Helper()
	l, server := listen(t), grpc.NewServer(options...)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return l.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveHTTP serves HTTP without TLS.
func serveHTTP(t *testing.T) string {
	t.Helper()
	l, server := listen(t), &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return l.Addr().String()
}

// serveRaw has each connection handled by serve, and closes it then.
func serveRaw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// TestAnErrorOfCertificatesSaysWhoRefusedWhom asks for dispatchers.
func TestAnErrorOfCertificatesSaysWhoRefusedWhom(t *testing.T) {
	local, now := []net.IP{net.IPv4(127, 0, 0, 1)}, time.Now()
	server := certs.Spec{IPs: local, Server: true}
	client := certs.Spec{Identity: "jane", Client: true}
	at := func(s certs.Spec, begin time.Time) certs.Spec { s.Now, s.TTL = begin, time.Hour; return s }
	const refused = `refused .*/client\.crt \(identity "jane", issued by `
	for name, tc := range map[string]struct {
		server, client certs.Spec
		address        func(*testing.T) string // instead of a mesh
		otherIssuer    string                  // of the client; empty for the issuer of the mesh
		otherCA        string                  // that the client trusts
		want           string
	}{
		"our own has expired":                         {server: server, client: at(client, now.Add(-2*time.Hour)), want: `^[0-9.:]+: this client's certificate .*/client\.crt ended at 20.*Z: .*certs issue client`},
		"our own is not valid yet":                    {server: server, client: at(client, now.Add(time.Hour)), want: `this client's certificate .*/client\.crt begins at 20.*clock of this machine is at 20`},
		"our own is for servers":                      {server: server, client: certs.Spec{Identity: "jane", Server: true}, want: `this client's certificate .*/client\.crt is for servers`},
		"our own is of another authority":             {server: server, client: client, otherIssuer: "theirs", want: refused + `"theirs"\)`},
		"our own is of an authority of the same name": {server: server, client: client, otherIssuer: "mesh CA", want: refused + `"mesh CA"\)`},
		"the mesh's has expired":                      {server: at(server, now.Add(-2*time.Hour)), client: client, want: `does not trust the server: the server's certificate, issued by "mesh CA", ended at 20`},
		"both have expired": {
			server: at(server, now.Add(-2*time.Hour)), client: at(client, now.Add(-3*time.Hour)), want: `client\.crt ended at .*; this client does not trust the server: .* ended at`,
		},
		"the mesh's is not valid yet": {server: at(server, now.Add(time.Hour)), client: client, want: `the server's certificate, issued by "mesh CA", begins at 20`},
		"the mesh's is for clients":   {server: certs.Spec{IPs: local, Client: true}, client: client, want: `the server's certificate is for clients`},
		"the mesh is of another authority": {
			server: server, client: client, otherCA: "other", want: `does not trust the server: the server's certificate was issued by "mesh CA", and .*/ca\.crt has "other" alone`,
		},
		"the mesh is of another authority of the same name": {
			server: server, client: client, otherCA: "mesh CA", want: `issued by "mesh CA", and .*/ca\.crt has another authority of this name: compare the fingerprints`,
		},
		"the mesh has other names": {
			server: certs.Spec{DNSNames: []string{"mesh.example.com"}, Server: true}, client: client, want: `valid for mesh\.example\.com, not 127\.0\.0\.1`,
		},
		"plain HTTP":         {client: client, address: serveHTTP, want: `the server speaks plain HTTP at this port, and no TLS`},
		"gRPC in plain text": {client: client, address: func(t *testing.T) string { t.Helper(); return serveGRPC(t) }, want: `speaks no TLS at this port`},
		"a greeting": {client: client, address: func(t *testing.T) string {
			t.Helper()
			return serveRaw(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.7\r\n") })
		}, want: `speaks no TLS at this port`},
		"a connection that is closed": {client: client, address: func(t *testing.T) string {
			t.Helper()
			return serveRaw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
		}, want: `closed the connection in the handshake: it speaks no TLS at this port, or ` + refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newPKI(t, "mesh CA")
			ours := ca
			if tc.otherIssuer != "" {
				ours = newPKI(t, tc.otherIssuer)
			}
			ours.issue(t, "client", tc.client)
			if tc.address == nil {
				ca.issue(t, "server", tc.server)
				tc.address = func(t *testing.T) string { t.Helper(); return serveMesh(t, ca) }
			}
			trusted := ca.file("ca.crt")
			if tc.otherCA != "" {
				trusted = newPKI(t, tc.otherCA).file("ca.crt")
			}
			err := ask(t, tc.address(t), trusted, ours)
			if err == nil || !regexp.MustCompile(tc.want).MatchString(err.Error()) || !regexp.MustCompile("; `portcullis check` ").MatchString(err.Error()) {
				t.Errorf("error\n%v\nwant\n%s", err, tc.want)
			}
		})
	}
}

// ask asks a mesh for its dispatchers.
func ask(t *testing.T, address, ca string, ours pki) error {
	t.Helper()
	return meshAddress(t, address, ca, ours).Config(t.Context(), time.Minute, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		_, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
		return err
	})
}

func meshAddress(t *testing.T, address, ca string, ours pki) *connect.MeshAddress {
	t.Helper()
	var at connect.MeshAddress
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	at.Bind(flags)
	if err := flags.Parse([]string{"--server", address, "--ca", ca, "--cert", ours.file("client.crt"), "--key", ours.file("client.key")}); err != nil {
		t.Fatal(err)
	}
	return &at
}

// A mesh that goes away after it has answered has not refused us.
func TestAMeshThatStopsRefusesNone(t *testing.T) {
	ca := newPKI(t, "mesh CA")
	ca.issue(t, "server", certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	ca.issue(t, "client", certs.Spec{Identity: "jane", Client: true})
	if err := ask(t, serveMesh(t, ca), ca.file("ca.crt"), ca); err == nil || !regexp.MustCompile("older than this command").MatchString(err.Error()) {
		t.Errorf("a mesh without this service: %v", err)
	}
	address, err := citest.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(t, address, ca.file("ca.crt"), ca); err == nil || !regexp.MustCompile("does not answer: .*connection refused").MatchString(err.Error()) {
		t.Errorf("no mesh: %v", err)
	}
}

func TestAKeyOfAnotherCertificateIsNamed(t *testing.T) {
	ca := newPKI(t, "mesh CA")
	ca.issue(t, "client", certs.Spec{Identity: "jane", Client: true})
	ca.issue(t, "other", certs.Spec{Identity: "joe", Client: true})
	if err := os.Rename(ca.file("other.key"), ca.file("client.key")); err != nil {
		t.Fatal(err)
	}
	err := ask(t, "mesh.example.com:8444", ca.file("ca.crt"), ca)
	if err == nil || !regexp.MustCompile(`client\.crt and .*client\.key: .* does not match .*portcullis check`).MatchString(err.Error()) {
		t.Error(err)
	}
}

// Commands that do not go through Config say the same.
func TestEachCommandSaysThatOurCertificateHasEnded(t *testing.T) {
	ca := newPKI(t, "mesh CA")
	ca.issue(t, "server", certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	ca.issue(t, "client", certs.Spec{Identity: "jane", Client: true, Now: time.Now().Add(-2 * time.Hour), TTL: time.Hour})
	address := serveMesh(t, ca)
	for name, command := range map[string]struct {
		*cobra.Command
		args []string
	}{
		"review":      {review.NewCommand(), []string{"-f", clitest.Write(t, "review.json", clitest.Review)}},
		"serve-stale": {mesh.NewServeStale(), nil},
	} {
		r := clitest.Execute(t, command.Command, nil, append(command.args,
			"--server", address, "--ca", ca.file("ca.crt"), "--cert", ca.file("client.crt"), "--key", ca.file("client.key"))...)
		if r.Code == 0 || !regexp.MustCompile(`client\.crt ended at 20.*portcullis check`).MatchString(r.Notes) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAServerThatIsSilentMayNotSpeakTLS(t *testing.T) {
	ca, begun := newPKI(t, "mesh CA"), make(chan struct{})
	ca.issue(t, "client", certs.Spec{Identity: "jane", Client: true})
	address := serveRaw(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		close(begun)
		_, _ = io.Copy(io.Discard, c)
	})
	at := meshAddress(t, address, ca.file("ca.crt"), ca)
	err := at.Config(t.Context(), 0, func(ctx context.Context, client configv1.ConfigServiceClient) error {
		ctx, cancel := context.WithCancel(ctx)
		go func() { <-begun; cancel() }()
		_, err := client.ListDispatchers(ctx, &configv1.ListDispatchersRequest{})
		return status.Error(codes.DeadlineExceeded, err.Error())
	})
	if err == nil || !strings.Contains(err.Error(), "took the connection, and has not answered the TLS handshake") {
		t.Error(err)
	}
}
