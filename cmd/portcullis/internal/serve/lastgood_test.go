package serve

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/webhooks"
	"github.com/portcullis-mesh/portcullis/internal/config/lastgood"
)

// restarts are a dispatcher that is started again and again with the same directories.
type restarts struct {
	t *testing.T
	d *dev
	c serveConfig
}

func newRestarts(t *testing.T) *restarts {
	t.Helper()
	d := &dev{dir: t.TempDir()}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	return &restarts{t, d, serveConfig{
		stores: storeConfig{paths: []string{d.path("config")}, stateDir: d.path("state")},
		listen: "127.0.0.1:0", listenHosts: "127.0.0.1:0", listenAdmin: "127.0.0.1:0",
		tls:          listen.TLSFiles{Cert: d.path("certs/server.crt"), Key: d.path("certs/server.key"), CA: d.path("certs/ca.crt")},
		drainTimeout: long, readyTimeout: long, webhooks: webhooks.Flags{Networks: loopback()},
	}}
}

// notes is a log that is written concurrently.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

// serve starts the dispatcher, and stops it when it serves. It returns its log, and the error of a failed start.
func (r *restarts) serve() (log string, err error) {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	var n notes
	err = serve(ctx, r.c, slog.New(slog.NewTextHandler(&n, nil)), func(listen.ReadyInfo) error { stop(); return nil })
	return n.text.String(), err
}

// edit replaces words in the hooks.
func (r *restarts) edit(old, next string) {
	r.t.Helper()
	file := r.d.path("config/hooks.yaml")
	data, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), old) {
		r.t.Fatalf("no %q in %s: %v", old, data, err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(data), old, next)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func TestABadDocumentIsReplacedByItsLastGoodVersionFromBeforeTheStart(t *testing.T) {
	r := newRestarts(t)
	if log, err := r.serve(); err != nil {
		t.Fatal(err, log)
	}
	info, err := os.Stat(filepath.Join(r.d.path("state"), lastgood.FileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file of the last good versions: %v, %v", info, err)
	}
	const good, bad = "failurePolicy:", "failurePolicie:"
	r.edit(good, bad)
	for range 2 { // it is kept for the start after the next one
		log, err := r.serve()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log, "a document is bad, and its last good version from before the start is in force") ||
			!strings.Contains(log, "in force is the last good version from before the process was started, saved at ") || !strings.Contains(log, "level=ERROR") {
			t.Errorf("the log does not say so:\n%s", log)
		}
	}
	r.edit(bad, good)
	if log, err := r.serve(); err != nil || strings.Contains(log, "level=ERROR") {
		t.Errorf("mended: %v\n%s", err, log)
	}
}

func TestWithoutALastGoodVersionABadDocumentKeepsTheProcessFromStarting(t *testing.T) {
	r := newRestarts(t)
	r.edit("failurePolicy:", "failurePolicie:")
	if _, err := r.serve(); err == nil || !strings.Contains(err.Error(), "no last good version") || !strings.Contains(err.Error(), "failurePolicie") {
		t.Errorf("nothing was saved: %v", err)
	}
	r.edit("failurePolicie:", "failurePolicy:")
	if _, err := r.serve(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.d.path("state"), lastgood.FileName)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.edit("failurePolicy:", "failurePolicie:")
	if err := os.WriteFile(file, bytes.Replace(data, []byte("Ignore"), []byte("Fail"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if log, err := r.serve(); err == nil || !strings.Contains(log, "the checksum does not fit") {
		t.Errorf("a damaged file: %v\n%s", err, log)
	}
	r.c.stores.stateDir = ""
	if _, err := r.serve(); err == nil {
		t.Error("without a directory")
	}
}
