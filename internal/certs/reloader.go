package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// reloadInterval is the shortest time between two reads of the files: to read three small files costs nothing, and a
// rotation takes effect before the next health check.
const reloadInterval = time.Second

// ReloaderOptions configures a Reloader.
type ReloaderOptions struct {
	// CertFile and KeyFile are our own certificate chain and its key. Both or neither: a client that is not asked for a
	// certificate has none.
	CertFile, KeyFile string
	// CAFile is the bundle of authorities whose peers we trust. With none, every handshake that verifies a peer fails.
	CAFile string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger receives that new files are in use, or were refused; nil logs nothing.
	Logger *slog.Logger
}

// Reloader supplies the newest valid certificate and authorities to each handshake. It reads the files when a handshake
// needs them and has no goroutine. It reports a file that is unreadable or invalid once, and keeps the last valid one.
// The certificate and the authorities are replaced independently of each other.
//
// A connection stays open when its certificate expires or its authority is removed; [Channel] reports that, and sessions
// are not resumed past it. Run reads changed files without a handshake.
type Reloader struct {
	options ReloaderOptions

	// current is used by handshakes.
	current atomic.Pointer[material]
	// nextLook is the time of the next read of the files, in nanoseconds since 1970.
	nextLook atomic.Int64
	// failure is the error of the last read; nil when the newest files are in use.
	failure atomic.Pointer[error]

	mu sync.Mutex // serialises reads of the files
}

// material is the valid content of the files. It is immutable.
type material struct {
	pair            Pair
	cert            *tls.Certificate // of pair; nil without files
	bundle          []byte
	authorities     *x509.CertPool      // of bundle; nil without a file
	authorityExpiry time.Time           // of the first authority to expire
	trusted         map[string]struct{} // fingerprints of the authorities
}

