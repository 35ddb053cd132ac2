package keep

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// state is the content of the Secrets. It is immutable.
type state struct {
	authority Secret
	issuer    *certs.Authority // nil without a usable one
	next      *certs.Authority // nil unless the authority is being replaced
	bundle    authorities
	extra     authorities
	settled   time.Time // zero while leaves do not fit
	leaves    []leafState
	entries   map[string]authorities // by the name of the entry
}

// leafState is a leaf as it is stored.
type leafState struct {
	want   Leaf
	secret Secret
	cert   *x509.Certificate // nil without a usable one
	bundle authorities
}

// authorities is a bundle.
type authorities []*x509.Certificate

func (a authorities) has(cert *x509.Certificate) bool {
	return slices.ContainsFunc(a, cert.Equal)
}

// with returns the bundle with more certificates at its end, each once.
func (a authorities) with(more ...*x509.Certificate) authorities {
	all := slices.Clone(a)
	for _, cert := range more {
		if !all.has(cert) {
			all = append(all, cert)
		}
	}
	return all
}

// same reports whether two bundles have the same certificates.
func (a authorities) same(b authorities) bool {
	return len(a) == len(b) && !slices.ContainsFunc(b, func(cert *x509.Certificate) bool { return !a.has(cert) })
}

func (a authorities) pem() []byte {
	var out bytes.Buffer
	for _, cert := range a {
		out.Write(certs.EncodeCertificate(cert))
	}
	return out.Bytes()
}

// read reads all Secrets. The authority comes last: so a leaf that is older than it is seen as not fitting, and a write to a leaf by a
// decision from an older authority conflicts.
func read(ctx context.Context, store Store, config *Config) (*state, error) {
	var leaves []leafState
	for _, want := range config.Leaves {
		secret, err := store.Read(ctx, want.Secret)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", want.Secret, err)
		}
		leaves = append(leaves, parseLeaf(want, secret))
	}
	secret, err := store.Read(ctx, config.Authority)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", config.Authority, err)
	}
	s, err := parse(secret)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.Authority, err)
	}
	s.leaves = leaves
	if s.next != nil && config.Entries != nil {
		s.entries, err = readEntries(ctx, config)
	}
	return s, err
}

// readEntries reads the bundles of the entries. A bundle that cannot be read has no authority of this mesh.
func readEntries(ctx context.Context, config *Config) (map[string]authorities, error) {
	bundles, err := config.Entries(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the entries: %w", err)
	}
	entries := map[string]authorities{}
	for name, bundle := range bundles {
		if parsed, err := certs.ParseBundle(bundle); err == nil {
			entries[name] = parsed
		}
	}
	return entries, nil
}

// behind is the first entry that trusts an authority of the bundle, and not the new one; empty for none.
func (s *state) behind() string {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		if entry := s.entries[name]; slices.ContainsFunc(entry, s.bundle.has) && !entry.has(s.next.Certificate()) {
			return name
		}
	}
	return ""
}

// parse reads the Secret of the authority. Content that it cannot read is an error: to make a new authority over it would lose the
// old one. A certificate whose key is not there counts as no authority.
func parse(secret Secret) (*state, error) {
	s := &state{authority: secret}
	var err error
	if s.issuer, err = parseAuthority(secret, CertKey, KeyKey); err != nil {
		return nil, err
	}
	if s.next, err = parseAuthority(secret, nextCertKey, nextKeyKey); err != nil {
		return nil, err
	}
	for key, into := range map[string]*authorities{BundleKey: &s.bundle, ExtraKey: &s.extra} {
		if len(secret.Files[key]) == 0 {
			continue
		}
		if *into, err = certs.ParseBundle(secret.Files[key]); err != nil {
			return nil, fmt.Errorf("%s: %w; repair it or remove it", key, err)
		}
	}
	if text := secret.Files[settledKey]; len(text) > 0 {
		if s.settled, err = time.Parse(time.RFC3339, string(text)); err != nil {
			return nil, fmt.Errorf("%s is no time: %w; remove it", settledKey, err)
		}
	}
	return s, nil
}

