package etcdstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/config"
)

// Edit is what one transaction does.
type Edit struct {
	// Put are the objects to be there, each in place of the one that has its key.
	Put []*Record
	// Delete are the objects to be gone.
	Delete []config.Key
	// Change tells about it.
	Change Change
}

// Commit makes a change, whole or not at all, if the store still is as base says, and returns the revision of the
// configuration that it makes.
//
// Errors: ErrMoved, ErrTooLarge, ErrUnknown, or what etcd says of a change that it has not made.
func (s *Store) Commit(ctx context.Context, base *State, e Edit) (revision int64, err error) {
	ops, err := s.operations(base.Changes+1, e)
	if err != nil {
		return 0, err
	}
	answer, err := s.kv.Txn(ctx).
		If(
			clientv3.Compare(clientv3.Value(s.keys.id()), "=", base.ID),
			clientv3.Compare(clientv3.ModRevision(s.keys.generation()), "=", base.Revision),
		).
		Then(ops...).
		Commit()
	if err != nil {
		return 0, commitError(err)
	}
	if !answer.Succeeded {
		return 0, ErrMoved
	}
	return answer.Header.Revision, nil
}

// operations are the writes of the n-th change.
func (s *Store) operations(n int64, e Edit) ([]clientv3.Op, error) {
	ops := make([]clientv3.Op, 0, len(e.Put)+len(e.Delete)+3)
	ops = append(ops, clientv3.OpPut(s.keys.generation(), strconv.FormatInt(n, 10)))
	for _, r := range e.Put {
		value, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be stored: %w", r.Key, err)
		}
		ops = append(ops, clientv3.OpPut(s.keys.object(r.Key), string(value)))
	}
	for _, key := range e.Delete {
		ops = append(ops, clientv3.OpDelete(s.keys.object(key)))
	}
	told, err := json.Marshal(e.Change)
	if err != nil {
		return nil, fmt.Errorf("the change cannot be stored: %w", err)
	}
	ops = append(ops, clientv3.OpPut(s.keys.change(n), string(told)))
	if old := n - MaxHistory; old > 0 {
		ops = append(ops, clientv3.OpDelete(s.keys.change(0), clientv3.WithRange(s.keys.change(old+1))))
	}
	return ops, nil
}
