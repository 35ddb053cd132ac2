package directory

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rewatchInterval is how often directories are watched anew: to the kernel a replaced directory is another one.
const rewatchInterval = time.Second

// Watch implements config.Source.
func (d *Source) Watch(ctx context.Context, notify func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching files: %w", err)
	}
	defer w.Close()
	again := time.NewTicker(rewatchInterval)
	defer again.Stop()
	d.watchAll(w)
	notify() // for changes from before the watch began
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-w.Events:
			if !ok {
				return nil
			}
			notify()
		case _, ok := <-w.Errors: // events were lost, or a directory has gone
			if !ok {
				return nil
			}
			notify()
		case <-again.C:
			d.watchAll(w)
		}
	}
}

// watchAll watches the directory of each path. It tries again later if a directory cannot be watched, because it does not
// exist.
func (d *Source) watchAll(w *fsnotify.Watcher) {
	for _, path := range d.paths {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			path = filepath.Dir(path)
		}
		w.Add(path) //nolint:errcheck // listing reports a path that is not there; the poll replaces a watch that fails
	}
}
