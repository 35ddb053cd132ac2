package service

import (
	"context"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
)

// The work that a call or a message causes beside its turn: TLS, gRPC or HTTP, and the store, which may be in this process.
const (
	callWork    = 250 * time.Microsecond
	messageWork = 50 * time.Microsecond
	// byteWork is the work of each byte of an object.
	byteWork = 10 * time.Nanosecond
)

// Turn returns when the caller may occupy a processor, which reviews need; done ends its turn. No call waits in its turn for the store or for its
// caller. The error is the end of ctx.
func (s *Service) Turn(ctx context.Context) (done func(), err error) {
	v, err := s.viewOf(ctx)
	if err != nil {
		return nil, err
	}
	return s.turn(ctx, v)
}

func (s *Service) turn(ctx context.Context, v *view) (done func(), err error) {
	if done, err = s.o.Work.Wait(ctx, v.caller.Name(), !v.Operator); err != nil {
		err = status.FromContextError(err).Err()
	}
	return done, err
}

// Spend counts the bytes of a call that its caller sends or is sent. It returns when the caller has rested from its work before. The error is the end
// of ctx, or that the service stops.
func (s *Service) Spend(ctx context.Context, bytes int) error {
	v, err := s.viewOf(ctx)
	if err != nil {
		return err
	}
	return s.spend(ctx, v, callWork, bytes)
}

func (s *Service) spend(ctx context.Context, v *view, work time.Duration, bytes int) error {
	if v.Operator { // who need not rest
		return nil
	}
	rest := s.o.Work.Spend(v.caller.Name(), work+time.Duration(bytes)*byteWork)
	if rest == 0 {
		return nil
	}
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.stopping:
		return errStopping
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// bytesOf is the size of objects.
func bytesOf(objects ...*initializerv1.StagedObject) (bytes int) {
	for _, o := range objects {
		bytes += proto.Size(o)
	}
	return bytes
}
