package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	ca, err := NewAuthority("test authority", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *Authority, spec Spec) Pair {
	t.Helper()
	pair, err := ca.Issue(spec)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func leaf(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	cert, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

func TestIssue(t *testing.T) {
	ca := authority(t)
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	tests := map[string]struct {
		spec     Spec
		identity string
		dial     string // name that a client verifies; empty when it is no server
		usage    x509.ExtKeyUsage
	}{
		"A URI identity becomes the URI name.": {
			Spec{Identity: "spiffe://mesh/hook", Client: true}, "spiffe://mesh/hook", "", x509.ExtKeyUsageClientAuth,
		},
		"A plain identity becomes the common name.": {
			Spec{Identity: "kube-apiserver", Client: true}, "kube-apiserver", "", x509.ExtKeyUsageClientAuth,
		},
		"A server is verified by its DNS name.": {
			Spec{DNSNames: []string{"bridge.mesh"}, Server: true}, "", "bridge.mesh", x509.ExtKeyUsageServerAuth,
		},
		"A server is verified by its address.": {
			Spec{IPs: loopback, Server: true, Client: true}, "", "127.0.0.1", x509.ExtKeyUsageClientAuth,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cert := leaf(t, issue(t, ca, test.spec))
			if got := identity.Of(cert); got != test.identity {
				t.Errorf("identity = %q, want %q", got, test.identity)
			}
			roots := x509.NewCertPool()
			roots.AddCert(leaf(t, ca.CA()))
			options := x509.VerifyOptions{Roots: roots, DNSName: test.dial, KeyUsages: []x509.ExtKeyUsage{test.usage}}
			if _, err := cert.Verify(options); err != nil {
				t.Errorf("does not verify: %v", err)
			}
			key, ok := cert.PublicKey.(*ecdsa.PublicKey)
			if !ok || key.Curve != elliptic.P256() {
				t.Errorf("key is %T, want ECDSA P-256", cert.PublicKey)
			}
		})
	}
}

func TestIssueTimes(t *testing.T) {
	ca := authority(t)
	before := time.Now().Truncate(time.Second)
	cert := leaf(t, issue(t, ca, Spec{Client: true, TTL: time.Minute}))
	if start := cert.NotBefore.Add(clockSkew); start.Before(before) || start.After(time.Now()) {
		t.Errorf("NotBefore = %v, want %v earlier than now: clocks differ", cert.NotBefore, clockSkew)
	}
	if want := cert.NotBefore.Add(clockSkew + time.Minute); !cert.NotAfter.Equal(want) {
		t.Errorf("NotAfter = %v, want %v", cert.NotAfter, want)
	}

	long := leaf(t, issue(t, ca, Spec{Client: true, TTL: 48 * time.Hour}))
	if want := leaf(t, ca.CA()).NotAfter; !long.NotAfter.Equal(want) {
		t.Errorf("NotAfter = %v, want the authority's %v", long.NotAfter, want)
	}
}

func TestIssueRefuses(t *testing.T) {
	ca := authority(t)
	tests := map[string]Spec{
		"A certificate for nobody is refused.":      {Identity: "x"},
		"An identity that is no URI is refused.":    {Identity: "spiffe://%zz", Client: true},
		"A DNS name that cannot be one is refused.": {DNSNames: []string{"naïve"}, Server: true},
	}
	for name, spec := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ca.Issue(spec); err == nil {
				t.Error("issued, want an error")
			}
		})
	}
}

func TestAuthorityFiles(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	ca := authority(t)
	if err := ca.CA().Write(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	read, err := ReadAuthority(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf(t, ca.CA()))
	cert := leaf(t, issue(t, read, Spec{Identity: "x", Client: true}))
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("a certificate of the authority that was read back does not verify: %v", err)
	}

	info, err := os.Stat(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != keyFileMode {
		t.Errorf("mode of the key = %v, want %v", info.Mode().Perm(), keyFileMode)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("files = %v, want the two alone", entries)
	}
}

func TestReadAuthorityRefusesALeaf(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := issue(t, authority(t), Spec{Identity: "x", Client: true}).Write(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	_, err := ReadAuthority(certFile, keyFile)
	if err == nil || !strings.Contains(err.Error(), "not one of an authority") {
		t.Errorf("ReadAuthority() = %v, want it to say that a leaf is no authority", err)
	}
}

func TestWriteFileLeavesNothingBehindOnFailure(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(target, []byte("x"), certFileMode); err == nil {
		t.Error("a directory was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("entries = %v, want the directory alone", entries)
	}
}
