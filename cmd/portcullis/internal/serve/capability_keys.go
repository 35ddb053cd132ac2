package serve

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

const (
	// keysInterval is the time between two reads of the file with the keys of capabilities. Certificates are read as
	// often.
	keysInterval = time.Second
	// maxKeysFile bounds that file, in bytes: MaxCapabilityKeys of the largest, and comments.
	maxKeysFile = 64 << 10
)

// capabilityKeys are the keys of a file, which Run reads again. Without a file there are none.
type capabilityKeys struct {
	file    string
	log     *slog.Logger
	current atomic.Pointer[identity.CapabilityKeys] // the last that could be read

	// Of Run.
	text    []byte // that was taken
	failure string // of the last read, so that each is logged once
}

// openCapabilityKeys reads the file once, and fails when that fails.
func openCapabilityKeys(file string, log *slog.Logger) (*capabilityKeys, error) {
	k := &capabilityKeys{file: file, log: log}
	if file == "" {
		return k, nil
	}
	if err := k.read(); err != nil {
		return nil, fmt.Errorf("--capability-key-file: %w", err)
	}
	return k, nil
}

// Run reads the file again until ctx ends. It logs an unreadable file once, and keeps the last keys.
func (k *capabilityKeys) Run(ctx context.Context) error {
	if k.file == "" {
		return nil
	}
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
			k.log.Error("the file of the keys of capabilities is refused, and the last good keys stay in use", "error", failure)
		}
		k.failure = failure
	}
}

// read takes the keys of the file, if they have changed.
func (k *capabilityKeys) read() error {
	text, err := certs.ReadFile(k.file, maxKeysFile)
	if err != nil {
		return err
	}
	if k.current.Load() != nil && bytes.Equal(text, k.text) {
		return nil
	}
	keys, err := identity.ParseCapabilityKeys(text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.file, err)
	}
	k.text = text
	k.current.Store(keys)
	k.log.Info("keys of capabilities taken: the first makes, all are accepted", "file", k.file, "keys", keys.Names())
	return nil
}
