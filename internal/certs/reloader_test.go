package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that tests move by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// side is one end of a connection with its files.
type side struct {
	dir      string
	clock    *clock
	log      *bytes.Buffer
	reloader *Reloader
}

func (s side) file(name string) string { return filepath.Join(s.dir, name) }

// bundleOf joins certificates into one PEM file's content: old and new authority side by side while a rotation lasts.
func bundleOf(authorities ...Pair) []byte {
	var all bytes.Buffer
	for _, authority := range authorities {
		all.Write(authority.CertPEM)
	}
	return all.Bytes()
}

// newSide opens a reloader over a pair and a bundle of authorities.
func newSide(t *testing.T, pair Pair, bundle []byte) side {
	t.Helper()
	s := side{dir: t.TempDir(), clock: &clock{now: time.Now()}, log: &bytes.Buffer{}}
	s.write(t, pair, bundle)
	var err error
	s.reloader, err = OpenReloader(ReloaderOptions{
		CertFile: s.file("tls.crt"), KeyFile: s.file("tls.key"), CAFile: s.file("ca.crt"),
		Now: s.clock.Now, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s side) write(t *testing.T, pair Pair, bundle []byte) {
	t.Helper()
	if err := pair.Write(s.file("tls.crt"), s.file("tls.key")); err != nil {
		t.Fatal(err)
	}
	s.writeCA(t, bundle)
}

func (s side) writeCA(t *testing.T, bundle []byte) {
	t.Helper()
	if err := WriteFile(s.file("ca.crt"), bundle, certFileMode); err != nil {
		t.Fatal(err)
	}
}

func (s side) look() { s.clock.advance(reloadInterval) }

const serverName = "dispatcher.mesh"

func serverPair(t *testing.T, ca *Authority) Pair {
	t.Helper()
	return issue(t, ca, Spec{Identity: "server of " + ca.cert.Subject.CommonName, DNSNames: []string{serverName}, Server: true})
}

func clientPair(t *testing.T, ca *Authority, id string) Pair {
	t.Helper()
	return issue(t, ca, Spec{Identity: id, Client: true})
}

// handshake connects the two configurations over loopback, lets one byte travel each way, and returns the state of each end.
func handshake(t *testing.T, server, client *tls.Config) (seenByServer, seenByClient tls.ConnectionState, err error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	type outcome struct {
		state tls.ConnectionState
		err   error
	}
	accepted := make(chan outcome, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			accepted <- outcome{err: err}
			return
		}
		defer conn.Close()
		secured := tls.Server(conn, server)
		err = echoByte(secured)
		accepted <- outcome{secured.ConnectionState(), err}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	secured := tls.Client(conn, client)
	clientErr := sendByte(secured)
	seenByClient = secured.ConnectionState()
	conn.Close()
	there := <-accepted
	return there.state, seenByClient, errors.Join(there.err, clientErr)
}

func echoByte(conn *tls.Conn) error {
	one := make([]byte, 1)
	if _, err := conn.Read(one); err != nil {
		return err
	}
	_, err := conn.Write(one)
	return err
}

func sendByte(conn *tls.Conn) error {
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func mutual(s side) *tls.Config {
	return s.reloader.ServerTLS(tls.VersionTLS13, tls.RequireAndVerifyClientCert)
}

func TestServerTakesNewCertificateAndAuthoritiesWithoutARestart(t *testing.T) {
	first, second := authority(t), authority(t)
	server := newSide(t, serverPair(t, first), first.CA().CertPEM)
	config := mutual(server)
	oldClient := newSide(t, clientPair(t, first, "old"), bundleOf(first.CA(), second.CA()))
	newClient := newSide(t, clientPair(t, second, "new"), bundleOf(first.CA(), second.CA()))
	// A session cache would let a client of a removed authority back in without its certificate being looked at.
	oldConfig := oldClient.reloader.ClientTLS(serverName)
	oldConfig.ClientSessionCache = tls.NewLRUClientSessionCache(8)

	try := func(client *tls.Config) (string, string, error) {
		seen, saw, err := handshake(t, config, client)
		if err != nil {
			return "", "", err
		}
		id, _ := identity.FromTLS(&seen)
		return id.Name(), saw.PeerCertificates[0].Issuer.String() + saw.PeerCertificates[0].SerialNumber.String(), nil
	}

	id, before, err := try(oldConfig)
	if err != nil || id != "old" {
		t.Fatalf("before the rotation: identity %q, error %v", id, err)
	}
	if _, _, err := try(newClient.reloader.ClientTLS(serverName)); err == nil {
		t.Fatal("a client of an authority that is not trusted yet was let in")
	}

	server.write(t, serverPair(t, second), bundleOf(first.CA(), second.CA()))
	if _, again, err := try(oldConfig); err != nil || again != before {
		t.Errorf("the files were looked at again within the interval (error %v)", err)
	}
	server.look()
	for want, client := range map[string]*tls.Config{"old": oldConfig, "new": newClient.reloader.ClientTLS(serverName)} {
		id, after, err := try(client)
		if err != nil || id != want {
			t.Errorf("during the overlap: identity %q, error %v, want %q", id, err, want)
		}
		if after == before {
			t.Error("the server still presents its old certificate")
		}
	}

	server.writeCA(t, second.CA().CertPEM)
	server.look()
	if id, _, err := try(oldConfig); err == nil {
		t.Errorf("client %q of the removed authority was let in", id)
	}
	if id, _, err := try(newClient.reloader.ClientTLS(serverName)); err != nil || id != "new" {
		t.Errorf("after the rotation: identity %q, error %v", id, err)
	}
}

func TestClientTakesNewCertificateAndAuthoritiesWithoutARestart(t *testing.T) {
	first, second := authority(t), authority(t)
	client := newSide(t, clientPair(t, first, "before"), first.CA().CertPEM)
	config := client.reloader.ClientTLS(serverName)
	oldServer := newSide(t, serverPair(t, first), bundleOf(first.CA(), second.CA()))
	newServer := newSide(t, serverPair(t, second), bundleOf(first.CA(), second.CA()))

	if _, _, err := handshake(t, mutual(oldServer), config); err != nil {
		t.Fatal(err)
	}
	if _, _, err := handshake(t, mutual(newServer), config); err == nil {
		t.Fatal("a server of an authority that is not trusted yet was believed")
	}

	client.write(t, clientPair(t, second, "after"), second.CA().CertPEM)
	client.look()
	seen, _, err := handshake(t, mutual(newServer), config)
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := identity.FromTLS(&seen); id.Name() != "after" {
		t.Errorf("identity = %q, want the new certificate's", id)
	}
	if _, _, err := handshake(t, mutual(oldServer), config); err == nil {
		t.Error("a server of the removed authority was believed")
	}
}

func TestClientVerifiesTheName(t *testing.T) {
	ca := authority(t)
	pair := issue(t, ca, Spec{DNSNames: []string{serverName}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	server := newSide(t, pair, ca.CA().CertPEM)
	client := newSide(t, clientPair(t, ca, "client"), ca.CA().CertPEM)
	tests := map[string]struct {
		given, dialled string
		wantErr        string
	}{
		"The given name is in the certificate.":                   {given: serverName},
		"The given address is in the certificate.":                {given: "127.0.0.1"},
		"The dialled name stands in for one not given.":           {dialled: serverName},
		"Another name is refused.":                                {given: "other.mesh", wantErr: "not other.mesh"},
		"Another dialled name is refused.":                        {dialled: "other.mesh", wantErr: "not other.mesh"},
		"An address that is only dialled says what has to change": {dialled: "127.0.0.1", wantErr: "give ClientTLS the name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := client.reloader.ClientTLS(test.given)
			if test.dialled != "" {
				config.ServerName = test.dialled // as grpc and net/http do
			}
			_, _, err := handshake(t, mutual(server), config)
			switch {
			case test.wantErr == "" && err != nil:
				t.Errorf("error = %v", err)
			case test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)):
				t.Errorf("error = %v, want %q", err, test.wantErr)
			}
		})
	}
}

func TestBadFilesAreReportedOnceAndTheLastGoodOnesStay(t *testing.T) {
	ca := authority(t)
	other := serverPair(t, ca)
	tests := map[string]struct {
		spoil   func(t *testing.T, s side)
		wantErr string
	}{
		"A certificate that does not fit its key": {
			func(t *testing.T, s side) { t.Helper(); writeAt(t, s.file("tls.crt"), other.CertPEM) }, "does not match",
		},
		"A certificate that is not PEM": {
			func(t *testing.T, s side) { t.Helper(); writeAt(t, s.file("tls.crt"), []byte("nothing")) }, "PEM",
		},
		"A key that is gone": {
			func(t *testing.T, s side) { t.Helper(); remove(t, s.file("tls.key")) }, "no such file",
		},
		"A bundle that is cut off": {
			func(t *testing.T, s side) {
				t.Helper()
				bundle := bundleOf(ca.CA(), ca.CA())
				writeAt(t, s.file("ca.crt"), bundle[:len(bundle)-40])
			}, "1 of 2 PEM blocks",
		},
		"A bundle with a damaged authority in the middle": {
			func(t *testing.T, s side) {
				t.Helper()
				damaged := bytes.Replace(ca.CA().CertPEM, []byte("MII"), []byte("!!!"), 1)
				writeAt(t, s.file("ca.crt"), append(damaged, ca.CA().CertPEM...))
			}, "1 of 2 PEM blocks",
		},
		"An empty bundle": {
			func(t *testing.T, s side) { t.Helper(); writeAt(t, s.file("ca.crt"), nil) }, "no certificate in it",
		},
		"A key in the bundle": {
			func(t *testing.T, s side) { t.Helper(); writeAt(t, s.file("ca.crt"), ca.CA().KeyPEM) }, "want only certificates",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newSide(t, serverPair(t, ca), ca.CA().CertPEM)
			client := newSide(t, clientPair(t, ca, "client"), ca.CA().CertPEM)
			test.spoil(t, server)
			for range 3 {
				server.look()
				if _, _, err := handshake(t, mutual(server), client.reloader.ClientTLS(serverName)); err != nil {
					t.Fatalf("the last good files are not in use: %v", err)
				}
			}
			if err := server.reloader.Err(); err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("Err() = %v, want %q", err, test.wantErr)
			}
			if got := strings.Count(server.log.String(), "refused"); got != 1 {
				t.Errorf("reported %d times, want once:\n%s", got, server.log)
			}
			server.write(t, other, ca.CA().CertPEM)
			server.look()
			if err := server.reloader.Err(); err != nil {
				t.Errorf("Err() = %v after the files were mended", err)
			}
		})
	}
}

