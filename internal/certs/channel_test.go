package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// chainsOf are the verified chains of a client's certificate of an authority.
func chainsOf(t *testing.T, ca *Authority, spec Spec) [][]*x509.Certificate {
	t.Helper()
	return [][]*x509.Certificate{{leaf(t, issue(t, ca, spec)), leaf(t, ca.CA())}}
}

// who is the name at the other end of a channel, or why there is none.
func who(t *testing.T, c *Channel, want string, wantErr error) {
	t.Helper()
	peer, err := c.Identity()
	if peer.Name() != want || !errors.Is(err, wantErr) {
		t.Errorf("Identity() = %q, %v, want %q, %v", peer.Name(), err, want, wantErr)
	}
}

func TestAChannelLastsAsLongAsItsCertificate(t *testing.T) {
	ca := authority(t)
	s := newSide(t, serverPair(t, ca), bundleOf(ca.CA()))
	c := s.reloader.Channel(&tls.ConnectionState{VerifiedChains: chainsOf(t, ca, Spec{Identity: "ann", Client: true, TTL: time.Minute})})
	who(t, c, "ann", nil)
	s.clock.advance(2 * time.Minute)
	who(t, c, "", identity.ErrExpired)
}

func TestAChannelLastsAsLongAsItsAuthorityIsTrusted(t *testing.T) {
	ours, others := authority(t), authority(t)
	s := newSide(t, serverPair(t, ours), bundleOf(ours.CA()))
	c := s.reloader.Channel(&tls.ConnectionState{VerifiedChains: chainsOf(t, ours, Spec{Identity: "ann", Client: true})})
	who(t, c, "ann", nil)

	s.write(t, serverPair(t, ours), bundleOf(ours.CA(), others.CA()))
	s.look()
	s.reloader.fresh()
	who(t, c, "ann", nil) // another authority beside changes nothing

	s.write(t, serverPair(t, ours), bundleOf(others.CA()))
	s.look()
	who(t, c, "ann", nil) // the files are looked at by Run and by handshakes, not by those who ask
	s.reloader.fresh()
	who(t, c, "", identity.ErrUntrusted)

	s.write(t, serverPair(t, ours), bundleOf(ours.CA()))
	s.look()
	s.reloader.fresh()
	who(t, c, "ann", nil)
}

func TestAChannelOfACrossSignedAuthorityNeedsAllThatVouchedForIt(t *testing.T) {
	first, second := authority(t), authority(t)
	s := newSide(t, serverPair(t, first), bundleOf(first.CA(), second.CA()))
	cert := leaf(t, issue(t, first, Spec{Identity: "ann", Client: true}))
	one, two := leaf(t, first.CA()), leaf(t, second.CA())
	c := s.reloader.Channel(&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert, one}, {cert, one, two}}})
	peer, err := c.Identity()
	want := []string{identity.Fingerprint(one), identity.Fingerprint(two)}
	slices.Sort(want)
	if err != nil || !slices.Equal(peer.Authorities(), want) {
		t.Errorf("authorities = %v (%v), want %v", peer.Authorities(), err, want)
	}
	s.write(t, serverPair(t, first), bundleOf(first.CA()))
	s.look()
	s.reloader.fresh()
	who(t, c, "", identity.ErrUntrusted)
}

func TestAChannelWithoutACertificateIsNobodys(t *testing.T) {
	ca := authority(t)
	s := newSide(t, serverPair(t, ca), bundleOf(ca.CA()))
	who(t, s.reloader.Channel(nil), "", identity.ErrNone)
	presented := []*x509.Certificate{leaf(t, issue(t, ca, Spec{Identity: "ann", Client: true}))}
	who(t, s.reloader.Channel(&tls.ConnectionState{PeerCertificates: presented}), "", identity.ErrNone)
}

func TestVerifyAsksTheAuthoritiesOfTheMoment(t *testing.T) {
	ours, others := authority(t), authority(t)
	s := newSide(t, serverPair(t, ours), bundleOf(ours.CA()))
	state := func(a *Authority, spec Spec) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf(t, issue(t, a, spec))}}
	}
	client := Spec{Identity: "ann", Client: true}
	for name, tc := range map[string]struct {
		state *tls.ConnectionState
		want  string
	}{
		"a client of ours":         {state(ours, client), "ann"},
		"a client of others":       {state(others, client), ""},
		"a server of ours":         {state(ours, Spec{Identity: "server", DNSNames: []string{serverName}, Server: true}), ""},
		"nobody":                   {&tls.ConnectionState{}, ""},
		"a connection without TLS": {nil, ""},
	} {
		peer, err := s.reloader.Verify(tc.state).Identity()
		if peer.Name() != tc.want || (tc.want == "") != errors.Is(err, identity.ErrNone) {
			t.Errorf("%s: %q, %v", name, peer.Name(), err)
		}
	}
	mine := state(ours, client)
	before := s.reloader.Verify(mine)
	if peer, _ := before.Identity(); !slices.Equal(peer.Authorities(), []string{identity.Fingerprint(leaf(t, ours.CA()))}) {
		t.Errorf("authorities = %v, want ours", peer.Authorities())
	}
	s.write(t, serverPair(t, ours), bundleOf(others.CA()))
	s.look()
	who(t, s.reloader.Verify(mine), "", identity.ErrNone)
	who(t, before, "", identity.ErrUntrusted)
}

func TestRunSeesFilesWithoutAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := authority(t), authority(t)
		s := side{dir: t.TempDir()}
		s.write(t, serverPair(t, first), bundleOf(first.CA()))
		var err error
		s.reloader, err = OpenReloader(ReloaderOptions{CertFile: s.file("tls.crt"), KeyFile: s.file("tls.key"), CAFile: s.file("ca.crt")})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.reloader.Run(t.Context()) }()
		c := s.reloader.Channel(&tls.ConnectionState{VerifiedChains: chainsOf(t, first, Spec{Identity: "ann", Client: true})})
		s.writeCA(t, bundleOf(second.CA()))
		<-time.After(2 * reloadInterval)
		synctest.Wait()
		who(t, c, "", identity.ErrUntrusted)
	})
}

// BenchmarkIdentity measures the identification of the caller of a request on an open connection.
func BenchmarkIdentity(b *testing.B) {
	ca, err := NewAuthority("bench", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	pair, err := ca.Issue(Spec{Identity: "ann", Client: true})
	if err != nil {
		b.Fatal(err)
	}
	cert, err := pair.TLS()
	if err != nil {
		b.Fatal(err)
	}
	file := b.TempDir() + "/ca.crt"
	if err := WriteFile(file, bundleOf(ca.CA()), certFileMode); err != nil {
		b.Fatal(err)
	}
	r, err := OpenReloader(ReloaderOptions{CAFile: file})
	if err != nil {
		b.Fatal(err)
	}
	c := r.Channel(&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert.Leaf, ca.cert}}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Identity(); err != nil {
			b.Fatal(err)
		}
	}
}
