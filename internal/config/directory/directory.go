// Package directory lists the configuration in the files of directories. It watches them, and takes a file only when it has stopped
// changing.
package directory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Limits of one Source. Past one, the listing is one problem, and everything that was good stays.
const (
	// MaxFiles bounds the files of all paths together.
	MaxFiles = 5_000
	// MaxObjects bounds the objects of all files together.
	MaxObjects = 20_000
)

// listAttempts is how often a path is read again that changes while it is read.
const listAttempts = 3

// Options configure a Source.
type Options struct {
	// Paths are files, and directories whose files that end in .yaml, .yml or .json are read; subdirectories and names
	// that begin with a dot are not. At least one.
	Paths []string
	// Decoder reads the files; required.
	Decoder *config.Decoder
}

// Source is a Source of files. A path that does not exist or cannot be read fails the listing: an absent path does not mean
// an empty configuration. It keeps decoded objects by the digest of each file, so a listing reads all files but decodes only
// changed ones. It also keeps the effective bytes of each file. Its methods may be called concurrently.
type Source struct {
	paths    []string
	settling settling
	decoder  *config.Decoder

	listed atomic.Bool // whether there was a listing

	mu      sync.Mutex
	decoded config.DecodeCache[string, [sha256.Size]byte] // by path and digest
}

var _ config.Source = (*Source)(nil)

// New returns the source of the paths. It reads nothing yet.
func New(opts Options) (*Source, error) {
	if len(opts.Paths) == 0 {
		return nil, errors.New("config: a directory source needs at least one path")
	}
	if opts.Decoder == nil {
		return nil, errors.New("config: a directory source needs a decoder")
	}
	paths := make([]string, 0, len(opts.Paths))
	for _, path := range opts.Paths {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("config: path %q: %w", path, err)
		}
		paths = append(paths, abs)
	}
	slices.Sort(paths)
	return &Source{
		paths: slices.Compact(paths), decoder: opts.Decoder,
		settling: settling{observed: map[string]fileObservation{}, content: map[string]fileData{}},
	}, nil
}

// Name implements config.Source.
func (d *Source) Name() string { return "directory" }

// List implements config.Source. It reads the files, and leaves it to the listing to decode those that have changed. A file that has
// changed lately counts as it was before; the first listing, for which there is no before, waits until none has.
func (d *Source) List(ctx context.Context) (config.Listing, error) {
	for {
		files, err := d.files(ctx)
		if err != nil {
			return config.Listing{}, err
		}
		if len(files) > MaxFiles {
			return d.listing(files), nil
		}
		counting, again, unsettled := d.settling.settle(files, time.Now())
		if again == 0 || d.listed.Load() {
			d.listed.Store(true)
			l := withUnsettled(d.listing(counting), unsettled)
			l.Again = again
			return l, nil
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return config.Listing{}, errors.Join(fmt.Errorf("a file is being written: %w", ctx.Err()), neverSettled(unsettled))
		}
	}
}

// Read returns the content of all files now, also of files that are being written.
func (d *Source) Read(ctx context.Context) (config.Listing, error) {
	files, err := d.files(ctx)
	if err != nil {
		return config.Listing{}, err
	}
	return d.listing(files).Decoded(), nil
}

// listing lists the content of files.
func (d *Source) listing(files []fileData) config.Listing {
	if len(files) > MaxFiles {
		return tooMany(config.Listing{}, fmt.Sprintf("the paths hold more than %d files", MaxFiles))
	}
	digest := sha256.New()
	for i := range files {
		fmt.Fprintf(digest, "%s %x\n", files[i].path, files[i].sum)
	}
	return config.Listing{
		Revision: hex.EncodeToString(digest.Sum(nil)),
		Decode:   func() ([]config.Object, config.Problems) { return d.decode(files) },
	}
}

// withUnsettled adds a finding for each file that goes on changing.
func withUnsettled(l config.Listing, paths []string) config.Listing {
	if len(paths) == 0 || l.Decode == nil {
		return l
	}
	l.Revision += fmt.Sprintf(" unsettled %q", paths)
	decode := l.Decode
	l.Decode = func() ([]config.Object, config.Problems) {
		objects, problems := decode()
		for _, path := range paths {
			problems = append(problems, config.Problem{
				Severity: match.SeverityWarning, Code: config.CodeUnsettled, File: path,
				Message: "the last content of the file counts: it " + unsettledAdvice(),
			})
		}
		return objects, problems
	}
	return l
}

