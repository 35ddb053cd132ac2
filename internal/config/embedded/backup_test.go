package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// backup writes a backup to a file.
func backup(t *testing.T, s *embedded.Server) string {
	t.Helper()
	var data bytes.Buffer
	if err := s.Backup(&data); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestABackupUnderWritesIsOneMoment(t *testing.T) {
	server := start(t, t.TempDir())
	defer server.Close()
	s := storeIn(t, server)
	state := read(t, s)
	states := map[int64]*etcdstore.State{state.Revision: state}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	writing.Go(func() {
		defer begin() // when a write fails
		for n := int64(1); ctx.Err() == nil; n++ {
			edit := etcdstore.Edit{Put: []*etcdstore.Record{routeOf("a", n, 1000), routeOf("b", n, 1000), routeOf(fmt.Sprint("r", n), 1, 10)}}
			if _, err := s.Commit(context.WithoutCancel(ctx), state, edit); err != nil {
				t.Error(err)
				return
			}
			state = read(t, s)
			states[state.Revision] = state
			if n == 10 {
				begin()
			}
		}
	})
	<-begun
	file := backup(t, server)
	stop()
	writing.Wait()
	latest := read(t, s)

	dir := t.TempDir()
	var restored *etcdstore.State
	err := embedded.Restore(t.Context(), embedded.RestoreOptions{Dir: dir, File: file, Finish: func(_ context.Context, c *clientv3.Client) error {
		store, err := etcdstore.New(etcdstore.Options{Client: c})
		if err != nil {
			return err
		}
		restored = read(t, store)
		return store.Restored(t.Context(), "ann")
	}})
	if err != nil {
		t.Fatal(err)
	}
	was := states[restored.Revision]
	if was == nil {
		t.Fatalf("the backup is of revision %d, which never was", restored.Revision)
	}
	if diff := cmp.Diff(was, restored); diff != "" {
		t.Errorf("restored (-was +is):\n%s", diff)
	}
	again := start(t, dir)
	defer again.Close()
	store := storeIn(t, again)
	// A reader that knew the lost writes goes on with the restored ones, and does not mix the two.
	now, err := store.Read(t.Context(), latest)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was.Records, now.Records); diff != "" || now.Revision <= latest.Revision {
		t.Errorf("at %d after %d (-was +is):\n%s", now.Revision, latest.Revision, diff)
	}
	changes, err := store.Changes(t.Context(), 1)
	if err != nil || len(changes) != 1 || changes[0].Actor != "ann" {
		t.Errorf("the last change is %v, %v", changes, err)
	}
}

func TestRestoreRefusesWhatIsNotWhole(t *testing.T) {
	dir := t.TempDir()
	server := start(t, dir)
	storeIn(t, server)
	file := backup(t, server)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	restore := func(dir, file string) error {
		return embedded.Restore(t.Context(), embedded.RestoreOptions{Dir: dir, File: file})
	}
	if err := restore(dir, file); !errors.Is(err, embedded.ErrLocked) {
		t.Errorf("a store in use: error %v, want that it is locked", err)
	}
	server.Close()
	if err := restore(dir, file); !errors.Is(err, embedded.ErrExists) {
		t.Errorf("a store: error %v, want that it is there", err)
	}
	other := t.TempDir()
	for name, bad := range map[string][]byte{
		"without its end": data[:len(data)-100], "without its checksum": data[:len(data)-32], "of nothing": {},
		"with a wrong byte": append([]byte{data[0] ^ 1}, data[1:]...), "of something else": []byte("kind: HookRoute\n"),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "backup")
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := restore(other, file); !errors.Is(err, embedded.ErrNotWhole) {
				t.Errorf("error %v, want that it is not whole", err)
			}
			if _, err := os.Stat(filepath.Join(other, "etcd")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something is there: %v", err)
			}
		})
	}
	if err := restore(other, file); err != nil {
		t.Errorf("the whole one, where others have failed: %v", err)
	}
}
