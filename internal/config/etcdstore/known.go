package etcdstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/portcullis-mesh/portcullis/internal/certs"
)

// maxKnownBytes bounds the name of a store in a file.
const maxKnownBytes = 256

// known is the identity of the store that a source has listed, kept in a file.
type known struct {
	file string // empty: it is not kept
	id   string // empty before the first listing
}

// Remember makes List fail unless a file names the store, so that a new process detects a store that was wiped or replaced.
// The first listing writes a missing file; found reports whether it exists. Remember is called before List.
func (s *Source) Remember(file string) (found bool, err error) {
	s.known.file = file
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("which store it was: %w", err)
	}
	s.known.id = strings.TrimSpace(string(data))
	if s.known.id == "" || len(data) > maxKnownBytes {
		return false, fmt.Errorf("which store it was: %s names none: remove the file if etcd has the configuration now", file)
	}
	return true, nil
}

// check compares a store with the known one, and remembers it if there is none.
func (k *known) check(id string) error {
	switch {
	case k.file == "" || k.id == id:
		return nil
	case k.id != "":
		return fmt.Errorf("%w: it is %s, and %s says %s: restore the store of that file, or remove the file if this is the configuration from now on",
			ErrReplaced, id, k.file, k.id)
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
		return fmt.Errorf("remembering which store it is: %w", err)
	}
	if err := certs.WriteFile(k.file, []byte(id+"\n"), 0o600); err != nil {
		return fmt.Errorf("remembering which store it is: %w", err)
	}
	k.id = id
	return nil
}

// missing adds the remedy to ErrMissing if there was a store.
func (k *known) missing(err error) error {
	if k.id == "" || !errors.Is(err, ErrMissing) {
		return err
	}
	return fmt.Errorf("%w, and it did: restore it (%s says that it was %s), or remove that file and make an empty one", err, k.file, k.id)
}
