package staged

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"k8s.io/apiserver/pkg/storage/value"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// writeIDBytes is the size of the random number in front of each value. It tells two writes of the same content apart, so that a
// write that is sent again knows whether it was made.
const writeIDBytes = 16

// encode returns the value of an object at a key. The key is authenticated with it: a value that was moved to another key cannot
// be read there.
func (s *Store) encode(ctx context.Context, key string, o *initializerv1.StagedObject) ([]byte, error) {
	id := make([]byte, writeIDBytes)
	_, _ = rand.Read(id) // never fails
	stored := shallow(o)
	stored.ResourceVersion, stored.RemainingMs = "", 0
	plain, err := proto.MarshalOptions{}.MarshalAppend(id, stored)
	if err != nil {
		return nil, fmt.Errorf("encoding a staged object: %w", err)
	}
	encoded, err := s.options.Keys.transformer().TransformToStorage(ctx, plain, value.DefaultContext(key))
	if err != nil {
		return nil, fmt.Errorf("encrypting a staged object: %w", err)
	}
	return encoded, nil
}

// decode returns the object of a key of etcd, and shares no memory with it.
func (s *Store) decode(ctx context.Context, kv *mvccpb.KeyValue) (*initializerv1.StagedObject, error) {
	plain, _, err := s.options.Keys.transformer().TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return nil, fmt.Errorf("decrypting a staged object: %w", err)
	}
	if len(plain) < writeIDBytes {
		return nil, errors.New("decoding a staged object: the value is too short")
	}
	o := &initializerv1.StagedObject{}
	if err := proto.Unmarshal(plain[writeIDBytes:], o); err != nil {
		return nil, fmt.Errorf("decoding a staged object: %w", err)
	}
	if keyOf(s.prefix, o.GetKey()) != string(kv.Key) {
		return nil, errors.New("decoding a staged object: it has the key of another one")
	}
	o.ResourceVersion = formatVersion(kv.ModRevision)
	return o, nil
}

// shallow returns a copy of an object that shares everything below its fields.
func shallow(o *initializerv1.StagedObject) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: o.GetKey(), Uid: o.GetUid(), ResourceVersion: o.GetResourceVersion(), Pending: o.GetPending(), Result: o.GetResult(),
		Creator: o.GetCreator(), Object: o.GetObject(), RemainingMs: o.GetRemainingMs(), Kind: o.GetKind(), Created: o.GetCreated(),
		Waiting: o.GetWaiting(), ReviewUid: o.GetReviewUid(), DispatcherId: o.GetDispatcherId(), Expires: o.GetExpires(),
	}
}
