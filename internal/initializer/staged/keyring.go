package staged

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

const (
	// MaxKeys bounds the keys of a file.
	MaxKeys = 16
	// keyBytes is the size of a key.
	keyBytes = 32
	// sealedPrefix is in front of an encrypted value, followed by the name of its key and a colon. Values that are not encrypted begin
	// with plainPrefix.
	sealedPrefix = "portcullis:aesgcm:v1:"
	plainPrefix  = "portcullis:plain:v1:"
)

// Keyring encrypts staged objects in etcd with AES-GCM, by the keys of a file: each line is NAME:KEY, where KEY is 32 bytes in base64.
// Empty lines, and those that begin with "#", are left out. The first key encrypts; all decrypt. Values that were written without
// encryption can be read, so that it can be turned on.
//
// To replace a key, add the new one as the second on every dispatcher, then make it the first, and remove the old one later than the
// longest review. A key has to be replaced before it has encrypted 2^32 values: each staged object is one for each change.
//
// A nil keyring encrypts nothing. A Keyring may be used concurrently; Run is called once.
type Keyring struct{ file *certs.KeyFile[keys] }

// keys are the keys in one version of the file.
type keys struct {
	writes string // name of the key that encrypts
	byName map[string]cipher.AEAD
}

// names returns the names of the keys, the first key first.
func (k *keys) names() []string {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(k.byName)), func(name string) bool { return name == k.writes })
	return append([]string{k.writes}, others...)
}

// OpenKeyring reads the keys of a file. The logger receives which keys are taken; nil logs nothing.
func OpenKeyring(file string, logger *slog.Logger) (*Keyring, error) {
	f, err := certs.OpenKeyFile(certs.KeyFileOptions[keys]{File: file, Parse: parseKeys, Names: (*keys).names, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &Keyring{file: f}, nil
}

// Run reads the file again every second until ctx ends. An error is logged once, and the last keys stay in use.
func (k *Keyring) Run(ctx context.Context) error { return k.file.Run(ctx) }

// parseKeys reads the keys of a file. An error names the line and does not repeat it.
func parseKeys(text []byte) (*keys, error) {
	name := regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	all := &keys{byName: map[string]cipher.AEAD{}}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		before, after, _ := bytes.Cut(line, []byte(":"))
		key, err := base64.StdEncoding.Strict().DecodeString(string(after))
		if err != nil || len(key) != keyBytes || !name.Match(before) {
			return nil, fmt.Errorf("line %d is no key, which is NAME:KEY, the name of letters, digits, dots and dashes, and the key %d bytes in base64: "+
				"`head -c %d /dev/urandom | base64` prints one", n, keyBytes, keyBytes)
		}
		if all.byName[string(before)] != nil {
			return nil, fmt.Errorf("line %d has the name of an earlier key: each key needs its own", n)
		}
		if all.byName[string(before)], err = newAEAD(key); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all.writes = cmp.Or(all.writes, string(before))
	}
	switch {
	case all.writes == "":
		return nil, errors.New("has no key: a line is NAME:KEY")
	case len(all.byName) > MaxKeys:
		return nil, fmt.Errorf("has %d keys, and may have %d: remove those that are not in use", len(all.byName), MaxKeys)
	}
	return all, nil
}

// newAEAD returns AES-GCM with a random nonce in front of each value.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns the value of etcd for a text. The key of etcd is authenticated with it.
func (k *Keyring) seal(key string, text []byte) []byte {
	if k == nil {
		return append([]byte(plainPrefix), text...)
	}
	all := k.file.Current()
	aead := all.byName[all.writes]
	prefix := sealedPrefix + all.writes + ":"
	value := make([]byte, len(prefix), len(prefix)+len(text)+aead.Overhead())
	copy(value, prefix)
	return aead.Seal(value, nil, text, []byte(key))
}

// open returns the text of a value of etcd.
func (k *Keyring) open(key, value []byte) ([]byte, error) {
	if text, ok := bytes.CutPrefix(value, []byte(plainPrefix)); ok {
		return text, nil
	}
	sealed, ok := bytes.CutPrefix(value, []byte(sealedPrefix))
	if !ok {
		return nil, errors.New("it was not written by this program, or by a later version of it")
	}
	if k == nil {
		return nil, errors.New("it is encrypted, and this dispatcher has no keys of staged objects")
	}
	name, sealed, _ := bytes.Cut(sealed, []byte(":"))
	aead := k.file.Current().byName[string(name)]
	if aead == nil {
		return nil, fmt.Errorf("it is encrypted with key %q, which this dispatcher does not have", name)
	}
	text, err := aead.Open(nil, nil, sealed, key)
	if err != nil {
		return nil, fmt.Errorf("it was not encrypted by key %q for this place", name)
	}
	return text, nil
}
