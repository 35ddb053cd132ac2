package embedded_test

import (
	"errors"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

func start(t *testing.T, dir string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDataSurvivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	store, err := etcdstore.New(etcdstore.Options{Client: first.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := store.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()

	second := start(t, dir)
	defer second.Close()
	if store, err = etcdstore.New(etcdstore.Options{Client: second.Client()}); err != nil {
		t.Fatal(err)
	}
	after, err := store.Read(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("the store is at %d, and was at %d", after.Revision, before.Revision)
	}
}

func TestTwoProcessesDoNotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	defer first.Close()
	if _, err := embedded.Start(t.Context(), embedded.Options{Dir: dir}); !errors.Is(err, embedded.ErrLocked) {
		t.Errorf("error %v, want that it is locked", err)
	}
}
