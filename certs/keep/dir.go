package keep

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/portcullis-mesh/portcullis/certs"
)

const (
	lockFile                = ".lock"
	dirMode     os.FileMode = 0o700
	publicMode  os.FileMode = 0o644
	privateMode os.FileMode = 0o600
)

// Dir is a Store of directories, each with the files of one Secret, as a Pod has it mounted. One pass at a time uses it.
type Dir struct {
	path string
	lock *os.File
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
	return &Dir{path: path, lock: lock}, nil
}

// Close unlocks the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// Read implements [Store]. Files whose names begin with a dot are no part of a Secret.
func (d *Dir) Read(_ context.Context, name string) (Secret, error) {
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

// Write implements [Store]. Each file is replaced whole: the bundle first, and a certificate before its key. A crash in between leaves
// a certificate that does not fit its key. Of a leaf the next pass issues another one.
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
	for _, name := range slices.Sorted(maps.Keys(secret.Files)) { // ca.crt, next.*, tls.*
		mode := publicMode
		if strings.HasSuffix(name, ".key") {
			mode = privateMode
		}
		if before, exists := old.Files[name]; exists && bytes.Equal(before, secret.Files[name]) {
			continue
		}
		if err := certs.WriteFile(filepath.Join(dir, name), secret.Files[name], mode); err != nil {
			return err
		}
	}
	for name := range old.Files {
		if _, kept := secret.Files[name]; !kept {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
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
