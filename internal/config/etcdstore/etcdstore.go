// Package etcdstore keeps the objects of the configuration in etcd, one key an object, whether etcd is embedded or a
// cluster of its own.
//
// Every transaction that changes something also changes one key, the generation. A reader reads that key, linearizably, and the
// objects only after a change; a writer commits only if the generation is still the checked one. [Store] has no state: Read
// returns an immutable [State], and takes the last one to return the next.
package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// DefaultPrefix is where a store keeps its keys.
const DefaultPrefix = "/portcullis/"

// Limits of a store.
const (
	// MaxHistory bounds the changes that are remembered; older ones are dropped.
	MaxHistory = 1000
	// MaxTxnOps bounds the operations of one transaction, as an embedded etcd has it. An external one has a limit of its
	// own (--max-txn-ops, 128 by default); past it a commit is refused.
	MaxTxnOps = 4096
	// MaxRequestBytes bounds one transaction of an embedded etcd, in bytes. An external one has a limit of its own
	// (--max-request-bytes, 1.5 MiB by default).
	MaxRequestBytes = 16 << 20
)

// Errors that callers tell apart.
var (
	// ErrMissing: there is no store below the prefix, not even an empty one. It is never taken for an empty configuration.
	ErrMissing = errors.New("etcd holds no configuration below this prefix, not even an empty one")
	// ErrReplaced: the store is not the same as at the last reading, or an older state of it.
	ErrReplaced = errors.New("etcd holds another store than before, or an older state of it")
	// ErrMoved: another change was committed since the state that this one was checked against. Read, check and try again.
	ErrMoved = errors.New("the configuration has changed meanwhile")
	// ErrTooLarge: the change is more than etcd takes in one transaction. Nothing was changed.
	ErrTooLarge = errors.New("the change is too large for one transaction")
	// ErrFull: the database has reached its quota. Nothing was changed; reads still work.
	ErrFull = errors.New("the store is full")
	// ErrUnknown: a commit was not answered. It may or may not have happened.
	ErrUnknown = errors.New("etcd has not said whether it made the change")
	// ErrUnannounced: the lease of the dispatcher does not last long enough, or there is none yet.
	ErrUnannounced = errors.New("other dispatchers cannot be told that this one judges")
)

// Options say where a store is.
type Options struct {
	// Client reaches etcd; required. It stays the caller's.
	Client *clientv3.Client
	// Prefix is in front of all keys; empty means DefaultPrefix. It ends with a slash.
	Prefix string
}

// Store is the configuration in etcd. It may be used concurrently.
type Store struct {
	kv      clientv3.KV
	watcher clientv3.Watcher
	leases  clientv3.Lease
	keys    keys
}

// New returns the store of a prefix, which need not exist yet.
func New(o Options) (*Store, error) {
	if o.Client == nil {
		return nil, errors.New("etcdstore: no etcd to keep anything in")
	}
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	if !strings.HasSuffix(o.Prefix, "/") {
		return nil, fmt.Errorf("etcdstore: the prefix %q has to end with a slash", o.Prefix)
	}
	return &Store{kv: o.Client.KV, watcher: o.Client.Watcher, leases: o.Client.Lease, keys: keys{o.Prefix}}, nil
}

// Init makes an empty store unless there is one.
func (s *Store) Init(ctx context.Context) error {
	_, err := Attempt(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(s.keys.id()), "=", 0)).
			Then(clientv3.OpPut(s.keys.id(), uuid.NewString()), clientv3.OpPut(s.keys.generation(), "0")).
			Commit()
	})
	if err != nil {
		return fmt.Errorf("making a store in etcd: %w", err)
	}
	return nil
}

// commitError maps the error of a transaction.
func commitError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("%w: apply fewer objects at a time, or raise etcd's --max-txn-ops: %w", ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), oversized(err):
		return fmt.Errorf("%w: apply fewer objects at a time, or raise etcd's --max-request-bytes: %w", ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: an embedded store makes room by itself within a minute, or needs a larger --store-quota; "+
			"of an external etcd compact and defragment the members, or raise their --quota-backend-bytes, and disarm the alarm: %w", ErrFull, err)
	case refused(err):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// oversized reports whether gRPC refused a message for its size, at either end.
func oversized(err error) bool {
	return codeOf(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

// refused reports whether etcd has certainly not made the change.
func refused(err error) bool {
	return slices.Contains([]codes.Code{
		codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.FailedPrecondition,
	}, codeOf(err))
}