// OpenReloader reads the files once, and fails when that fails.
func OpenReloader(options ReloaderOptions) (*Reloader, error) {
	if (options.CertFile == "") != (options.KeyFile == "") {
		return nil, errors.New("a certificate needs its key; name both files or neither")
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	r := &Reloader{options: options}
	r.current.Store(&material{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.readLocked(); err != nil {
		return nil, err
	}
	return r, nil
}

// Err returns the error of the newest files; nil while they are in use.
func (r *Reloader) Err() error {
	r.fresh()
	if err := r.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Expiry is the moment at which our own certificate expires; zero without one.
func (r *Reloader) Expiry() time.Time {
	cert := r.fresh().cert
	if cert == nil {
		return time.Time{}
	}
	return cert.Leaf.NotAfter
}

// CAExpiry is the moment at which the first of the trusted authorities expires; zero without any.
func (r *Reloader) CAExpiry() time.Time { return r.fresh().authorityExpiry }

// Run reads the files every second until ctx ends, so that open connections see changed authorities without a handshake.
func (r *Reloader) Run(ctx context.Context) error {
	t := time.NewTicker(reloadInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			r.fresh()
		case <-ctx.Done():
			return nil
		}
	}
}

// Authorities returns the number of certificates in the bundle. Each may vouch for every identity that no grant binds.
func (r *Reloader) Authorities() int { return len(r.current.Load().trusted) }

// fresh returns the newest valid material. The first caller after the interval reads the files; concurrent callers use
// the current material, so that a slow disk delays one handshake only.
func (r *Reloader) fresh() *material {
	now := r.options.Now()
	if now.UnixNano() < r.nextLook.Load() || !r.mu.TryLock() {
		return r.current.Load()
	}
	defer r.mu.Unlock()
	before := r.failure.Load()
	if err := r.readLocked(); err != nil && (before == nil || (*before).Error() != err.Error()) {
		r.options.Logger.Error("certificate files refused, the last good ones stay in use", slog.Any("error", err))
	}
	return r.current.Load()
}

// readLocked takes over the changed files that are valid.
func (r *Reloader) readLocked() error {
	r.nextLook.Store(r.options.Now().Add(reloadInterval).UnixNano())
	current := r.current.Load()
	next := *current
	err := errors.Join(r.readCert(&next), r.readAuthorities(&next))
	changed := next.cert != current.cert || next.authorities != current.authorities
	if changed {
		r.current.Store(&next)
	}
	if err != nil {
		r.failure.Store(&err)
		return err
	}
	if r.failure.Swap(nil) != nil || changed {
		r.options.Logger.Info("certificate files taken", slog.String("cert", r.options.CertFile), slog.String("ca", r.options.CAFile),
			slog.Int("authorities", len(next.trusted)))
	}
	return nil
}

func (r *Reloader) readCert(next *material) error {
	if r.options.CertFile == "" {
		return nil
	}
	pair, err := readPair(r.options.CertFile, r.options.KeyFile)
	if err != nil || (bytes.Equal(pair.CertPEM, next.pair.CertPEM) && bytes.Equal(pair.KeyPEM, next.pair.KeyPEM)) {
		return err
	}
	cert, err := pair.TLS()
	if err != nil {
		return fmt.Errorf("%s and %s: %w", r.options.CertFile, r.options.KeyFile, err)
	}
	next.pair, next.cert = pair, &cert
	return nil
}

func (r *Reloader) readAuthorities(next *material) error {
	if r.options.CAFile == "" {
		return nil
	}
	bundle, err := os.ReadFile(r.options.CAFile)
	if err != nil {
		return fmt.Errorf("reading the authorities: %w", err)
	}
	if next.authorities != nil && bytes.Equal(bundle, next.bundle) {
		return nil
	}
	authorities, err := ParseBundle(bundle)
	if err != nil {
		return fmt.Errorf("authorities %s: %w", r.options.CAFile, err)
	}
	next.bundle, next.authorities = bundle, x509.NewCertPool()
	next.authorityExpiry, next.trusted = authorities[0].NotAfter, map[string]struct{}{}
	for _, authority := range authorities {
		next.authorities.AddCert(authority)
		next.trusted[identity.Fingerprint(authority)] = struct{}{}
		if authority.NotAfter.Before(next.authorityExpiry) {
			next.authorityExpiry = authority.NotAfter
		}
	}
	return nil
}

// pemBegin begins each block of PEM.
const pemBegin = "-----BEGIN "

// ParseBundle reads every certificate of a PEM bundle, and fails when one is invalid: a half-written bundle must not drop an
// authority without an error, as x509.CertPool.AppendCertsFromPEM would.
func ParseBundle(bundle []byte) ([]*x509.Certificate, error) {
	if err := notPEM(bundle); err != nil {
		return nil, err
	}
	var authorities []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a PEM block is %q, want only certificates", block.Type)
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(authorities)+1, err)
		}
		authorities = append(authorities, authority)
	}
	if begun := bytes.Count(bundle, []byte(pemBegin)); begun != len(authorities) {
		return nil, fmt.Errorf("%d of %d PEM blocks can be read; the file is cut off or damaged", len(authorities), begun)
	}
	if len(authorities) == 0 {
		return nil, errors.New("no certificate in it; want a PEM bundle of CA certificates")
	}
	return authorities, nil
}

// notPEM returns the form in which a bundle is, if it is a usual one other than PEM.
func notPEM(bundle []byte) error {
	text := bytes.TrimSpace(bundle)
	decoded, err := base64.StdEncoding.DecodeString(string(text))
	switch {
	case len(text) == 0:
		return errors.New("no certificate in it: it is blank, as a placeholder is; want a PEM bundle of CA certificates")
	case bytes.Contains(text, []byte(pemBegin)):
		return nil
	case err == nil && bytes.HasPrefix(decoded, []byte(pemBegin)):
		return errors.New("it is PEM in base64; want the PEM itself: encode it once less")
	}
	if _, err := x509.ParseCertificates(bundle); err == nil {
		return errors.New("it is a certificate in DER; want PEM: openssl x509 -inform der -in FILE")
	}
	return nil
}
