package embedded

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// lockFile is the file in the data directory that the process which uses it has locked. It holds the id of that process.
const lockFile = "lock"

// acquire locks a file until it is closed, or the process ends. Two processes that write one database would destroy it.
func acquire(path string) (*fileutil.LockedFile, error) {
	f, err := fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, fileutil.PrivateFileMode)
	if errors.Is(err, fileutil.ErrLocked) {
		owner, _ := os.ReadFile(path) // for people alone
		return nil, fmt.Errorf("%w: %s is locked by process %s", ErrLocked, path, cmp.Or(string(bytes.TrimSpace(owner)), "(unknown)"))
	}
	if err != nil {
		return nil, fmt.Errorf("the lock of the data directory: %w", err)
	}
	if err := sign(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("the lock of the data directory: %w", err)
	}
	return f, nil
}

func sign(f *fileutil.LockedFile) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintln(f, os.Getpid())
	return err
}
