package etcdstore_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

const route = `{"apiVersion":"portcullis.dev/v1","kind":"HookRoute","metadata":{"name":"a"},"spec":{"configuration":"policy","stream":{}}}`

func (e *etcd) list(s *etcdstore.Source) config.Listing {
	e.t.Helper()
	l, err := s.List(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return l.Decoded()
}

func TestAStoreThatFailsIsNoEmptyConfiguration(t *testing.T) {
	e := newEtcd(t)
	if _, err := e.Source(configtest.NewDecoder()).List(t.Context()); !errors.Is(err, etcdstore.ErrMissing) {
		t.Errorf("error %v, want that it is missing", err)
	}
}

func TestTheSourceListsWhatIsNotBeingRemoved(t *testing.T) {
	e := newEtcd(t)
	e.init()
	source, r := e.Source(configtest.NewDecoder()), record("a", 1)
	r.Manifest = json.RawMessage(route)
	e.commit(e.read(nil), put(r))
	l := e.list(source)
	if len(l.Objects) != 1 || l.Objects[0].Route == nil || l.Objects[0].Author != r.Actor || len(l.Problems) != 0 {
		t.Fatalf("listed %+v", l)
	}
	if again := e.list(source); again.Revision != l.Revision {
		t.Errorf("nothing has changed, and revision %s became %s", l.Revision, again.Revision)
	}
	r.Removing = true
	e.commit(e.read(nil), put(r))
	if l := e.list(source); len(l.Objects) != 0 {
		t.Errorf("what is being removed is listed: %+v", l.Objects)
	}
}

func TestWhatSomebodyElseHasWrittenCostsItsOwnObjectAlone(t *testing.T) {
	e := newEtcd(t)
	e.init()
	good := record("a", 1)
	good.Manifest = json.RawMessage(route)
	e.commit(e.read(nil), put(good))
	other, _ := json.Marshal(good)
	for key, value := range map[string]string{
		"HookRoute/b":     "no JSON at all",
		"HookRoute/c":     string(other), // says that it is a
		"neither/of/both": "{}",
	} {
		if _, err := e.client.Put(t.Context(), etcdstore.DefaultPrefix+"objects/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	l := e.list(e.Source(configtest.NewDecoder()))
	if len(l.Objects) != 1 || l.Objects[0].Name != "a" {
		t.Errorf("objects %v, want a", l.Objects)
	}
	if len(l.Problems) != 3 {
		t.Errorf("problems %v, want three", l.Problems)
	}
}

func TestTheWatchTellsOfEachChange(t *testing.T) {
	e := newEtcd(t)
	e.init()
	state, told := e.read(nil), make(chan struct{}, 10)
	watching := make(chan error, 1)
	go func() {
		watching <- e.Source(configtest.NewDecoder()).Watch(t.Context(), func() { told <- struct{}{} })
	}()
	<-told // that it has begun
	deadline := time.After(time.Minute)
	for i := int64(1); ; i++ { // etcd watches from some moment after it was asked to
		e.commit(state, put(record("a", i)))
		state = e.read(state)
		select {
		case <-told:
			return
		case err := <-watching:
			t.Fatal(err)
		case <-deadline:
			t.Fatal("nobody was told")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// process is a source of a process that has just started.
func (e *etcd) process(file string) (s *etcdstore.Source, known bool) {
	e.t.Helper()
	s = e.Source(configtest.NewDecoder())
	known, err := s.Remember(file)
	if err != nil {
		e.t.Fatal(err)
	}
	return s, known
}

func TestAStoreThatWasReadIsKnownAfterARestart(t *testing.T) {
	e, file := newEtcd(t), filepath.Join(t.TempDir(), "state", "id")
	first, known := e.process(file)
	if _, err := first.List(t.Context()); !errors.Is(err, etcdstore.ErrMissing) || known {
		t.Fatalf("nothing is there, known is %v: %v", known, err)
	}
	e.init()
	e.list(first)
	second, known := e.process(file)
	if e.list(second); !known {
		t.Error("it is not known after a restart")
	}
	if _, err := e.client.Delete(t.Context(), etcdstore.DefaultPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	third, _ := e.process(file)
	if _, err := third.List(t.Context()); !errors.Is(err, etcdstore.ErrMissing) || !strings.Contains(err.Error(), file) {
		t.Errorf("it was wiped: %v", err)
	}
	e.init()
	if _, err := third.List(t.Context()); !errors.Is(err, etcdstore.ErrReplaced) || !strings.Contains(err.Error(), file) {
		t.Errorf("it is another one: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	fourth, _ := e.process(file)
	e.list(fourth)
}

func TestAStoreThatCannotBeRememberedIsNotListed(t *testing.T) {
	e, dir := newEtcd(t), t.TempDir()
	e.init()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Source(configtest.NewDecoder()).Remember(filepath.Join(dir, "file")); err == nil {
		t.Error("a file without a name of a store is taken for one")
	}
	if _, err := e.Source(configtest.NewDecoder()).Remember(dir); err == nil {
		t.Error("a directory is taken for a file")
	}
	s, _ := e.process(filepath.Join(dir, "later", "id"))
	if err := os.WriteFile(filepath.Join(dir, "later"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context()); err == nil {
		t.Error("it cannot be remembered, and is listed")
	}
}
