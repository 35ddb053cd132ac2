package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"regexp"
	"strings"
)

const (
	// CapabilityMark begins every capability, so that scanners for secrets find a published capability.
	CapabilityMark = "pcap_"
	// capabilityBytes is the entropy of a capability: 256 bits.
	capabilityBytes = 32
	// redacted stands for a capability wherever it is printed.
	redacted = CapabilityMark + "REDACTED"
)

// errCapability does not repeat the text: it may be a capability with a slip in it.
var errCapability = errors.New("is not a capability, which is \"" + CapabilityMark +
	"\" and 43 characters of base64url: `portcullis cluster capability new` makes one")

// Capability is a secret in the path of a URL. A caller without a client certificate shows it, and may then send the reviews of one
// cluster. It prints as a placeholder, whatever prints it; Reveal is the one way to the text. The zero Capability is none.
// It is immutable and may be used concurrently.
type Capability struct{ token string }

// NewCapability makes a random capability.
func NewCapability() Capability {
	var random [capabilityBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return Capability{CapabilityMark + base64.RawURLEncoding.EncodeToString(random[:])}
}

// ParseCapability reads the text of a capability. Other texts, also stronger ones, are none: so an operator cannot choose a weak one.
// The error does not repeat the text.
func ParseCapability(text string) (Capability, error) {
	encoded, marked := strings.CutPrefix(text, CapabilityMark)
	if !marked || len(encoded) != base64.RawURLEncoding.EncodedLen(capabilityBytes) {
		return Capability{}, errCapability
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(encoded); err != nil || strings.ContainsAny(encoded, "\r\n") {
		return Capability{}, errCapability
	}
	return Capability{text}, nil
}

// FindCapabilities returns the capabilities in a text, in their order: a file may have them alone, or as `portcullis cluster capability
// new` prints them. An error does not repeat the text.
func FindCapabilities(text []byte) ([]Capability, error) {
	var all []Capability
	for _, found := range regexp.MustCompile(CapabilityMark+`[A-Za-z0-9_-]+`).FindAll(text, -1) {
		c, err := ParseCapability(string(found))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// IsZero reports whether there is no capability.
func (c Capability) IsZero() bool { return c.token == "" }

// Reveal returns the text, for the URLs of a registration.
func (c Capability) Reveal() string { return c.token }

// Sum is the SHA-256 of the text, by which documents name a capability without disclosing it.
func (c Capability) Sum() [sha256.Size]byte { return sha256.Sum256([]byte(c.token)) }

// String implements fmt.Stringer, and does not show the text.
func (c Capability) String() string { return redacted }

// GoString implements fmt.GoStringer, and does not show the text.
func (c Capability) GoString() string { return redacted }

// LogValue implements slog.LogValuer, and does not show the text.
func (c Capability) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler, and does not show the text.
func (c Capability) MarshalText() ([]byte, error) { return []byte(redacted), nil }