// A refused bundle is read again even when its content equals the last valid one's.
func TestARefusedFileIsTriedAgain(t *testing.T) {
	ca := authority(t)
	server := newSide(t, serverPair(t, ca), ca.CA().CertPEM)
	server.writeCA(t, nil)
	server.look()
	if server.reloader.Err() == nil {
		t.Fatal("an empty bundle was taken")
	}
	server.writeCA(t, ca.CA().CertPEM)
	server.look()
	if err := server.reloader.Err(); err != nil {
		t.Errorf("Err() = %v, want the bundle taken", err)
	}
}

func TestExpiry(t *testing.T) {
	ca := authority(t)
	first, second := issue(t, ca, Spec{DNSNames: []string{serverName}, Server: true, TTL: time.Minute}), serverPair(t, ca)
	server := newSide(t, first, ca.CA().CertPEM)
	ends := func(pair Pair) time.Time {
		t.Helper()
		loaded, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		return loaded.Leaf.NotAfter
	}
	if got := server.reloader.Expiry(); !got.Equal(ends(first)) {
		t.Errorf("Expiry() = %v, want %v", got, ends(first))
	}
	if got := server.reloader.CAExpiry(); !got.Equal(ends(ca.CA())) {
		t.Errorf("CAExpiry() = %v, want %v", got, ends(ca.CA()))
	}
	server.write(t, second, ca.CA().CertPEM)
	server.look()
	if got := server.reloader.Expiry(); !got.Equal(ends(second)) {
		t.Errorf("Expiry() = %v, want the new certificate's, %v", got, ends(second))
	}
}

