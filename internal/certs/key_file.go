package certs

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// maxKeyFile bounds a file of keys, in bytes: the most keys that one may have, and comments.
const maxKeyFile = 64 << 10

// KeyFileOptions configure a KeyFile.
type KeyFileOptions[T any] struct {
	// File is the path.
	File string
	// Parse reads the keys. Its error must not repeat them.
	Parse func(text []byte) (*T, error)
	// Names returns the names of the keys for the log.
	Names func(*T) []string
	// Logger receives which keys are taken, and errors; nil logs nothing.
	Logger *slog.Logger
}

// KeyFile has the last valid keys of a file. Current may be called concurrently; Run is called once. A nil KeyFile has no keys.
type KeyFile[T any] struct {
	options KeyFileOptions[T]
	current atomic.Pointer[T]

	// Of Run.
	text    []byte // of current
	failure string // of the last read, so that each is logged once
}

// OpenKeyFile reads the file once, and fails when that fails.
func OpenKeyFile[T any](options KeyFileOptions[T]) (*KeyFile[T], error) {
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	f := &KeyFile[T]{options: options}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Current returns the keys; nil without a file.
func (f *KeyFile[T]) Current() *T {
	if f == nil {
		return nil
	}
	return f.current.Load()
}

// Run reads the file again every second until ctx ends. An error is logged once, and the last keys stay in use.
func (f *KeyFile[T]) Run(ctx context.Context) error {
	if f == nil {
		return nil
	}
	t := time.NewTicker(reloadInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		failure := ""
		if err := f.read(); err != nil {
			failure = err.Error()
		}
		if failure != "" && failure != f.failure {
			f.options.Logger.Error("the file of keys is refused, and the last good keys stay in use", "error", failure)
		}
		f.failure = failure
	}
}

// read takes the keys of the file, if they have changed.
func (f *KeyFile[T]) read() error {
	text, err := ReadFile(f.options.File, maxKeyFile)
	if err != nil {
		return err
	}
	if f.current.Load() != nil && bytes.Equal(text, f.text) {
		return nil
	}
	keys, err := f.options.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", f.options.File, err)
	}
	f.text = text
	f.current.Store(keys)
	f.options.Logger.Info("keys taken: the first makes new values, all are accepted", "file", f.options.File, "keys", f.options.Names(keys))
	return nil
}
