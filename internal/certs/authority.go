// Package certs makes and serves the certificates of the mesh: a small certificate authority (Authority) with the PEM
// files it leaves behind, and a Reloader that hands a server or a client the newest good files at every handshake.
//
// It does not authorize (package identity reads a certificate, configuration grants), it does not renew
// anything by itself, and it keeps no state besides the files. All keys are ECDSA P-256. An Authority and a Reloader may
// be used from any goroutine.
package certs

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"time"
)

const (
	// DefaultAuthorityTTL is how long an authority lives that was given no time of its own.
	DefaultAuthorityTTL = 10 * 365 * 24 * time.Hour
	// DefaultLeafTTL is how long a certificate lives that was given no time of its own: short enough that a lost key
	// does not matter for years, long enough for an operator without automation.
	DefaultLeafTTL = 90 * 24 * time.Hour
	// clockSkew is how far a certificate is dated back, for peers whose clock is behind ours.
	clockSkew = 5 * time.Minute
	// serialBits is the size of the random serial numbers: RFC 5280 allows 20 octets, 16 are unique enough.
	serialBits = 128
)

// Authority is a certificate authority of one level: it signs leaves and nothing else. It is immutable.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pair Pair
}

// NewAuthority makes an authority with a new key. The name is the common name of its certificate, for people; ttl is
// counted from now, 0 is DefaultAuthorityTTL.
func NewAuthority(name string, ttl time.Duration) (*Authority, error) {
	return NewAuthorityAt(time.Now(), name, ttl)
}

// NewAuthorityAt is NewAuthority with ttl counted from now.
func NewAuthorityAt(now time.Time, name string, ttl time.Duration) (*Authority, error) {
	ttl = cmp.Or(ttl, DefaultAuthorityTTL)
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(ttl),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("making authority %q: %w", name, err)
	}
	return newAuthority(pair)
}

// ReadAuthority reads an authority from the files that Write of CA() left: the certificate and its key in PEM.
func ReadAuthority(certFile, keyFile string) (*Authority, error) {
	pair, err := ReadPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	authority, err := newAuthority(pair)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", certFile, err)
	}
	return authority, nil
}

// LoadAuthority returns the authority of a certificate and its key.
func LoadAuthority(pair Pair) (*Authority, error) { return newAuthority(pair) }

func newAuthority(pair Pair) (*Authority, error) {
	loaded, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	key, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok || !loaded.Leaf.IsCA {
		return nil, errors.New("the certificate is not one of an authority; name the CA's certificate and key")
	}
	return &Authority{cert: loaded.Leaf, key: key, pair: pair}, nil
}

// CA returns the authority's own certificate and key. Peers get the certificate, to trust it; the issuer keeps the key.
func (a *Authority) CA() Pair { return a.pair }

// Certificate returns the authority's own certificate. It is shared: never change it.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Spec is the content of a certificate.
type Spec struct {
	// Identity names the holder: a URI such as "spiffe://mesh/imagepolicy" becomes the URI name, anything else the common
	// name. Empty for a server that only has addresses. See package identity.
	Identity string
	// DNSNames are the names that clients dial a server by.
	DNSNames []string
	// IPs are the addresses that clients dial a server by.
	IPs []net.IP
	// Server allows the holder to accept connections, Client to open them. At least one is needed.
	Server, Client bool
	// TTL is counted from Now; 0 is DefaultLeafTTL. A certificate never outlives its authority, and is dated back by five minutes
	// for slow clocks.
	TTL time.Duration
	// Now is the present; zero is time.Now().
	Now time.Time
}

// Issue makes a certificate with a new key.
func (a *Authority) Issue(spec Spec) (Pair, error) {
	template, err := spec.template()
	if err != nil {
		return Pair{}, err
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	pair, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issuing a certificate for %q: %w", spec.Identity, err)
	}
	return pair, nil
}

func (s Spec) template() (*x509.Certificate, error) {
	start := s.Now
	if start.IsZero() {
		start = time.Now()
	}
	template := &x509.Certificate{
		NotBefore:   start.Add(-clockSkew),
		NotAfter:    start.Add(cmp.Or(s.TTL, DefaultLeafTTL)),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		DNSNames:    s.DNSNames,
		IPAddresses: s.IPs,
	}
	if s.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if s.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if len(template.ExtKeyUsage) == 0 {
		return nil, errors.New("a certificate is for a server, a client or both; say which")
	}
	return template, s.name(template)
}

// name puts the identity where identity.Of finds it.
func (s Spec) name(template *x509.Certificate) error {
	if !strings.Contains(s.Identity, "://") {
		template.Subject = pkix.Name{CommonName: s.Identity}
		return nil
	}
	uri, err := url.Parse(s.Identity)
	if err != nil {
		return fmt.Errorf("identity %q is no URI: %w", s.Identity, err)
	}
	template.URIs = []*url.URL{uri}
	return nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return key, nil
}

// sign makes the certificate of a key, signed by a parent's.
func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return Pair{}, fmt.Errorf("making a serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	return encodePair(der, key)
}
