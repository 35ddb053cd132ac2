package etcdstore_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/etcdtest"
)

// snapshotOf writes a snapshot of a cluster to a file.
func snapshotOf(c *inCluster) string {
	c.t.Helper()
	r, err := c.Client(c.Options(etcdtest.Root)).Snapshot(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	file := filepath.Join(c.t.TempDir(), "snapshot")
	f, err := os.Create(file)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		c.t.Fatal(err)
	}
	return file
}

func TestDispatchersFollowARestoredCluster(t *testing.T) {
	t.Parallel()
	c := newInCluster(t, 0)
	c.change()
	c.follows("at the beginning")
	file := snapshotOf(c)
	c.change() // the lost change
	c.follows("before the restoration")
	lost, err := c.store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Restore(file, 1_000_000)

	// A reader that knew the lost change takes nothing older for the configuration.
	for deadline := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
		if _, err = c.store.Read(t.Context(), lost); errors.Is(err, etcdstore.ErrReplaced) {
			break
		}
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("error %v, want that it is an older state", err)
		}
	}
	// A process that was started anew knows nothing of it. The others follow the changes that are applied through it.
	restarted := c.Store()
	restored, err := restarted.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restarted.Commit(t.Context(), restored, put(record("b", 1))); err != nil {
		t.Fatal(err)
	}
	c.n-- // the version of the backup
	c.follows("after something was applied")
	now, err := c.store.Read(t.Context(), lost)
	if err != nil || len(now.Records) != 2 || now.Revision <= lost.Revision {
		t.Errorf("the store is %+v, %v", now, err)
	}
}
