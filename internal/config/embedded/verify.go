package embedded

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrNotWhole is the error of Verify and Restore for a file that is no backup, or not all of one.
var ErrNotWhole = errors.New("this is no whole backup")

// Verify returns nil if Backup has written the file: all of it, and unchanged since.
func Verify(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - sha256.Size
	if size <= 0 {
		return fmt.Errorf("%w: %s has %d bytes", ErrNotWhole, file, info.Size())
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, size); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	noted, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if !bytes.Equal(noted, sum.Sum(nil)) {
		return fmt.Errorf("%w: the checksum at the end of %s does not match the data before it", ErrNotWhole, file)
	}
	return nil
}