// unsettledAdvice is the advice for a file that goes on changing.
func unsettledAdvice() string {
	return fmt.Sprintf("has changed again and again for %s; write it less often than every %s, or rename a finished file into its place",
		UnsettledAfter, RewriteDelay)
}

// neverSettled names files that go on changing; nil when there are none.
func neverSettled(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	return fmt.Errorf("each of %q %s", paths, unsettledAdvice())
}

// decode decodes files.
func (d *Source) decode(files []fileData) ([]config.Object, config.Problems) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parts := make([]config.Part[string, [sha256.Size]byte], 0, len(files))
	for _, f := range files {
		parts = append(parts, config.Part[string, [sha256.Size]byte]{
			Key: f.path, Version: f.sum,
			Decode: func(b *config.Budget) ([]config.Object, config.Problems) {
				return d.decoder.DecodeWithin(b, f.path, f.data)
			},
		})
	}
	var l config.Listing
	l.Objects, l.Problems = d.decoded.Decode(parts)
	if n := len(l.Objects); n > MaxObjects {
		l = tooMany(l, fmt.Sprintf("the files hold %d objects, and at most %d are read", n, MaxObjects))
	}
	return l.Objects, l.Problems
}

// tooMany is a listing that says nothing but that a limit is exceeded.
func tooMany(l config.Listing, message string) config.Listing {
	l.Objects = nil
	l.Problems = append(l.Problems, config.Problem{Severity: match.SeverityError, Code: config.CodeLimit, Message: message})
	return l
}

// fileData is a file and its bytes; of a file that is too large, the limit and one byte more.
type fileData struct {
	path string
	data []byte
	sum  [sha256.Size]byte
	info os.FileInfo // after it was read
	// whole is whether the file belongs to a version that was put in place as a whole: nothing writes to it any more.
	whole bool
}

// files reads all files of all paths, and stops one file past the limit of each.
func (d *Source) files(ctx context.Context) ([]fileData, error) {
	var all []fileData
	for _, path := range d.paths {
		files, err := readPath(path)
		for attempt := 1; errors.Is(err, fs.ErrNotExist) && attempt < listAttempts; attempt++ {
			files, err = readPath(path) // a file may have been replaced or removed since its directory was read
		}
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", all[i].path, err)
		}
		all[i].sum = sha256.Sum256(all[i].data)
	}
	return all, nil
}

// readPath reads a file, or the files of a directory.
func readPath(path string) ([]fileData, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		f, err := readFile(path, path)
		return []fileData{f}, err
	}
	root := mountRoot(path)
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var files []fileData
	for _, entry := range entries {
		at := filepath.Join(root, entry.Name())
		if !readable(entry.Name()) || isDirectory(at) {
			continue
		}
		f, err := readFile(filepath.Join(path, entry.Name()), at)
		if err != nil {
			return nil, err
		}
		f.whole = root != path
		if files = append(files, f); len(files) > MaxFiles {
			break
		}
	}
	return files, nil
}

// mountRoot is where the files of a directory are read. Kubernetes mounts a ConfigMap as links through one link, ..data,
// which it swaps when the ConfigMap changes: reading where that leads gives the files of one version.
func mountRoot(dir string) string {
	target, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		return dir
	}
	if filepath.IsAbs(target) {
		return target
	}
	return filepath.Join(dir, target)
}

// readable reports whether a file of a directory is a document by its name.
func readable(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json", config.RegoExt: // the last is refused
		return !strings.HasPrefix(name, ".")
	}
	return false
}

// isDirectory follows links. It is false for a path that cannot be examined: reading it returns the error.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readFile reads the file at a place under the name by which the operator knows it.
func readFile(name, at string) (fileData, error) {
	info, err := os.Stat(at)
	if err != nil {
		return fileData{}, err
	}
	if !info.Mode().IsRegular() {
		return fileData{}, fmt.Errorf("%s: not a regular file", name)
	}
	f, err := os.Open(at)
	if err != nil {
		return fileData{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, config.MaxFileBytes+1))
	if err != nil {
		return fileData{}, err
	}
	if info, err = f.Stat(); err != nil {
		return fileData{}, err
	}
	return fileData{path: name, data: data, info: info}, nil
}
