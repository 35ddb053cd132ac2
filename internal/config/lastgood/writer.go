package lastgood

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/clock"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/store"
)

const (
	// FileName is the name of the file in the directory of a dispatcher.
	FileName = "last-good.json"
	// SaveInterval is the least time between two writings of the file. Changes at the end of the process are written then.
	SaveInterval = 10 * time.Second
)

// Load reads the objects that were in force when the file was written last. A file that is not there holds none.
// With an error come the objects that can be read all the same ([Decode]).
func Load(file string, documents *config.Decoder) ([]config.Object, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if others := info.Mode().Perm() & 0o022; others != 0 {
		return nil, fmt.Errorf("others may write it (mode %s)", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	return Decode(data, documents)
}

// Live has the configuration in force. *store.Store is one; it may be asked concurrently.
type Live interface {
	Configuration() store.Configuration
}

// WriterOptions configure a Writer. Live and File are required.
type WriterOptions struct {
	// Live has the configuration in force.
	Live Live
	// File is where it is kept. Its directory is made when it is needed.
	File string
	// Logger gets errors of writing; nil means none.
	Logger *slog.Logger
}

// Writer keeps the configuration in force in a file. Run is called once.
type Writer struct {
	o       WriterOptions
	digest  string            // of the last write
	sources map[string]string // likewise
	failed  string            // why it could not be written last; empty when it could
}

// NewWriter returns a writer that has written nothing yet.
func NewWriter(o WriterOptions) (*Writer, error) {
	if o.Live == nil || o.File == "" {
		return nil, errors.New("lastgood: Live and File are required")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Writer{o: o}, nil
}

// Run writes the configuration in force, when that has changed, until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		now := w.o.Live.Configuration() // asked before it is saved: nothing is missed
		if w.save() {
			clock.Sleep(ctx, SaveInterval)
			continue
		}
		select {
		case <-now.Next():
		case <-ctx.Done():
		}
	}
	w.save()
	return nil
}

// save writes the configuration in force, unless that is written. It reports whether it has tried to.
func (w *Writer) save() bool {
	now := w.o.Live.Configuration()
	if now.Digest == "" || now.Digest == w.digest && maps.Equal(now.Sources, w.sources) {
		return false
	}
	err := w.write(now.Objects)
	switch {
	case err == nil:
		w.digest, w.sources, w.failed = now.Digest, now.Sources, ""
	case w.failed != err.Error():
		w.failed = err.Error()
		w.o.Logger.Error("the last good configuration is not kept: a restart reads an older one", "file", w.o.File, "error", err)
	}
	return true
}

func (w *Writer) write(objects map[config.Key]config.Object) error {
	data, err := Encode(objects, time.Now())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(w.o.File), 0o700); err != nil {
		return fmt.Errorf("its directory: %w", err)
	}
	return certs.WriteFile(w.o.File, data, 0o600)
}
