package certs

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	certFileMode os.FileMode = 0o644
	keyFileMode  os.FileMode = 0o600
)

// Pair is a certificate and its private key, both in PEM. The slices are the holder's: never change them.
type Pair struct {
	// CertPEM is the certificate, the leaf first when it is a chain.
	CertPEM []byte
	// KeyPEM is the private key. It is a secret: never log it.
	KeyPEM []byte
}

// ReadPair reads a certificate and its key from PEM files, and checks that they belong together.
func ReadPair(certFile, keyFile string) (Pair, error) {
	pair, err := readPair(certFile, keyFile)
	if err != nil {
		return Pair{}, err
	}
	if _, err := pair.TLS(); err != nil {
		return Pair{}, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}

func readPair(certFile, keyFile string) (Pair, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return Pair{}, fmt.Errorf("reading a certificate: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return Pair{}, fmt.Errorf("reading a key: %w", err)
	}
	return Pair{CertPEM: cert, KeyPEM: key}, nil
}

// TLS returns the pair as crypto/tls wants it, with the leaf parsed.
func (p Pair) TLS() (tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.CertPEM, p.KeyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate and key: %w", err)
	}
	return cert, nil
}

// Write writes the pair to two files, the key readable by its owner alone. Each file is replaced whole, the key first:
// a reader sees the old file or the new one, and for a moment a certificate that does not fit its key, which a Reloader
// waits out.
func (p Pair) Write(certFile, keyFile string) error {
	if err := WriteFile(keyFile, p.KeyPEM, keyFileMode); err != nil {
		return err
	}
	return WriteFile(certFile, p.CertPEM, certFileMode)
}

// WriteCert writes the certificate alone, as a file for peers to trust.
func (p Pair) WriteCert(file string) error { return WriteFile(file, p.CertPEM, certFileMode) }

// WriteFile replaces a file whole: a reader sees the old content or the new one, also after a crash. The directory must
// exist; the file never has a wider mode than the one given, not even for a moment.
func WriteFile(file string, data []byte, mode os.FileMode) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s: %w", file, err), os.Remove(temporary.Name()))
		}
	}()
	if err := fill(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}

// fill writes, flushes and closes a new file.
func fill(file *os.File, data []byte, mode os.FileMode) error {
	_, err := file.Write(data)
	return errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
}

func encodePair(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	return Pair{
		CertPEM: encodeCertificate(der),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// EncodeCertificate returns a certificate in PEM.
func EncodeCertificate(cert *x509.Certificate) []byte { return encodeCertificate(cert.Raw) }

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
