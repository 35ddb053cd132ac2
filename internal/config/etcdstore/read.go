package etcdstore

import (
	"context"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// State is the content of the store at one revision. It is immutable, and shares unchanged records with earlier states.
type State struct {
	// ID tells one store from another.
	ID string
	// Revision is etcd's, of the last change of the configuration: larger is later.
	Revision int64
	// Changes counts the transactions since the store was made.
	Changes int64
	// Records are the objects, also those that are being removed.
	Records map[config.Key]*Record
}

// Read returns the content of the store, linearizably. last is the result of an earlier Read: if nothing has changed since,
// Read reads two keys and returns last itself. With nil it reads everything.
//
// Errors: ErrMissing, ErrReplaced, or an error of etcd. None of them means that the configuration is empty.
func (s *Store) Read(ctx context.Context, last *State) (*State, error) {
	if last == nil {
		return s.readAll(ctx)
	}
	answer, err := s.txn(ctx, s.head()...)
	if err != nil {
		return nil, err
	}
	now, err := readHead(answer)
	if err != nil {
		return nil, err
	}
	switch {
	case now.ID != last.ID || now.Revision < last.Revision:
		return nil, fmt.Errorf("%w (%s at %d, and before %s at %d)", ErrReplaced, now.ID, now.Revision, last.ID, last.Revision)
	case now.Revision == last.Revision:
		return last, nil
	}
	return s.readSince(ctx, last)
}

// head is the beginning of every read; readHead decodes it.
func (s *Store) head() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(s.keys.id()), clientv3.OpGet(s.keys.generation())}
}

// readAll reads every object, at the one moment of the transaction.
func (s *Store) readAll(ctx context.Context) (*State, error) {
	answer, err := s.txn(ctx, append(s.head(), clientv3.OpGet(s.keys.objects(), clientv3.WithPrefix()))...)
	if err != nil {
		return nil, err
	}
	state, err := readHead(answer)
	if err != nil {
		return nil, err
	}
	state.Records = make(map[config.Key]*Record, answer[2].Count)
	s.add(state, answer[2])
	return state, nil
}

// readSince reads the objects that have changed since last, and the names of the others. A restored store may hold older
// versions than last; then it reads everything.
func (s *Store) readSince(ctx context.Context, last *State) (*State, error) {
	answer, err := s.txn(ctx, append(s.head(),
		clientv3.OpGet(s.keys.objects(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.keys.objects(), clientv3.WithPrefix(), clientv3.WithMinModRev(last.Revision+1)),
	)...)
	if err != nil {
		return nil, err
	}
	state, err := readHead(answer)
	if err != nil {
		return nil, err
	}
	state.Records = make(map[config.Key]*Record, answer[2].Count)
	for _, kv := range answer[2].Kvs {
		switch old := last.Records[s.keys.objectOf(string(kv.Key))]; {
		case kv.ModRevision > last.Revision:
		case old == nil || old.Revision != kv.ModRevision:
			return s.readAll(ctx)
		default:
			state.Records[old.Key] = old
		}
	}
	s.add(state, answer[3])
	return state, nil
}

func (s *Store) add(state *State, answer *etcdserverpb.RangeResponse) {
	for _, kv := range answer.Kvs {
		key := s.keys.objectOf(string(kv.Key))
		state.Records[key] = decodeRecord(key, kv.Value, kv.ModRevision)
	}
}

// txn reads several keys at one moment, linearizably.
func (s *Store) txn(ctx context.Context, ops ...clientv3.Op) ([]*etcdserverpb.RangeResponse, error) {
	answer, err := Attempt(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.kv.Txn(ctx).Then(ops...).Commit()
	})
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
	}
	out := make([]*etcdserverpb.RangeResponse, 0, len(ops))
	for _, r := range answer.Responses {
		out = append(out, r.GetResponseRange())
	}
	return out, nil
}

// get reads keys, linearizably.
func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	answer, err := Attempt(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return s.kv.Get(ctx, key, opts...) })
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
	}
	return answer, nil
}

func readHead(answer []*etcdserverpb.RangeResponse) (*State, error) {
	id, generation := answer[0].Kvs, answer[1].Kvs
	if len(id) == 0 || len(generation) == 0 {
		return nil, ErrMissing
	}
	changes, err := strconv.ParseInt(string(generation[0].Value), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("etcd holds a generation that is no number: %w", err)
	}
	return &State{ID: string(id[0].Value), Revision: generation[0].ModRevision, Changes: changes}, nil
}

// Changes returns the last changes, the latest first, at most limit of them.
func (s *Store) Changes(ctx context.Context, limit int) ([]Change, error) {
	answer, err := s.get(ctx, s.keys.history(), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, err
	}
	changes, err := decodeAll[Change](answer, "a change")
	for i := range changes {
		changes[i].Revision = answer.Kvs[i].ModRevision
	}
	return changes, err
}
