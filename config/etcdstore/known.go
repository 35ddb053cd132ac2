package etcdstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/portcullis-mesh/portcullis/certs"
)

// maxKnownBytes bounds the name of a store in a file.
const maxKnownBytes = 256

// known is the store that a source has listed, as a file remembers it.
type known struct {
	file string // empty: nothing is remembered
	id   string // empty before the first listing
}

// Remember has the source list the store alone that a file names, so that one which was wiped, or is another one, is a
// failure also for a process that was started anew. A file that is not there is written with the first listing; found reports
// whether it was there. It is called before List.
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
		return false, fmt.Errorf("which store it was: %s names none: remove it if what is in etcd now is the configuration", file)
	}
	return true, nil
}

// check compares a store with the one that is known, and makes it known if there is none.
func (k *known) check(id string) error {
	switch {
	case k.file == "" || k.id == id:
		return nil
	case k.id != "":
		return fmt.Errorf("%w: it is %s, and %s says %s: restore the one that was there, or remove that file if this is the configuration from now on",
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

// missing says of a store that is not there what can be done, if there was one.
func (k *known) missing(err error) error {
	if k.id == "" || !errors.Is(err, ErrMissing) {
		return err
	}
	return fmt.Errorf("%w, and it did: restore it (%s says that it was %s), or remove that file and make an empty one", err, k.file, k.id)
}
