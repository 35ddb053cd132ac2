package embedded_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

// storeIn is the store of a server; it is made if it is not there.
func storeIn(t *testing.T, s *embedded.Server) *etcdstore.Store {
	t.Helper()
	store, err := etcdstore.New(etcdstore.Options{Client: s.Client()})
	if err == nil {
		err = store.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func read(t *testing.T, s *etcdstore.Store) *etcdstore.State {
	t.Helper()
	state, err := s.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// routeOf is a version of a route, of some size.
func routeOf(name string, generation int64, size int) *etcdstore.Record {
	return &etcdstore.Record{
		Key: config.Key{Kind: "HookRoute", Name: name}, UID: "uid-" + name, Generation: generation, Actor: "ann",
		Manifest: json.RawMessage(fmt.Sprintf(
			`{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":%q,"annotations":{"n":"%d","fill":%q}},"spec":{"configuration":"p","stream":{}}}`,
			name, generation, strings.Repeat("x", size))),
	}
}

// fill writes versions of a route until the store is full, and returns the last acknowledged state.
func fill(t *testing.T, s *etcdstore.Store) *etcdstore.State {
	t.Helper()
	for state, n := read(t, s), int64(1); ; n++ {
		_, err := s.Commit(t.Context(), state, etcdstore.Edit{Put: []*etcdstore.Record{routeOf("a", n, 100<<10)}})
		if errors.Is(err, etcdstore.ErrFull) {
			if !strings.Contains(err.Error(), "--store-quota") {
				t.Errorf("error %v does not say what to do", err)
			}
			return state
		}
		if err != nil {
			t.Fatal(err)
		}
		if n > 1000 {
			t.Fatal("it is never full")
		}
		state = read(t, s)
	}
}

func TestAFullStoreIsReadOnAndMakesRoom(t *testing.T) {
	server, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir(), QuotaBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	s := storeIn(t, server)
	for round := range 2 { // also a second time
		last := fill(t, s)
		source := s.Source(configtest.NewDecoder())
		l, err := source.List(t.Context())
		l = l.Decoded()
		if err != nil || len(l.Objects) != 1+round || l.Revision != fmt.Sprint(last.Revision) {
			t.Fatalf("a full store is listed as %v at %s, not at %d, %v", l.Objects, l.Revision, last.Revision, err)
		}
		if _, err := s.Commit(t.Context(), last, etcdstore.Edit{Put: []*etcdstore.Record{routeOf("b", 1, 10)}}); !errors.Is(err, etcdstore.ErrFull) {
			t.Errorf("error %v, want that it is full", err)
		}
		if err := server.Defragment(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := read(t, s); now.Revision != last.Revision || now.Changes != last.Changes {
			t.Errorf("it was at %d, and is at %d", last.Revision, now.Revision)
		}
		if _, err := s.Commit(t.Context(), last, etcdstore.Edit{Put: []*etcdstore.Record{routeOf("b", 1, 10)}}); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
}

func TestWhatIsTooMuchForTheQuotaFitsIntoALargerOne(t *testing.T) {
	dir := t.TempDir()
	server, err := embedded.Start(t.Context(), embedded.Options{Dir: dir, QuotaBytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := storeIn(t, server)
	state := read(t, s)
	var noRoom error
	for n := 0; noRoom == nil && n < 1000; n++ { // data beside the objects goes first
		_, err := s.Commit(t.Context(), state, etcdstore.Edit{Put: []*etcdstore.Record{routeOf(fmt.Sprint("r", n), 1, 100<<10)}})
		if errors.Is(err, etcdstore.ErrFull) {
			noRoom = server.Defragment(t.Context())
		} else if err != nil {
			t.Fatal(err)
		}
		state = read(t, s)
	}
	if noRoom == nil || !strings.Contains(noRoom.Error(), "raise --store-quota") {
		t.Errorf("error %v, want that the quota is to be raised", noRoom)
	}
	server.Close()

	if server, err = embedded.Start(t.Context(), embedded.Options{Dir: dir, QuotaBytes: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.Defragment(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = storeIn(t, server)
	if now := read(t, s); len(now.Records) != len(state.Records) {
		t.Errorf("%d objects, and there were %d", len(now.Records), len(state.Records))
	}
	if _, err := s.Commit(t.Context(), state, etcdstore.Edit{Put: []*etcdstore.Record{routeOf("b", 1, 10)}}); err != nil {
		t.Error(err)
	}
}
