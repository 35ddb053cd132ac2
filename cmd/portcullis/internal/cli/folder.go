package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// WriteFolder writes files, by their paths, to a directory, which must be empty if it is there.
func WriteFolder(dir string, files map[string][]byte) error {
	switch there, err := os.ReadDir(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case len(there) > 0:
		return fmt.Errorf("%s is not empty (it has %s): name a folder that is new or empty", dir, there[0].Name())
	}
	for name, data := range files {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil { //nolint:gosec // the sources of a project are for all to read
			return err
		}
	}
	return nil
}

// Quoted is a path as a word of a shell.
func Quoted(path string) string {
	if regexp.MustCompile(`^[\w./-]+$`).MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
