package embedded

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockFile is the file in the data directory whose lock says who has it.
const lockFile = "lock"

// lock is a file that this process alone has locked. The kernel gives it free when the process ends, however it ends.
type lock struct{ file *os.File }

// acquire locks a file, and writes into it who did. Two processes that write one database would destroy it.
func acquire(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the lock of the data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is locked by process %s", ErrLocked, path, owner(f))
		}
		return nil, fmt.Errorf("the lock of the data directory: %w", err)
	}
	l := &lock{f}
	if err := l.sign(); err != nil {
		l.release()
		return nil, fmt.Errorf("the lock of the data directory: %w", err)
	}
	return l, nil
}

// sign writes the process into the file, for people.
func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// owner is the process that has signed.
func owner(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return pid
	}
	return "(unknown)"
}

func (l *lock) release() { _ = l.file.Close() }
