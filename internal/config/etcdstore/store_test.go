package etcdstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/embedded"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// etcd is a real one, and an empty store in it.
type etcd struct {
	*etcdstore.Store

	t      *testing.T
	client *clientv3.Client
}

func newEtcd(t *testing.T) *etcd {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	e := &etcd{t: t, client: s.Client()}
	if e.Store, err = etcdstore.New(etcdstore.Options{Client: s.Client()}); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *etcd) init() {
	e.t.Helper()
	if err := e.Init(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
}

func (e *etcd) read(last *etcdstore.State) *etcdstore.State {
	e.t.Helper()
	state, err := e.Read(e.t.Context(), last)
	if err != nil {
		e.t.Fatal(err)
	}
	return state
}

func (e *etcd) commit(base *etcdstore.State, edit etcdstore.Edit) int64 {
	e.t.Helper()
	revision, err := e.Commit(e.t.Context(), base, edit)
	if err != nil {
		e.t.Fatal(err)
	}
	return revision
}

func record(name string, generation int64) *etcdstore.Record {
	return &etcdstore.Record{
		Key:      config.Key{Kind: "HookRoute", Name: name},
		Manifest: json.RawMessage(fmt.Sprintf(`{"kind":"HookRoute","metadata":{"name":%q}}`, name)),
		UID:      "uid-" + name, Generation: generation, Actor: "ann",
	}
}

func put(records ...*etcdstore.Record) etcdstore.Edit {
	return etcdstore.Edit{Put: records, Change: etcdstore.Change{Actor: "ann", At: time.Unix(1, 0).UTC()}}
}

func TestAStoreThatIsNotThereIsNotAnEmptyOne(t *testing.T) {
	e := newEtcd(t)
	if _, err := e.Read(t.Context(), nil); !errors.Is(err, etcdstore.ErrMissing) {
		t.Fatalf("error %v, want that it is missing", err)
	}
	e.init()
	state := e.read(nil)
	if len(state.Records) != 0 || state.ID == "" {
		t.Errorf("a new store is %+v", state)
	}
	e.init()
	if again := e.read(nil); again.ID != state.ID || again.Revision != state.Revision {
		t.Errorf("made again, it is %+v, and was %+v", again, state)
	}
	if _, err := e.client.Delete(t.Context(), etcdstore.DefaultPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Read(t.Context(), state); !errors.Is(err, etcdstore.ErrMissing) {
		t.Errorf("a wiped store: error %v, want that it is missing", err)
	}
	e.init()
	if _, err := e.Read(t.Context(), state); !errors.Is(err, etcdstore.ErrReplaced) {
		t.Errorf("a store made anew: error %v, want that it is another one", err)
	}
}

func TestReadBringsUpToDateWhatHasChanged(t *testing.T) {
	e := newEtcd(t)
	e.init()
	empty := e.read(nil)
	first := e.commit(empty, put(record("a", 1), record("b", 1), record("c", 1)))
	three := e.read(empty)
	if three.Revision != first || len(three.Records) != 3 || three.Changes != 1 {
		t.Fatalf("at %d there are %d objects after %d changes", three.Revision, len(three.Records), three.Changes)
	}
	if again := e.read(three); again != three {
		t.Error("nothing has changed, and it was read again")
	}
	edit := put(record("b", 2))
	edit.Delete = []config.Key{{Kind: "HookRoute", Name: "c"}}
	e.commit(three, edit)
	changed, whole := e.read(three), e.read(nil)
	if diff := cmp.Diff(whole, changed); diff != "" {
		t.Errorf("brought up to date, and read anew (-new +updated):\n%s", diff)
	}
	a, b := config.Key{Kind: "HookRoute", Name: "a"}, config.Key{Kind: "HookRoute", Name: "b"}
	if changed.Records[a] != three.Records[a] {
		t.Error("what has not changed was decoded again")
	}
	if changed.Records[b].Generation != 2 || len(changed.Records) != 2 {
		t.Errorf("it holds %v", changed.Records)
	}
}

func TestACommitThatWasCheckedAgainstAnotherStateIsRefused(t *testing.T) {
	e := newEtcd(t)
	e.init()
	base := e.read(nil)
	e.commit(base, put(record("a", 1)))
	if _, err := e.Commit(t.Context(), base, put(record("b", 1))); !errors.Is(err, etcdstore.ErrMoved) {
		t.Errorf("error %v, want that it has moved", err)
	}
	if state := e.read(nil); len(state.Records) != 1 {
		t.Errorf("it holds %v", state.Records)
	}
}

func TestChangesAreRememberedUpToALimit(t *testing.T) {
	e := newEtcd(t)
	e.init()
	state := e.read(nil)
	const changes = etcdstore.MaxHistory + 5
	for i := range changes {
		edit := put(record("a", int64(i)))
		edit.Change.Actions = []string{fmt.Sprint(i)}
		e.commit(state, edit)
		state = e.read(state)
	}
	told, err := e.Changes(t.Context(), changes)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != etcdstore.MaxHistory || told[0].Actions[0] != fmt.Sprint(changes-1) {
		t.Errorf("%d changes, the latest %v", len(told), told[0])
	}
}

func TestAChangeThatIsTooLargeChangesNothing(t *testing.T) {
	e := newEtcd(t)
	e.init()
	state := e.read(nil)
	many := make([]*etcdstore.Record, etcdstore.MaxTxnOps)
	for i := range many {
		many[i] = record(fmt.Sprint("r", i), 1)
	}
	if _, err := e.Commit(t.Context(), state, put(many...)); !errors.Is(err, etcdstore.ErrTooLarge) {
		t.Errorf("error %v, want that it is too large", err)
	}
	e.commit(state, put(many[:etcdstore.MaxTxnOps-2]...)) // beside the generation and the history
}
