package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// raw gives a certificate bytes of its own.
func raw(cert *x509.Certificate, bytes string) *x509.Certificate {
	cert.Raw = []byte(bytes)
	return cert
}

func TestFromChainsCollectsAllThatVouch(t *testing.T) {
	spiffe := raw(certificate(t, "", "spiffe://mesh/host"), "leaf")
	plain := raw(certificate(t, "kube-apiserver"), "plain")
	bare, other := raw(certificate(t, "bare"), "bare"), raw(certificate(t, "other"), "other")
	mesh := raw(certificate(t, "mesh", "spiffe://mesh"), "mesh")
	evil := raw(certificate(t, "evil", "spiffe://evil"), "evil")
	below := raw(certificate(t, "intermediate", "spiffe://mesh"), "below")
	pathed := raw(certificate(t, "pathed", "spiffe://mesh/ca"), "pathed")
	web := raw(certificate(t, "web", "https://mesh"), "web")
	tests := map[string]struct {
		chains [][]*x509.Certificate
		want   Peer
	}{
		"The fingerprint of the authority vouches.": {
			[][]*x509.Certificate{{plain, bare}}, Named("kube-apiserver", Fingerprint(bare)),
		},
		"So does its trust domain.": {
			[][]*x509.Certificate{{spiffe, mesh}}, Named("spiffe://mesh/host", Fingerprint(mesh), "spiffe://mesh"),
		},
		"And its trust domain vouches for a common name.": {
			[][]*x509.Certificate{{plain, evil}}, Named("kube-apiserver", Fingerprint(evil), "spiffe://evil"),
		},
		"Of an intermediate the fingerprint counts, and not the trust domain that its issuer has written into it.": {
			[][]*x509.Certificate{{spiffe, below, bare}}, Named("spiffe://mesh/host", Fingerprint(below), Fingerprint(bare)),
		},
		"Every chain vouches, in whichever order.": {
			[][]*x509.Certificate{{plain, bare, other}, {plain, bare}}, Named("kube-apiserver", Fingerprint(other), Fingerprint(bare)),
		},
		"An authority of another trust domain does not vouch for a SPIFFE identity.": {[][]*x509.Certificate{{spiffe, evil}}, Peer{}},
		"Nor through an intermediate.": {[][]*x509.Certificate{{spiffe, below, evil}}, Peer{}},
		"Nor as one.":                  {[][]*x509.Certificate{{spiffe, evil, bare}}, Peer{}},
		"What vouches beside it does.": {
			[][]*x509.Certificate{{spiffe, evil}, {spiffe, bare}}, Named("spiffe://mesh/host", Fingerprint(bare)),
		},
		"A path makes no trust domain.": {
			[][]*x509.Certificate{{spiffe, pathed}}, Named("spiffe://mesh/host", Fingerprint(pathed)),
		},
		"Another URI name of an authority says nothing.": {
			[][]*x509.Certificate{{spiffe, web}}, Named("spiffe://mesh/host", Fingerprint(web)),
		},
		"A certificate in the bundle is its own authority.": {
			[][]*x509.Certificate{{plain}}, Named("kube-apiserver", Fingerprint(plain)),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := FromChains(test.chains)
			if got != test.want || ok != (test.want != Peer{}) {
				t.Errorf("FromChains() = %v, %t, want %v", got, ok, test.want)
			}
		})
	}
}

func TestGrant(t *testing.T) {
	one, two := Fingerprint(raw(certificate(t, ""), "1")), Fingerprint(raw(certificate(t, ""), "2"))
	tests := map[string]struct {
		grant Grant
		peer  Peer
		want  bool
	}{
		"A name without authorities is anybody's who has it.":   {Grant{Names: []string{"a", "b"}}, Named("b", one), true},
		"Another name is not in it.":                            {Grant{Names: []string{"a"}}, Named("b", one), false},
		"One authority of those that may vouch is enough.":      {Grant{[]string{"a"}, []string{two, one}}, Named("a", one), true},
		"One authority of those that vouch is enough.":          {Grant{[]string{"a"}, []string{two}}, Named("a", one, two), true},
		"Another authority is not.":                             {Grant{[]string{"a"}, []string{two}}, Named("a", one), false},
		"Nor is none.":                                          {Grant{[]string{"a"}, []string{two}}, Named("a"), false},
		"Authorities without names are nobody's.":               {Grant{nil, []string{one}}, Named("a", one), false},
		"Nobody is in no grant, whatever it names.":             {Grant{Names: []string{""}}, Peer{}, false},
		"What only begins like an authority is none.":           {Grant{[]string{"a"}, []string{one[:20]}}, Named("a", one), false},
		"An authority that is empty vouches for nobody.":        {Grant{[]string{"a"}, []string{""}}, Named("a"), false},
		"Authorities are no way to write two of them into one.": {Grant{[]string{"a"}, []string{one + " " + two}}, Named("a", one, two), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.grant.Includes(test.peer); got != test.want {
				t.Errorf("Includes(%v) = %t, want %t", test.peer, got, test.want)
			}
		})
	}
}

func TestPeersAreComparedWithTheirAuthorities(t *testing.T) {
	if Named("a", "x", "y") != Named("a", "y", "x", "y") {
		t.Error("the order of authorities, and how often each is there, makes another peer")
	}
	if Named("a", "x") == Named("a", "y") {
		t.Error("another authority makes no other peer")
	}
	if got := Named("a", "y", "x").Authorities(); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("Authorities() = %v", got)
	}
}

func TestCheckAuthority(t *testing.T) {
	digits := strings.Repeat("0a", 32)
	for _, text := range []string{"sha256:" + digits, "spiffe://mesh", "spiffe://prod-1.example.org", "spiffe://a_b"} {
		if err := CheckAuthority(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "mesh", digits, "sha256:", "sha256:" + digits[1:], "sha256:" + digits + "0", "sha256:" + strings.ToUpper(digits), "sha256:0A:0B",
		"sha1:" + digits, "spiffe://", "spiffe://mesh/", "spiffe://mesh/ca", "spiffe://Mesh", "spiffe://me sh", "spiffe://u@mesh", "spiffe://mesh:80", "https://mesh",
	} {
		if err := CheckAuthority(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// switched is a channel whose identity a test ends.
type switched struct{ ended atomic.Bool }

func (s *switched) Identity() (Peer, error) {
	if s.ended.Load() {
		return Peer{}, ErrExpired
	}
	return Named("a"), nil
}

func TestWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c switched
		ctx, stop := While(t.Context(), &c)
		defer stop()
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("it has ended at once")
		}
		c.ended.Store(true)
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, ErrExpired) {
			t.Errorf("cause = %v", err)
		}
		stopped, stop := While(t.Context(), &c)
		stop()
		if err := context.Cause(stopped); !errors.Is(err, context.Canceled) {
			t.Errorf("cause of what was stopped = %v", err)
		}
	})
}
