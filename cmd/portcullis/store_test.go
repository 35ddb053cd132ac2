package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// storeIn runs a dispatcher with a store in a data directory, until stop is called, and returns its ready file.
func storeIn(t *testing.T, dir string) (ready string, stop func()) {
	t.Helper()
	info, stop := storeAs(t, dir, func(*serveConfig) {})
	return info.file(t), stop
}

// storeAs is storeIn, with what is changed of it, and returns where it is.
func storeAs(t *testing.T, dir string, change func(*serveConfig)) (info readyInfo, stop func()) {
	t.Helper()
	a, d := sampleApp(t, func(_ *dev, c *serveConfig) {
		c.stores.dataDir, c.stores.operator.Names = dir, []string{devAPIServer}
		c.id = "test"
		c.readyTimeout = time.Nanosecond // nobody serves the samples
		change(c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan readyInfo, 1), make(chan error, 1)
	go func() {
		err := a.run(ctx, func(info readyInfo) error { started <- info; return nil })
		a.control.stores.close()
		ended <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	info = within(t, "the dispatcher", started)
	info.ClientCert, info.ClientKey = d.path("certs/"+devClientName+".crt"), d.path("certs/"+devClientName+".key")
	return info, stop
}

func TestAStoreIsBackedUpAndRestored(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	ready, stop := storeIn(t, dir)
	apply := func(documents string) {
		t.Helper()
		if r := execute(t, newApplyCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", ready); r.code != 0 {
			t.Fatal(r.notes)
		}
	}
	documents := strings.Replace(appliedHooks, "GROUP", "apps", 1)
	apply(documents)
	if r := execute(t, newStoreCommand(), nil, "backup", file, "--ready-file", ready); r.code != 0 {
		t.Fatal(r.notes)
	}
	apply(strings.NewReplacer("name: policy", "name: lost", "configuration: policy", "configuration: lost").Replace(documents))
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, newStoreCommand(), nil, "backup", file, "--ready-file", ready).fails(t, "is there: name another file, or say --force")
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a backup that was refused has changed the file: %v", err)
	}
	execute(t, newStoreCommand(), nil, "restore", "--data-dir", dir, file).fails(t, "another process uses the data directory", "stop it first")
	stop()
	execute(t, newStoreCommand(), nil, "restore", "--data-dir", dir, file).fails(t, "holds a store already", "name another --data-dir")

	other := t.TempDir()
	r := execute(t, newStoreCommand(), nil, "restore", "--data-dir", other, file)
	if r.code != 0 || !strings.Contains(r.out, "with 2 objects") {
		t.Fatalf("restored: %s%s", r.out, r.notes)
	}
	ready, _ = storeIn(t, other)
	r = execute(t, newGetCommand(), nil, "--ready-file", ready)
	if r.code != 0 || !strings.Contains(r.out, "HookRoute/policy") || strings.Contains(r.out, "lost") {
		t.Errorf("there is %s%s", r.out, r.notes)
	}
	if r := execute(t, newGetCommand(), nil, "changes", "--ready-file", ready); !strings.Contains(r.out, "store restore by") {
		t.Errorf("the changes are %s%s", r.out, r.notes)
	}
	apply(strings.NewReplacer("name: policy", "name: again", "configuration: policy", "configuration: again").Replace(documents))
	if r := execute(t, newStoreCommand(), nil, "backup", file, "--force", "--ready-file", ready); r.code != 0 {
		t.Error(r.notes)
	}
}

func TestStoreSaysWhatIsMissing(t *testing.T) {
	execute(t, newStoreCommand(), nil, "backup").fails(t, "name one file to write")
	execute(t, newStoreCommand(), nil, "restore", "file").fails(t, "--data-dir is missing")
	execute(t, newStoreCommand(), nil, "restore", "--data-dir", t.TempDir()).fails(t, "say which file")
	execute(t, newStoreCommand(), nil, "restore", "--data-dir", t.TempDir(), write(t, "hooks.yaml", "kind: Role\n")).fails(t, "no whole backup")
}
