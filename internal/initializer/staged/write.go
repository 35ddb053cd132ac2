package staged

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/config/etcdstore"
)

// Create stages an object under a new lease, which lasts for ttl, rounded up to whole seconds. It returns the object with its
// resource version. While etcd has no leader, it waits for one until ctx ends.
//
// Errors: *ExistsError, *FullError, ErrUnavailable. After an error nothing stays staged, at the latest when the lease has ended.
func (s *Store) Create(ctx context.Context, o *initializerv1.StagedObject, ttl time.Duration) (*initializerv1.StagedObject, LeaseID, error) {
	key := keyOf(s.prefix, o.GetKey())
	if s.cache.has(key) { // a CREATE that is repeated while its object is held costs etcd a read, and no lease
		if there, err := s.Get(ctx, o.GetKey()); err == nil {
			return nil, 0, &ExistsError{Object: there}
		}
	}
	value, err := s.encode(key, o)
	if err == nil {
		err = s.spend(o.GetKey().GetCluster(), len(value))
	}
	if err != nil {
		return nil, 0, err
	}
	lease, err := etcdstore.Retry(ctx, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return s.options.Client.Grant(ctx, int64((ttl+time.Second-1)/time.Second)) // a lease whose answer is lost lapses
	})
	if err != nil {
		return nil, 0, unavailable(err)
	}
	revision, there, err := s.swap(ctx, swap{key: key, value: value, option: clientv3.WithLease(lease.ID)})
	if err == nil && there != nil {
		err = s.exists(there)
	}
	if err != nil {
		s.revokeNow(ctx, lease.ID)
		return nil, 0, err
	}
	return at(o, revision), lease.ID, nil
}

// exists is the error of Create when there is a value.
func (s *Store) exists(there *mvccpb.KeyValue) error {
	o, err := s.decode(there)
	if err != nil {
		return err
	}
	return &ExistsError{Object: o}
}

// Update replaces the object of a key, and keeps its lease. It returns next with its resource version. The key of next is not
// looked at. While etcd has no leader, it waits for one until ctx ends.
//
// Errors: ErrNotFound, ErrConflict, *FullError, ErrUnavailable (the write may have been made).
func (s *Store) Update(
	ctx context.Context, key *initializerv1.StagedKey, resourceVersion string, next *initializerv1.StagedObject,
) (*initializerv1.StagedObject, error) {
	before, err := parseVersion(resourceVersion)
	if err != nil || before == 0 {
		return nil, ErrConflict
	}
	name := keyOf(s.prefix, key)
	value, err := s.encode(name, next)
	if err == nil {
		err = s.spend(key.GetCluster(), len(value))
	}
	if err != nil {
		return nil, err
	}
	revision, there, err := s.swap(ctx, swap{key: name, revision: before, value: value, option: clientv3.WithIgnoreLease()})
	switch {
	case err != nil:
		return nil, err
	case there != nil:
		return nil, ErrConflict
	case revision == 0:
		return nil, ErrNotFound
	}
	return at(next, revision), nil
}

// Delete ends the staging of an object, and returns it as it was, with the resource version of the deletion. An empty uid or
// resourceVersion means any.
//
// Errors: ErrNotFound, ErrConflict, ErrUnavailable (the object may have been deleted).
func (s *Store) Delete(ctx context.Context, key *initializerv1.StagedKey, uid, resourceVersion string) (*initializerv1.StagedObject, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for {
		o, err := s.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if uid != "" && uid != o.GetUid() || resourceVersion != "" && resourceVersion != o.GetResourceVersion() {
			return nil, ErrConflict
		}
		before, _ := parseVersion(o.GetResourceVersion()) // Get has written it
		revision, err := s.remove(ctx, keyOf(s.prefix, key), before)
		if err != nil {
			return nil, err
		}
		if revision != 0 {
			return at(o, revision), nil
		}
	}
}