func TestOpenReloaderRefuses(t *testing.T) {
	ca := authority(t)
	good := newSide(t, serverPair(t, ca), ca.CA().CertPEM)
	tests := map[string]ReloaderOptions{
		"A certificate without its key is refused.": {CertFile: good.file("tls.crt")},
		"A missing certificate is refused.":         {CertFile: good.file("none.crt"), KeyFile: good.file("tls.key")},
		"A missing bundle is refused.":              {CAFile: good.file("none.crt")},
	}
	for name, options := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := OpenReloader(options); err == nil {
				t.Error("opened, want an error")
			}
		})
	}
}

// Without a bundle crypto/tls would fall back to the authorities of the system, on both ends.
func TestNoAuthoritiesTrustNobody(t *testing.T) {
	ca := authority(t)
	server := newSide(t, serverPair(t, ca), ca.CA().CertPEM)
	client := newSide(t, clientPair(t, ca, "client"), ca.CA().CertPEM)
	bare := func(s side) *Reloader {
		r, err := OpenReloader(ReloaderOptions{CertFile: s.file("tls.crt"), KeyFile: s.file("tls.key")})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	open := bare(server).ServerTLS(tls.VersionTLS13, tls.VerifyClientCertIfGiven)
	if _, _, err := handshake(t, open, client.reloader.ClientTLS(serverName)); err == nil || !strings.Contains(err.Error(), "trusts no authority") {
		t.Errorf("server without authorities: %v", err)
	}
	if _, _, err := handshake(t, mutual(server), bare(client).ClientTLS(serverName)); err == nil || !strings.Contains(err.Error(), "trusts no authority") {
		t.Errorf("client without authorities: %v", err)
	}
}

// A rotation in the documented order, with the authorities overlapping, fails no handshake of those that run beside it.
func TestRotationUnderLoadFailsNoHandshake(t *testing.T) {
	const workers = 4
	first, second := authority(t), authority(t)
	server := newSide(t, serverPair(t, first), first.CA().CertPEM)
	client := newSide(t, clientPair(t, first, "client"), first.CA().CertPEM)
	serverConfig, clientConfig := mutual(server), client.reloader.ClientTLS(serverName)

	ctx, cancel := context.WithCancel(t.Context())
	rounds := make(chan struct{})
	var load sync.WaitGroup
	for range workers {
		load.Go(func() {
			for ctx.Err() == nil {
				server.look()
				client.look()
				if _, _, err := handshake(t, serverConfig, clientConfig); err != nil {
					t.Errorf("a handshake failed during the rotation: %v", err)
				}
				select {
				case rounds <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
	}
	settle := func() { // every worker has begun and ended a handshake since
		for range 2 * workers {
			<-rounds
		}
	}
	both := bundleOf(first.CA(), second.CA())
	for _, step := range []func(){
		func() { server.writeCA(t, both); client.writeCA(t, both) },
		func() { server.write(t, serverPair(t, second), both) },
		func() { client.write(t, clientPair(t, second, "client"), both) },
		func() { server.writeCA(t, second.CA().CertPEM); client.writeCA(t, second.CA().CertPEM) },
	} {
		settle()
		step()
	}
	settle()
	cancel()
	load.Wait()
	if err := errors.Join(server.reloader.Err(), client.reloader.Err()); err != nil {
		t.Errorf("after the rotation: %v", err)
	}
}

func writeAt(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := WriteFile(file, data, certFileMode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
