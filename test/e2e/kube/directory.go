package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// directory holds the files of one cluster. Its name begins with the test
// binary's process id, by which the leftovers of a killed one are found.
type directory string

// newDirectory makes a directory in parent, after it has removed the
// directories of test binaries that have ended.
func newDirectory(parent string) (directory, error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("make the directory of running clusters: %w", err)
	}
	if err := removeLeftovers(parent); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", fmt.Errorf("make the cluster's directory: %w", err)
	}
	return directory(dir), nil
}

func removeLeftovers(parent string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	for _, entry := range entries {
		owner, _, _ := strings.Cut(entry.Name(), "-")
		pid, err := strconv.Atoi(owner)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(parent, entry.Name())); err != nil {
			return fmt.Errorf("remove leftovers: %w", err)
		}
	}
	return nil
}

// path is the file of that name.
func (d directory) path(name string) string { return filepath.Join(string(d), name) }

// write stores a file that only this user reads, and returns its path.
func (d directory) write(name string, data []byte) (string, error) {
	path := d.path(name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, nil
}
