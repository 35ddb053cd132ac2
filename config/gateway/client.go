package gateway

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// client calls a service of this process: messages are handed over as they are. Call options, and what the mux would send as
// metadata, reach nobody.
type client struct {
	service configv1.ConfigServiceServer
	timeout time.Duration
}

var _ configv1.ConfigServiceClient = client{}

// Apply is part of configv1.ConfigServiceClient.
func (c client) Apply(ctx context.Context, r *configv1.ApplyRequest, _ ...grpc.CallOption) (*configv1.ApplyResponse, error) {
	return unary(ctx, c, r, c.service.Apply)
}

// Delete is part of configv1.ConfigServiceClient.
func (c client) Delete(ctx context.Context, r *configv1.DeleteRequest, _ ...grpc.CallOption) (*configv1.DeleteResponse, error) {
	return unary(ctx, c, r, c.service.Delete)
}

// Get is part of configv1.ConfigServiceClient.
func (c client) Get(ctx context.Context, r *configv1.GetRequest, _ ...grpc.CallOption) (*configv1.GetResponse, error) {
	return unary(ctx, c, r, c.service.Get)
}

// List is part of configv1.ConfigServiceClient.
func (c client) List(ctx context.Context, r *configv1.ListRequest, _ ...grpc.CallOption) (*configv1.ListResponse, error) {
	return unary(ctx, c, r, c.service.List)
}

// ListDispatchers is part of configv1.ConfigServiceClient.
func (c client) ListDispatchers(
	ctx context.Context, r *configv1.ListDispatchersRequest, _ ...grpc.CallOption,
) (*configv1.ListDispatchersResponse, error) {
	return unary(ctx, c, r, c.service.ListDispatchers)
}

// ListChanges is part of configv1.ConfigServiceClient.
func (c client) ListChanges(ctx context.Context, r *configv1.ListChangesRequest, _ ...grpc.CallOption) (*configv1.ListChangesResponse, error) {
	return unary(ctx, c, r, c.service.ListChanges)
}

// Watch is part of configv1.ConfigServiceClient.
func (c client) Watch(
	ctx context.Context, r *configv1.WatchRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[configv1.WatchResponse], error) {
	return stream(ctx, r, c.service.Watch), nil
}

// Wait is part of configv1.ConfigServiceClient.
func (c client) Wait(
	ctx context.Context, r *configv1.WaitRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[configv1.WaitResponse], error) {
	return stream(ctx, r, c.service.Wait), nil
}

// Backup is part of configv1.ConfigServiceClient. It has no path: a backup is no JSON.
func (client) Backup(context.Context, *configv1.BackupRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[configv1.BackupResponse], error) {
	return nil, status.Error(codes.Unimplemented, "a backup is made over gRPC: `portcullis store backup`")
}

// unary calls a method that answers once.
func unary[In, Out any](ctx context.Context, c client, r In, method func(context.Context, In) (Out, error)) (Out, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return method(ctx, r)
}

// callsKey is where a context has the group of its streams.
type callsKey struct{}

// withCalls lets streams be waited for.
func withCalls(ctx context.Context, calls *sync.WaitGroup) context.Context {
	return context.WithValue(ctx, callsKey{}, calls)
}

// stream calls a method that sends messages. The method runs until it is done or ctx ends.
func stream[In, T any](ctx context.Context, r In, method func(In, grpc.ServerStreamingServer[T]) error) grpc.ServerStreamingClient[T] {
	p := &pipe[T]{ctx: ctx, messages: make(chan *T), ended: make(chan struct{})}
	run := func() {
		defer close(p.ended)
		p.err = method(r, sender[T]{p: p})
	}
	if calls, ok := ctx.Value(callsKey{}).(*sync.WaitGroup); ok {
		calls.Go(run)
	} else {
		go run()
	}
	return receiver[T]{p: p}
}

// pipe is a stream without a connection. It keeps no message: who sends waits for who receives.
type pipe[T any] struct {
	ctx      context.Context //nolint:containedctx // a stream has one
	messages chan *T
	ended    chan struct{}
	err      error // of the method; read when ended is closed
}

// sender is the end of the service.
type sender[T any] struct {
	grpc.ServerStream // what is not below is not there

	p *pipe[T]
}

// Context is part of grpc.ServerStream.
func (s sender[T]) Context() context.Context { return s.p.ctx }

// Send is part of grpc.ServerStreamingServer.
func (s sender[T]) Send(m *T) error {
	select {
	case s.p.messages <- m:
		return nil
	case <-s.p.ctx.Done():
		return status.FromContextError(s.p.ctx.Err()).Err()
	}
}

// receiver is the end of the mux.
type receiver[T any] struct {
	grpc.ClientStream // what is not below is not there

	p *pipe[T]
}

// Context is part of grpc.ClientStream.
func (r receiver[T]) Context() context.Context { return r.p.ctx }

// Header is part of grpc.ClientStream.
func (r receiver[T]) Header() (metadata.MD, error) { return metadata.MD{}, nil }

// Recv is part of grpc.ServerStreamingClient.
func (r receiver[T]) Recv() (*T, error) {
	select {
	case m := <-r.p.messages:
		return m, nil
	case <-r.p.ended:
	}
	if r.p.err != nil {
		return nil, r.p.err
	}
	return nil, io.EOF
}
