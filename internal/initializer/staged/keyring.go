package staged

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

const (
	// MaxKeys bounds the keys of a file.
	MaxKeys = 16
	// keyBytes is the size of a key.
	keyBytes = 32
	// maxKeysFile bounds the file, in bytes.
	maxKeysFile = 64 << 10
	// keysInterval is how often the file is read again.
	keysInterval = time.Second
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
type Keyring struct {
	file    string
	log     *slog.Logger
	current atomic.Pointer[keys] // the last that could be read

	// Of Run.
	text    []byte // that was taken
	failure string // of the last read, so that each is logged once
}

// keys are the keys in one version of the file.
type keys struct {
	writes string // name of the key that encrypts
	byName map[string]cipher.AEAD
}

// OpenKeyring reads the keys of a file. The logger receives which keys are taken; nil logs nothing.
func OpenKeyring(file string, logger *slog.Logger) (*Keyring, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	k := &Keyring{file: file, log: logger}
	if err := k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// Run reads the file again until ctx ends. An error is logged once, and the last keys stay in use.
func (k *Keyring) Run(ctx context.Context) error {
	t := time.NewTicker(keysInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		failure := ""
		if err := k.read(); err != nil {
			failure = err.Error()
		}
		if failure != "" && failure != k.failure {
			k.log.Error("the file of the keys of staged objects is refused, and the last good keys stay in use", "error", failure)
		}
		k.failure = failure
	}
}

// read takes the keys of the file, if they have changed.
func (k *Keyring) read() error {
	text, err := certs.ReadFile(k.file, maxKeysFile)
	if err != nil {
		return err
	}
	if k.current.Load() != nil && bytes.Equal(text, k.text) {
		return nil
	}
	parsed, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.file, err)
	}
	k.text = text
	k.current.Store(parsed)
	k.log.Info("keys of staged objects taken: the first encrypts, all decrypt", "file", k.file, "first", parsed.writes, "keys", len(parsed.byName))
	return nil
}

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
		if all.writes == "" {
			all.writes = string(before)
		}
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
	all := k.current.Load()
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
	aead := k.current.Load().byName[string(name)]
	if aead == nil {
		return nil, fmt.Errorf("it is encrypted with key %q, which this dispatcher does not have", name)
	}
	text, err := aead.Open(nil, nil, sealed, key)
	if err != nil {
		return nil, fmt.Errorf("it is not what key %q has encrypted for this place", name)
	}
	return text, nil
}
