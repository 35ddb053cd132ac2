package staged

import (
	"crypto/rand"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// writeIDBytes is the size of the random number in front of each value. It tells two writes of the same content apart, so that a
// write that is sent again knows whether it was made.
const writeIDBytes = 16

// encode returns the value of an object at a key. The key is authenticated with it: a value that was moved to another key cannot
// be read there.
func (s *Store) encode(key string, o *initializerv1.StagedObject) ([]byte, error) {
	id := make([]byte, writeIDBytes)
	_, _ = rand.Read(id) // never fails
	stored := shallow(o)
	stored.ResourceVersion, stored.RemainingMs = "", 0
	plain, err := proto.MarshalOptions{}.MarshalAppend(id, stored)
	if err != nil {
		return nil, fmt.Errorf("encoding a staged object: %w", err)
	}
	return s.options.Keys.seal(key, plain), nil
}

// decode returns the object of a key of etcd, and shares no memory with it.
func (s *Store) decode(kv *mvccpb.KeyValue) (*initializerv1.StagedObject, error) {
	plain, err := s.options.Keys.open(kv.Key, kv.Value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if len(plain) < writeIDBytes {
		return nil, fmt.Errorf("%w: it is too short", ErrUnreadable)
	}
	o := &initializerv1.StagedObject{}
	if err := proto.Unmarshal(plain[writeIDBytes:], o); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if keyOf(s.prefix, o.GetKey()) != string(kv.Key) {
		return nil, fmt.Errorf("%w: it has the key of another one", ErrUnreadable)
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
		Together: o.GetTogether(),
	}
}