// Get returns the object of a key, linearizably. Errors: ErrNotFound, ErrUnavailable, ErrUnreadable.
func (s *Store) Get(ctx context.Context, key *initializerv1.StagedKey) (*initializerv1.StagedObject, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := etcdstore.Attempt(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return s.options.Client.Get(ctx, keyOf(s.prefix, key))
	})
	switch {
	case err != nil:
		return nil, unavailable(err)
	case len(answer.Kvs) == 0:
		return nil, ErrNotFound
	}
	return s.decode(answer.Kvs[0])
}

// Renew has a lease last for its time to live from now on. Errors: ErrNotFound when it has ended, ErrUnavailable.
func (s *Store) Renew(ctx context.Context, lease LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := etcdstore.Attempt(ctx, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
		// The client would repeat a renewal without a pause while no member answers.
		if _, err := s.options.Client.TimeToLive(ctx, lease); err != nil {
			return nil, err
		}
		return s.options.Client.KeepAliveOnce(ctx, lease)
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ErrNotFound
	case err != nil:
		return unavailable(err)
	}
	return nil
}

// Revoke ends a lease, and with it the staging of the object that Create has put under it. A lease that has ended is no error.
// Errors: ErrUnavailable.
func (s *Store) Revoke(ctx context.Context, lease LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := etcdstore.Retry(ctx, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		answer, err := s.options.Client.Revoke(ctx, lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = nil
		}
		return answer, err
	})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// revokeNow ends a lease that no other goroutine knows, whether or not ctx goes on. If etcd does not answer, the lease lapses.
func (s *Store) revokeNow(ctx context.Context, lease LeaseID) {
	if err := s.Revoke(context.WithoutCancel(ctx), lease); err != nil {
		s.options.Logger.Debug("the lease of an object that was not staged ends by itself", "error", err)
	}
}

// swap is a write of a key if it has a revision.
type swap struct {
	key      string
	revision int64 // 0: there is no such key
	value    []byte
	option   clientv3.OpOption
}

// swap makes a write, and returns its revision. If the key has another revision it returns the value that is there, or nil.
func (s *Store) swap(ctx context.Context, w swap) (revision int64, there *mvccpb.KeyValue, err error) {
	answer, err := etcdstore.Retry(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.options.Client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(w.key), "=", w.revision)).
			Then(clientv3.OpPut(w.key, string(w.value), w.option)).
			Else(clientv3.OpGet(w.key)).
			Commit()
	})
	if err != nil {
		return 0, nil, unavailable(err)
	}
	if answer.Succeeded {
		return answer.Header.Revision, nil, nil
	}
	kvs := answer.Responses[0].GetResponseRange().Kvs
	switch {
	case len(kvs) == 0:
		return 0, nil, nil
	case bytes.Equal(kvs[0].Value, w.value): // an earlier attempt of this write
		return kvs[0].ModRevision, nil, nil
	}
	return 0, kvs[0], nil
}

// remove deletes a key if it has a revision, and returns the revision of the deletion: 0 if the key has another one. A key that
// is gone meanwhile counts as deleted, since that may have been an earlier attempt.
func (s *Store) remove(ctx context.Context, key string, revision int64) (int64, error) {
	answer, err := etcdstore.Attempt(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.options.Client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpDelete(key)).
			Else(clientv3.OpGet(key, clientv3.WithKeysOnly())).
			Commit()
	})
	if err != nil {
		return 0, unavailable(err)
	}
	if answer.Succeeded || len(answer.Responses[0].GetResponseRange().Kvs) == 0 {
		return answer.Header.Revision, nil
	}
	return 0, nil
}

// unavailable is the error of a request that etcd has not answered, or has refused.
func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// at returns an object with a resource version.
func at(o *initializerv1.StagedObject, revision int64) *initializerv1.StagedObject {
	o = Copy(o)
	o.ResourceVersion = formatVersion(revision)
	return o
}
