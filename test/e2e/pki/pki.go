// Package pki makes the certificates of the end-to-end tests: one authority
// per trust domain, and pairs for the servers and clients that belong to it.
// Everything is in memory until a Pair is written. Not for use outside tests:
// keys are stored unencrypted, and nothing is ever revoked.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Lifetime is how long every certificate is valid; a test run is shorter.
const Lifetime = 24 * time.Hour

// clockSkew is how far in the past certificates begin, so that a reader whose
// clock is slightly behind accepts them.
const clockSkew = time.Hour

// serialBits is the length of the random serial numbers; RFC 5280 allows 159.
const serialBits = 120

// Authority is a self-signed certificate authority. It is immutable, and safe
// for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	// age is how long the certificates that it issues have been over.
	age time.Duration
}

// Pair is a certificate and its private key, both as PEM. The holder must not
// change the bytes.
type Pair struct {
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
}

// NewAuthority makes an authority whose common name is name.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of authority %s: %w", name, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse authority %s: %w", name, err)
	}
	return &Authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// PEM is the authority's certificate, as a caBundle or a CA file has it. The
// caller must not change the bytes.
func (a *Authority) PEM() []byte { return a.pem }

// Pool is a new pool that holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Expired is the authority, whose certificates are valid, with those that it issues over for a minute.
func (a *Authority) Expired() *Authority {
	expired := *a
	expired.age = time.Minute
	return &expired
}

// Server issues a serving pair for hosts, each a DNS name or an IP address.
// The first host is the common name.
func (a *Authority) Server(hosts ...string) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, fmt.Errorf("a serving certificate needs at least one host")
	}
	template, err := newTemplate(pkix.Name{CommonName: hosts[0]})
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	return a.issue(template)
}

// Client issues a client pair. Kubernetes reads name as the user and groups
// as the user's groups.
func (a *Authority) Client(name string, groups ...string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: name, Organization: groups})
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (Pair, error) {
	name := template.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate the key of %s: %w", name, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if a.age > 0 {
		template.NotAfter = time.Now().Add(-a.age)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key) // the JDK reads no other form
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return Pair{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}, nil
}

// TLS is the pair as crypto/tls wants it.
func (p Pair) TLS() (tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read a certificate pair: %w", err)
	}
	return cert, nil
}

// Write stores the pair as dir/name.crt and dir/name.key and returns both
// paths.
func (p Pair) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile = filepath.Join(dir, name+".crt")
	keyFile = filepath.Join(dir, name+".key")
	if err := writeFile(keyFile, p.Key); err != nil {
		return "", "", err
	}
	if err := writeFile(certFile, p.Cert); err != nil {
		return "", "", err
	}
	return certFile, keyFile, nil
}

// SigningKey makes an ECDSA private key as PEM, such as service account
// tokens are signed with.
func SigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a signing key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key) // kube-apiserver finds the public key in no other form
	if err != nil {
		return nil, fmt.Errorf("encode a signing key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(Lifetime),
	}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
