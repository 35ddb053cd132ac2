package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portcullis-mesh/portcullis/internal/config"
)

// Edit is the writes of one transaction.
type Edit struct {
	// Put are the objects to write, each in place of the one with its key.
	Put []*Record
	// Delete are the objects to delete.
	Delete []config.Key
	// Change describes it.
	Change Change
}

// Commit makes a change atomically if the store is still in the state base, and returns the revision of the configuration that
// it makes. If a member does not answer, Commit repeats the transaction, which recognises the first one in the history.
//
// Errors: ErrMoved, ErrTooLarge, ErrFull, ErrUnknown, or the refusal of etcd.
func (s *Store) Commit(ctx context.Context, base *State, e Edit) (revision int64, err error) {
	n := base.Changes + 1
	e.Change.ID = uuid.NewString()
	ops, err := s.operations(n, e)
	if err != nil {
		return 0, err
	}
	answer, err := Attempt(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.kv.Txn(ctx).
			If(
				clientv3.Compare(clientv3.Value(s.keys.id()), "=", base.ID),
				clientv3.Compare(clientv3.ModRevision(s.keys.generation()), "=", base.Revision),
			).
			Then(ops...).
			Else(clientv3.OpGet(s.keys.change(n))).
			Commit()
	})
	switch {
	case err != nil:
		return s.madeAnyway(ctx, n, e.Change.ID, commitError(err))
	case answer.Succeeded:
		return answer.Header.Revision, nil
	}
	return made(answer.Responses[0].GetResponseRange().Kvs, e.Change.ID)
}

// madeAnyway looks for a change that was refused because the store is full: etcd also refuses the write that fills it, after it
// has made it.
func (s *Store) madeAnyway(ctx context.Context, n int64, id string, refused error) (revision int64, err error) {
	if !errors.Is(refused, ErrFull) {
		return 0, refused
	}
	history, err := s.get(ctx, s.keys.change(n))
	if err != nil {
		return 0, fmt.Errorf("%w: %w, and then %w", ErrUnknown, refused, err)
	}
	if revision, err := made(history.Kvs, id); err == nil {
		return revision, nil
	}
	return 0, refused
}

// made returns the revision of a change if it is the one in the history.
func made(history []*mvccpb.KeyValue, id string) (revision int64, err error) {
	var c Change
	if len(history) == 1 && json.Unmarshal(history[0].Value, &c) == nil && c.ID == id {
		return history[0].ModRevision, nil
	}
	return 0, ErrMoved
}

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

// Restored moves the generation of a store that was restored from a backup, and records the actor. Readers that knew later
// changes then read again. The revision of etcd has to be past all that were ever read.
func (s *Store) Restored(ctx context.Context, actor string) error {
	state, err := s.Read(ctx, nil)
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, state, Edit{Change: Change{
		At: time.Now().UTC(), Actor: actor, Actions: []string{fmt.Sprintf("restored the backup of revision %d", state.Revision)},
	}})
	return err
}
