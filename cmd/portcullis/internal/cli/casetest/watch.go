package casetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cases"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
)

const (
	// watchInterval is the interval at which files are looked at.
	watchInterval = 300 * time.Millisecond
	// maxWatched bounds the files that are looked at.
	maxWatched = 20_000
)

// repeat runs all cases, and again each time that a file has changed, until ctx ends. It prints errors in the place of results.
func (c *command) repeat(ctx context.Context, dirs []string, only *regexp.Regexp, out io.Writer) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	last := ""
	for {
		now, err := fingerprint(dirs)
		if err != nil {
			return err
		}
		if now != last {
			last = now
			printed := &cli.CodedError{}
			if err := c.run(ctx, dirs, only, out); err != nil && (!errors.As(err, &printed) || printed.Err != nil) {
				fmt.Fprintln(out, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// made are the names of directories that tools write into, and that --watch passes over.
var made = []string{".git", ".venv", "__pycache__", "node_modules", "target", "venv"} //nolint:gochecknoglobals // a table, never written

// fingerprint changes with the files of directories, and with the policies that their case files name.
func fingerprint(dirs []string) (string, error) {
	var text strings.Builder
	root, n := "", 0
	add := func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root && slices.Contains(made, entry.Name()) {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if n++; n > maxWatched {
			return fmt.Errorf("--watch: there are more than %d files: name some of the directories", maxWatched)
		}
		fmt.Fprintln(&text, path, info.Size(), info.ModTime().UnixNano())
		return nil
	}
	files, err := cases.Find(dirs...)
	if err != nil {
		return "", err //nolint:wrapcheck // it names the directory
	}
	paths := dirs
	for _, file := range files {
		if suite, err := cases.Read(file); err == nil { // run reports the error
			paths = append(paths[:len(paths):len(paths)], suite.Policies...)
		}
	}
	for i, path := range paths {
		root = path
		if err := filepath.WalkDir(path, add); err != nil && i < len(dirs) {
			return "", err
		}
	}
	return text.String(), nil
}
