package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/identity"
)

// DefaultInterval is how often the files are looked at, at most: one stat per file and second costs nothing, and a
// rotation is seen before the next health check.
const DefaultInterval = time.Second

// ReloaderOptions is what a Reloader needs.
type ReloaderOptions struct {
	// CertFile and KeyFile are our own certificate chain and its key. Both or neither: a client that is not asked for a
	// certificate has none.
	CertFile, KeyFile string
	// CAFile is the bundle of authorities whose peers we trust. Empty trusts nobody: it is an error to make a
	// configuration out of that.
	CAFile string
	// Interval is the shortest time between two looks at the files; 0 is DefaultInterval.
	Interval time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger is told when files were taken or refused; nil logs nothing.
	Logger *slog.Logger
}

// Reloader hands out the newest good certificate and authorities. It looks at the files when a handshake needs them, so
// it has no goroutine; a certificate or bundle that cannot be read or does not fit is reported once, and the last good
// one stays in use. The certificate and the authorities are taken independently of each other.
//
// A connection that is open when its certificate expires or its authority goes stays open; [Channel] says so, and sessions are
// never resumed past it. Run sees changed files without a handshake.
type Reloader struct {
	options ReloaderOptions

	// current is what handshakes use.
	current atomic.Pointer[material]
	// nextLook is the time of the next look at the files, in nanoseconds since 1970.
	nextLook atomic.Int64
	// failure is what is wrong with the newest files; nil when they are in use.
	failure atomic.Pointer[error]

	mu sync.Mutex // serialises looks
	// Guarded by mu.
	seen map[string]fs.FileInfo
}

// material is what one look at the files gave. It is immutable.
type material struct {
	cert *tls.Certificate // nil without files
	// authorities is nil without a file.
	authorities *x509.CertPool
	// authorityExpiry is when the first of the authorities lapses.
	authorityExpiry time.Time
	// trusted are the fingerprints of the authorities.
	trusted map[string]struct{}
}

// OpenReloader reads the files once, and fails when that does not work: a program that starts without its certificates
// should say so at once.
func OpenReloader(options ReloaderOptions) (*Reloader, error) {
	if (options.CertFile == "") != (options.KeyFile == "") {
		return nil, errors.New("a certificate needs its key; name both files or neither")
	}
	if options.Interval == 0 {
		options.Interval = DefaultInterval
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reloader{options: options, seen: map[string]fs.FileInfo{}}
	r.current.Store(&material{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.lookLocked(); err != nil {
		return nil, err
	}
	return r, nil
}

// Err is what is wrong with the newest files; nil while they are the ones in use.
func (r *Reloader) Err() error {
	r.fresh()
	if err := r.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// SecondsToExpiry is how long our own certificate still holds, in seconds: the value of a gauge. It is negative once the
// certificate has lapsed, and 0 without one.
func (r *Reloader) SecondsToExpiry() float64 {
	cert := r.fresh().cert
	if cert == nil {
		return 0
	}
	return cert.Leaf.NotAfter.Sub(r.options.Now()).Seconds()
}

// CASecondsToExpiry is how long the first of the trusted authorities to lapse still holds, in seconds; 0 without any.
func (r *Reloader) CASecondsToExpiry() float64 {
	expiry := r.fresh().authorityExpiry
	if expiry.IsZero() {
		return 0
	}
	return expiry.Sub(r.options.Now()).Seconds()
}

// Run looks at the files every interval until ctx ends, for connections that are open: handshakes look for themselves.
func (r *Reloader) Run(ctx context.Context) error {
	t := time.NewTicker(r.options.Interval)
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

// Authorities is how many certificates the bundle has: each of them may vouch for every identity that no grant binds.
func (r *Reloader) Authorities() int { return len(r.current.Load().trusted) }

// fresh returns the newest good material. Whoever comes first after the interval looks at the files; others go on with
// what there is, so that a slow disk never holds more than one handshake.
func (r *Reloader) fresh() *material {
	now := r.options.Now()
	if now.UnixNano() < r.nextLook.Load() || !r.mu.TryLock() {
		return r.current.Load()
	}
	defer r.mu.Unlock()
	before := r.failure.Load()
	if err := r.lookLocked(); err != nil && (before == nil || (*before).Error() != err.Error()) {
		r.options.Logger.Error("certificate files refused, the last good ones stay in use", slog.Any("error", err))
	}
	return r.current.Load()
}

// lookLocked takes what changed since the last look, and after a failure everything again: a file that becomes readable
// looks the same as before.
func (r *Reloader) lookLocked() error {
	r.nextLook.Store(r.options.Now().Add(r.options.Interval).UnixNano())
	if !r.changedLocked() && r.failure.Load() == nil {
		return nil
	}
	next := *r.current.Load()
	err := errors.Join(r.takeCert(&next), r.takeAuthorities(&next))
	r.current.Store(&next)
	if err != nil {
		r.failure.Store(&err)
		return err
	}
	r.failure.Store(nil)
	r.options.Logger.Info("certificate files taken", slog.String("cert", r.options.CertFile), slog.String("ca", r.options.CAFile),
		slog.Int("authorities", len(next.trusted)))
	return nil
}

// changedLocked says whether any file is another one than at the last look. It asks before the files are read: what
// changes in between is seen at the next look.
func (r *Reloader) changedLocked() bool {
	changed := false
	for _, file := range []string{r.options.CertFile, r.options.KeyFile, r.options.CAFile} {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			info = nil // reading it will say why
		}
		last, known := r.seen[file]
		if !known || !same(last, info) {
			changed = true
		}
		r.seen[file] = info
	}
	return changed
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func (r *Reloader) takeCert(next *material) error {
	if r.options.CertFile == "" {
		return nil
	}
	pair, err := ReadPair(r.options.CertFile, r.options.KeyFile)
	if err != nil {
		return err
	}
	cert, err := pair.TLS()
	if err != nil {
		return err
	}
	next.cert = &cert
	return nil
}

func (r *Reloader) takeAuthorities(next *material) error {
	if r.options.CAFile == "" {
		return nil
	}
	bundle, err := os.ReadFile(r.options.CAFile)
	if err != nil {
		return fmt.Errorf("reading the authorities: %w", err)
	}
	authorities, err := parseBundle(bundle)
	if err != nil {
		return fmt.Errorf("authorities %s: %w", r.options.CAFile, err)
	}
	next.authorities = x509.NewCertPool()
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

// parseBundle reads every certificate of a bundle. One that cannot be read refuses the whole: a half-written bundle must
// not quietly drop an authority, as x509.CertPool.AppendCertsFromPEM would.
func parseBundle(bundle []byte) ([]*x509.Certificate, error) {
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
	if begun := bytes.Count(bundle, []byte("-----BEGIN ")); begun != len(authorities) {
		return nil, fmt.Errorf("%d of %d PEM blocks can be read; the file is cut off or damaged", len(authorities), begun)
	}
	if len(authorities) == 0 {
		return nil, errors.New("no certificate in it; want a PEM bundle of CA certificates")
	}
	return authorities, nil
}
