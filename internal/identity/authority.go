package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
)

const (
	fingerprintMark = "sha256:"
	spiffeMark      = "spiffe" + uriMark
	spiffeScheme    = "spiffe"
)

// Fingerprint names a certificate as documents write it: "sha256:" and the SHA-256 of its DER in 64 hexadecimal digits.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return fingerprintMark + hex.EncodeToString(sum[:])
}

// Authorities identify the issuers in a verified chain: the fingerprint of each certificate above the first, and the SPIFFE trust
// domains of the last one, as in "spiffe://mesh". Only the last one is in the bundle: a trust domain in a certificate below it is a
// claim of its issuer. A chain of one certificate is its own authority.
func Authorities(chain []*x509.Certificate) []string {
	if len(chain) == 0 {
		return nil
	}
	var authorities []string
	for _, cert := range chain[min(1, len(chain)-1):] {
		authorities = append(authorities, Fingerprint(cert))
	}
	for _, uri := range chain[len(chain)-1].URIs {
		if text := uri.String(); CheckAuthority(text) == nil {
			authorities = append(authorities, text)
		}
	}
	return authorities
}

// CheckAuthority returns an error for a text that is no authority as documents write it.
func CheckAuthority(text string) error {
	if digits, ok := strings.CutPrefix(text, fingerprintMark); ok {
		if sum, err := hex.DecodeString(digits); err == nil && len(sum) == sha256.Size && digits == strings.ToLower(digits) {
			return nil
		}
	} else if domain, ok := strings.CutPrefix(text, spiffeMark); ok && domain != "" && !strings.ContainsFunc(domain, outsideTrustDomain) {
		return nil
	}
	return errors.New("must be the fingerprint of a CA certificate, \"sha256:\" and 64 lower-case hexadecimal digits " +
		"(`portcullis certs show` prints it), or a SPIFFE trust domain, as in \"spiffe://example.org\"")
}

// outsideTrustDomain reports whether a trust domain cannot hold a character (SPIFFE-ID, section 2.1).
func outsideTrustDomain(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune(".-_", c)
}

// ownTrustDomain reports whether no certificate of a chain carries another SPIFFE trust domain than its first one. Those that
// carry none do not count.
func ownTrustDomain(chain []*x509.Certificate) bool {
	if len(chain[0].URIs) == 0 || chain[0].URIs[0].Scheme != spiffeScheme {
		return true
	}
	domain := chain[0].URIs[0].Host
	return !slices.ContainsFunc(chain[1:], func(ca *x509.Certificate) bool {
		return slices.ContainsFunc(ca.URIs, func(uri *url.URL) bool { return uri.Scheme == spiffeScheme && uri.Host != domain })
	})
}
