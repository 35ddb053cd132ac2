package keep

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

const (
	lockFile                = ".lock"
	pendingFile             = ".pending" // in the directory of a Secret: the files of a write that has begun, as JSON
	dirMode     os.FileMode = 0o700
	publicMode  os.FileMode = 0o644
	privateMode os.FileMode = 0o600
)

// Dir is a Store of directories, each with the files of one Secret, as a Pod has it mounted. One pass at a time uses it.
type Dir struct {
	path   string
	lock   *os.File
	write  func(file string, data []byte, mode os.FileMode) error // certs.WriteFile; a test ends in between
	remove func(file string) error                                // os.Remove
}

var _ Store = (*Dir)(nil)

// OpenDir makes the directory if there is none, and locks it against other processes. The caller has to close it. It is an error if
// another process has the lock.
func OpenDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, dirMode); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, privateMode)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another run, wait for its end: %w", path, err), lock.Close())
	}
	return &Dir{path: path, lock: lock, write: certs.WriteFile, remove: os.Remove}, nil
}

// Close unlocks the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// Read implements [Store]. Files whose names begin with a dot are no part of a Secret. A write that a crash has left unfinished is finished first.
func (d *Dir) Read(_ context.Context, name string) (Secret, error) {
	secret, err := d.read(name)
	if err != nil {
		return secret, err
	}
	pending, err := os.ReadFile(filepath.Join(d.path, name, pendingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return secret, nil
	}
	var files map[string][]byte
	if err == nil {
		err = json.Unmarshal(pending, &files)
	}
	if err == nil {
		err = d.replace(secret, files)
	}
	if err != nil {
		return secret, fmt.Errorf("finishing a write of %s: %w", name, err)
	}
	return d.read(name)
}

func (d *Dir) read(name string) (Secret, error) {
	secret := Secret{Name: name}
	entries, err := os.ReadDir(filepath.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return secret, nil
	}
	if err != nil {
		return secret, err
	}
	secret.Files = map[string][]byte{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(d.path, name, entry.Name()))
		if err != nil {
			return secret, err
		}
		secret.Files[entry.Name()] = data
	}
	secret.Version = version(secret.Files)
	return secret, nil
}

// Write implements [Store]. All files are written down in one first, so that after a crash in between Read finishes the write: a certificate that does
// not fit its key would else be an authority that a person has to mend. Each file is replaced whole: the bundle first, and a certificate before its key.
func (d *Dir) Write(ctx context.Context, secret Secret) error {
	old, err := d.Read(ctx, secret.Name)
	if err != nil {
		return err
	}
	if old.Version != secret.Version {
		return ErrConflict
	}
	dir := filepath.Join(d.path, secret.Name)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	pending, err := json.Marshal(secret.Files)
	if err != nil {
		return err
	}
	if err := d.write(filepath.Join(dir, pendingFile), pending, privateMode); err != nil {
		return err
	}
	return d.replace(old, secret.Files)
}

// replace writes the files of a pending write, removes all others of the Secret, and ends the write. Part of it may be done already.
func (d *Dir) replace(old Secret, files map[string][]byte) error {
	dir := filepath.Join(d.path, old.Name)
	for _, name := range slices.Sorted(maps.Keys(files)) { // ca.crt, next.*, tls.*
		mode := publicMode
		if strings.HasSuffix(name, ".key") {
			mode = privateMode
		}
		if before, exists := old.Files[name]; exists && bytes.Equal(before, files[name]) {
			continue
		}
		if err := d.write(filepath.Join(dir, name), files[name], mode); err != nil {
			return err
		}
	}
	for name := range old.Files {
		if _, kept := files[name]; !kept {
			if err := d.remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return d.remove(filepath.Join(dir, pendingFile))
}

// version is a digest of all files.
func version(files map[string][]byte) string {
	digest := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(digest, "%q %d\n", name, len(files[name]))
		digest.Write(files[name])
	}
	return hex.EncodeToString(digest.Sum(nil))
}
