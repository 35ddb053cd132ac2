package serve

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/internal/clock"
)

const (
	// refusalDelay is how long the refusal of a call takes whose identity has too many. A caller that asks again at once occupies no processor with that.
	refusalDelay = time.Second
	// maxDelayedBytes is the largest request, in bytes, that stays in memory meanwhile. The bytes of a larger one have delayed its caller before.
	maxDelayedBytes = 16 << 10
)

// delayUnary is an interceptor that delays refusals of the control plane.
func delayUnary(ctx context.Context, r any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	response, err := handler(ctx, r)
	if m, ok := r.(proto.Message); ok && proto.Size(m) <= maxDelayedBytes {
		delayRefusal(ctx, info.FullMethod, err)
	}
	return response, err
}

// delayStream is an interceptor that delays refusals of the control plane.
func delayStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(srv, stream)
	delayRefusal(stream.Context(), info.FullMethod, err)
	return err
}

// delayRefusal waits if a call of the control plane was refused since its identity has too many.
func delayRefusal(ctx context.Context, method string, err error) {
	if status.Code(err) != codes.ResourceExhausted || !ofControlPlane(method) {
		return
	}
	clock.Sleep(ctx, refusalDelay)
}