func parseAuthority(secret Secret, certKey, keyKey string) (*certs.Authority, error) {
	pair := certs.Pair{CertPEM: secret.Files[certKey], KeyPEM: secret.Files[keyKey]}
	if len(pair.CertPEM) == 0 && len(pair.KeyPEM) == 0 {
		return nil, nil //nolint:nilnil // none is no error
	}
	authority, err := certs.LoadAuthority(pair)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w; restore the authority, or remove both keys: then a new one is made, and introduced with overlap", certKey, keyKey, err)
	}
	return authority, nil
}

// parseLeaf reads the Secret of a leaf. Content that it cannot read counts as none, and is replaced.
func parseLeaf(want Leaf, secret Secret) leafState {
	l := leafState{want: want, secret: secret}
	if pair, err := tls.X509KeyPair(secret.Files[CertKey], secret.Files[KeyKey]); err == nil {
		l.cert = pair.Leaf
	}
	if bundle, err := certs.ParseBundle(secret.Files[BundleKey]); err == nil {
		l.bundle = bundle
	}
	return l
}

// rotating reports whether the authority is being replaced.
func (s *state) rotating() bool { return s.next != nil || !s.bundle.same(s.wanted()) }

// wanted is the bundle of the present issuer and the extra authorities.
func (s *state) wanted() authorities {
	var all authorities
	for _, authority := range []*certs.Authority{s.issuer, s.next} {
		if authority != nil {
			all = all.with(authority.Certificate())
		}
	}
	return all.with(s.extra...)
}

// known is every authority that a peer may trust today.
func (s *state) known() authorities {
	all := slices.Clone(s.bundle)
	for _, l := range s.leaves {
		all = all.with(l.bundle...)
	}
	return all
}

// signer is the authority that leaves are issued by now.
func (s *state) signer(now time.Time) *certs.Authority {
	if s.issuer == nil || s.issuerEnded(now) {
		return s.next
	}
	return s.issuer
}

// issuerEnded reports whether the authority that issued has ended: no certificate of it holds, which an overlap would protect.
func (s *state) issuerEnded(now time.Time) bool {
	return s.issuer != nil && !now.Before(s.issuer.Certificate().NotAfter)
}

// serving reports whether a leaf holds now.
func (s *state) serving(now time.Time) bool {
	return slices.ContainsFunc(s.leaves, func(l leafState) bool { return l.cert != nil && now.Before(l.cert.NotAfter) })
}

// ending returns an error for each certificate that is near its end. It is called when nothing can be done.
func (s *state) ending(now time.Time) error {
	var errs []error
	late := func(name string, cert *x509.Certificate) {
		if lived(cert, now, 5, 6) {
			errs = append(errs, fmt.Errorf("%s ends at %s and could not be renewed", name, cert.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	if s.issuer != nil {
		late("the authority of "+s.authority.Name, s.issuer.Certificate())
	}
	for _, l := range s.leaves {
		late("the certificate of "+l.secret.Name, l.cert)
	}
	return errors.Join(errs...)
}

// lived reports whether a certificate has a fraction of its life behind it.
func lived(cert *x509.Certificate, now time.Time, part, of int64) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return !now.Before(cert.NotBefore.Add(life / time.Duration(of) * time.Duration(part)))
}

// issuedBy reports whether an authority has signed a certificate.
func issuedBy(cert, authority *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, authority.RawSubject) && cert.CheckSignatureFrom(authority) == nil
}

// fits reports whether a certificate has the names that its leaf wants.
func (l *leafState) fits() bool {
	if l.want.Identity != "" {
		return identity.Of(l.cert) == l.want.Identity && slices.Contains(l.cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	names, ips := slices.Clone(l.want.DNSNames), []string{}
	for _, ip := range l.want.IPs {
		ips = append(ips, ip.String())
	}
	var have []string
	for _, ip := range l.cert.IPAddresses {
		have = append(have, ip.String())
	}
	return sameNames(names, l.cert.DNSNames) && sameNames(ips, have) && slices.Contains(l.cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
}

func sameNames(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
