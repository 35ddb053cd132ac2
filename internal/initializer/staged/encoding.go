package staged

import (
	"crypto/rand"
	"fmt"
	"runtime"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// writeIDBytes is the size of the random number in front of each value. It tells two writes of the same content apart, so that a
// write that is sent again knows whether it was made.
const writeIDBytes = 16

const (
	// entryBytes are booked for an object beside its content, in bytes.
	entryBytes = 1 << 10
	// expansion is how many bytes a byte takes at most that is not of the content: a short name is a string of its own.
	expansion = 16
)

// encode returns the value of an object at a key. The key is authenticated with it: a value that was moved to another key cannot
// be read there.
func (s *Store) encode(key string, o *initializerv1.StagedObject) ([]byte, error) {
	id := make([]byte, writeIDBytes)
	_, _ = rand.Read(id) // never fails
	stored := Copy(o)
	stored.ResourceVersion, stored.RemainingMs = "", 0
	plain, err := proto.MarshalOptions{}.MarshalAppend(id, stored)
	if err != nil {
		return nil, fmt.Errorf("encoding a staged object: %w", err)
	}
	return s.options.Keys.seal(key, plain), nil
}

// decode returns the object of a key of etcd, and shares no memory with it. The object is booked to its cluster for as long as its content is in
// memory, also past the cache: this is where all objects come from that other dispatchers or callers have written.
func (s *Store) decode(kv *mvccpb.KeyValue) (*initializerv1.StagedObject, error) {
	booked, err := s.book(kv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	o, err := s.decodeBooked(kv)
	if err == nil {
		if err = booked.Extend(expansion * int64(len(kv.Value)-len(o.GetObject().GetRaw()))); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	if err != nil {
		booked.Release()
		return nil, err
	}
	runtime.AddCleanup(o.GetObject(), (*memory.Reservation).Release, booked) // watches and lists keep it past the cache
	return o, nil
}

// book reserves the memory of the object of a key before it is decoded.
func (s *Store) book(kv *mvccpb.KeyValue) (*memory.Reservation, error) {
	if s.options.Memory == nil {
		return nil, nil //nolint:nilnil // a reservation without accounting
	}
	return s.options.Memory.Reserve(clusterOf(s.prefix, string(kv.Key)), entryBytes+int64(len(kv.Value)))
}

// decodeBooked is decode of an object that is booked.
func (s *Store) decodeBooked(kv *mvccpb.KeyValue) (*initializerv1.StagedObject, error) {
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
	if o.GetObject() == nil {
		o.Object = &admissionv1.Object{}
	}
	return o, nil
}

// Copy returns a copy of an object for changes of its fields. It shares the messages below them.
func Copy(o *initializerv1.StagedObject) *initializerv1.StagedObject {
	return &initializerv1.StagedObject{
		Key: o.GetKey(), Uid: o.GetUid(), ResourceVersion: o.GetResourceVersion(), Pending: o.GetPending(), Result: o.GetResult(),
		Creator: o.GetCreator(), Object: o.GetObject(), RemainingMs: o.GetRemainingMs(), Kind: o.GetKind(), Created: o.GetCreated(),
		Waiting: o.GetWaiting(), ReviewUid: o.GetReviewUid(), DispatcherId: o.GetDispatcherId(), Expires: o.GetExpires(),
		Together: o.GetTogether(),
	}
}
