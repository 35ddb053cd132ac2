package keep

import (
	"maps"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// authorityName begins the common names of authorities. The time of their beginning follows, which tells one from the other.
const authorityName = "portcullis "

// perform returns the Secret that an action writes.
func (s *state) perform(a action, config *Config, now time.Time) (Secret, error) {
	switch a.kind {
	case issue, distribute:
		return s.writeLeaf(a, config, now)
	case found, announce:
		return s.writeNewAuthority(a.kind, config, now)
	default:
		return s.writeAuthority(a.kind, now), nil
	}
}

func (s *state) writeLeaf(a action, config *Config, now time.Time) (Secret, error) {
	l := s.leaves[a.leaf]
	secret := l.secret.clone()
	secret.Files[BundleKey] = s.bundle.pem()
	if a.kind == distribute {
		return secret, nil
	}
	pair, err := s.signer(now).Issue(certs.Spec{
		Identity: l.want.Identity, DNSNames: l.want.DNSNames, IPs: l.want.IPs,
		Server: l.want.Identity == "", Client: l.want.Identity != "", TTL: config.LeafTTL, Now: now,
	})
	if err != nil {
		return Secret{}, err
	}
	secret.Files[CertKey], secret.Files[KeyKey] = pair.CertPEM, pair.KeyPEM
	return secret, nil
}

// writeNewAuthority adds an authority. Authorities that peers trust and that are not of this Secret become extra ones.
func (s *state) writeNewAuthority(k kind, config *Config, now time.Time) (Secret, error) {
	authority, err := certs.NewAuthorityAt(now, authorityName+now.UTC().Format(time.RFC3339), config.AuthorityTTL)
	if err != nil {
		return Secret{}, err
	}
	secret := s.authority.clone()
	delete(secret.Files, settledKey)
	delete(secret.Files, RotateKey)
	secret.Files[BundleKey] = s.known().with(authority.Certificate()).pem()
	if s.issuer == nil && len(s.known()) > 0 {
		secret.Files[ExtraKey] = s.extra.with(s.known()...).pem()
	}
	pair := authority.CA()
	if k == found {
		secret.Files[CertKey], secret.Files[KeyKey] = pair.CertPEM, pair.KeyPEM
	} else {
		secret.Files[nextCertKey], secret.Files[nextKeyKey] = pair.CertPEM, pair.KeyPEM
	}
	return secret, nil
}

func (s *state) writeAuthority(k kind, now time.Time) Secret {
	secret := s.authority.clone()
	delete(secret.Files, settledKey)
	switch k {
	case rebundle:
		secret.Files[BundleKey] = s.bundle.with(s.wanted()...).pem()
	case settle:
		secret.Files[settledKey] = []byte(now.UTC().Format(time.RFC3339))
	case promote:
		secret.Files[CertKey], secret.Files[KeyKey] = secret.Files[nextCertKey], secret.Files[nextKeyKey]
		delete(secret.Files, nextCertKey)
		delete(secret.Files, nextKeyKey)
	case retire:
		secret.Files[BundleKey] = s.wanted().pem()
	default: // unsettle
	}
	return secret
}

func (s Secret) clone() Secret {
	files := maps.Clone(s.Files)
	if files == nil {
		files = map[string][]byte{}
	}
	return Secret{Name: s.Name, Files: files, Version: s.Version}
}
