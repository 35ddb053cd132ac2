package identity

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

const (
	// MinCapabilityKey is the least length of a key of capabilities, in bytes.
	MinCapabilityKey = 32
	// MaxCapabilityKey is the greatest.
	MaxCapabilityKey = 1024
	// MaxCapabilityKeys bounds the keys of a file: a capability that a caller shows is compared with a capability of each key.
	MaxCapabilityKeys = 4

	// endBytes are the bytes of a made capability that have the moment of its end; the others authenticate it.
	endBytes = 8
	// Labels keep the uses of a key apart. Each is followed by a zero byte.
	capabilityLabel = "portcullis.dev/v1 capability of a cluster\x00"
	keyNameLabel    = "portcullis.dev/v1 name of a key of capabilities\x00"
)

// CapabilityKeys make capabilities of clusters, and recognise them: an end and its HMAC-SHA256 together with the name of the
// cluster. So nothing is stored. The first key makes capabilities, and all keys recognise them. They are immutable and may be used
// concurrently; they print as a placeholder.
type CapabilityKeys struct{ keys []capabilityKey }

// capabilityKey is a key and its name.
type capabilityKey struct {
	secret []byte
	name   string
}

// NewCapabilityKey makes a random key, as a line of the file of ParseCapabilityKeys.
func NewCapabilityKey() string {
	var random [MinCapabilityKey]byte
	_, _ = rand.Read(random[:]) // never fails
	return base64.StdEncoding.EncodeToString(random[:])
}

// ParseCapabilityKeys reads keys: one on each line, in base64. Empty lines, and those that begin with "#", are left out. An error names
// the line and does not repeat it.
func ParseCapabilityKeys(text []byte) (*CapabilityKeys, error) {
	var all CapabilityKeys
	lines := map[string]int{} // by the name of a key
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := parseCapabilityKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d %w", n, err)
		}
		if first, twice := lines[key.name]; twice {
			return nil, fmt.Errorf("line %d has the key of line %d: remove one of them", n, first)
		}
		lines[key.name], all.keys = n, append(all.keys, key)
	}
	switch {
	case len(all.keys) == 0:
		return nil, errors.New("has no key: `portcullis cluster capability key` prints one")
	case len(all.keys) > MaxCapabilityKeys:
		return nil, fmt.Errorf("has %d keys, and may have %d: remove those that are not in use", len(all.keys), MaxCapabilityKeys)
	}
	return &all, nil
}

func parseCapabilityKey(line []byte) (capabilityKey, error) {
	secret, err := base64.StdEncoding.Strict().DecodeString(string(line))
	if err != nil || len(secret) < MinCapabilityKey || len(secret) > MaxCapabilityKey {
		return capabilityKey{}, fmt.Errorf("is no key, which is %d to %d bytes in base64: `portcullis cluster capability key` prints one",
			MinCapabilityKey, MaxCapabilityKey)
	}
	name := sum(secret, keyNameLabel)
	return capabilityKey{secret: secret, name: hex.EncodeToString(name[:4])}, nil
}

// Names are the names of the keys, in order: 8 hexadecimal digits, which disclose nothing of a key. No keys have no names.
func (k *CapabilityKeys) Names() []string {
	if k == nil {
		return nil
	}
	names := make([]string, len(k.keys))
	for i := range k.keys {
		names[i] = k.keys[i].name
	}
	return names
}

// Make returns the capability of a cluster with an end, in whole seconds. The same end gives the same capability.
func (k *CapabilityKeys) Make(cluster string, end time.Time) Capability {
	var token [capabilityBytes]byte
	binary.BigEndian.PutUint64(token[:endBytes], uint64(end.Unix()))
	mac := k.keys[0].authenticate(token[:endBytes], cluster)
	copy(token[endBytes:], mac[:]) // as far as it goes: 192 bits
	return Capability{CapabilityMark + base64.RawURLEncoding.EncodeToString(token[:])}
}

// MadeCapability is the content of a capability of Make.
type MadeCapability struct {
	// Key is the name of the key that made it.
	Key string
	// End is the last moment at which it is good.
	End time.Time
}

// Find reports whether a key has made the capability for the cluster. The time that it takes depends neither on the keys nor on the
// capabilities that they make. The end of the capability may have passed. No keys have made none.
func (k *CapabilityKeys) Find(shown Capability, cluster string) (MadeCapability, bool) {
	if k == nil {
		return MadeCapability{}, false
	}
	var token [capabilityBytes]byte // all zero for no capability, which no key makes
	if encoded := len(CapabilityMark); len(shown.token) > encoded {
		_, _ = base64.RawURLEncoding.Decode(token[:], []byte(shown.token[encoded:]))
	}
	at := -1
	for i := range k.keys {
		mac := k.keys[i].authenticate(token[:endBytes], cluster)
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(mac[:capabilityBytes-endBytes], token[endBytes:]), i, at)
	}
	if at < 0 {
		return MadeCapability{}, false
	}
	return MadeCapability{Key: k.keys[at].name, End: time.Unix(int64(binary.BigEndian.Uint64(token[:endBytes])), 0)}, true
}

// authenticate returns the code of an end and a cluster.
func (k *capabilityKey) authenticate(end []byte, cluster string) [sha256.Size]byte {
	return sum(k.secret, capabilityLabel+string(end)+cluster)
}

func sum(secret []byte, text string) (code [sha256.Size]byte) {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(text))
	h.Sum(code[:0])
	return code
}

// String implements fmt.Stringer, and does not show the keys.
func (*CapabilityKeys) String() string { return "capability keys REDACTED" }

// GoString implements fmt.GoStringer, and does not show the keys.
func (k *CapabilityKeys) GoString() string { return k.String() }

// LogValue implements slog.LogValuer, and does not show the keys.
func (k *CapabilityKeys) LogValue() slog.Value { return slog.StringValue(k.String()) }
