package gateway

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
)

// client calls a service in this process with the messages themselves. It ignores call options and metadata.
type client struct {
	service Service
}

var (
	_ configv1.ConfigServiceClient     = client{}
	_ analysisv1.AnalysisServiceClient = client{}
)

func (c client) ListLatencies(
	ctx context.Context, r *analysisv1.ListLatenciesRequest, _ ...grpc.CallOption,
) (*analysisv1.ListLatenciesResponse, error) {
	return unary(ctx, r, c.service.ListLatencies)
}

func (c client) ListReviews(
	ctx context.Context, r *analysisv1.ListReviewsRequest, _ ...grpc.CallOption,
) (*analysisv1.ListReviewsResponse, error) {
	return unary(ctx, r, c.service.ListReviews)
}

func (c client) ListShadows(
	ctx context.Context, r *analysisv1.ListShadowsRequest, _ ...grpc.CallOption,
) (*analysisv1.ListShadowsResponse, error) {
	return unary(ctx, r, c.service.ListShadows)
}

func (c client) Apply(ctx context.Context, r *configv1.ApplyRequest, _ ...grpc.CallOption) (*configv1.ApplyResponse, error) {
	return unary(ctx, r, c.service.Apply)
}

func (c client) Delete(ctx context.Context, r *configv1.DeleteRequest, _ ...grpc.CallOption) (*configv1.DeleteResponse, error) {
	return unary(ctx, r, c.service.Delete)
}

func (c client) Get(ctx context.Context, r *configv1.GetRequest, _ ...grpc.CallOption) (*configv1.GetResponse, error) {
	return unary(ctx, r, c.service.Get)
}

func (c client) List(ctx context.Context, r *configv1.ListRequest, _ ...grpc.CallOption) (*configv1.ListResponse, error) {
	return unary(ctx, r, c.service.List)
}

func (c client) ListDispatchers(
	ctx context.Context, r *configv1.ListDispatchersRequest, _ ...grpc.CallOption,
) (*configv1.ListDispatchersResponse, error) {
	return unary(ctx, r, c.service.ListDispatchers)
}

func (c client) ListHosts(ctx context.Context, r *configv1.ListHostsRequest, _ ...grpc.CallOption) (*configv1.ListHostsResponse, error) {
	return unary(ctx, r, c.service.ListHosts)
}

func (c client) ListHooks(ctx context.Context, r *configv1.ListHooksRequest, _ ...grpc.CallOption) (*configv1.ListHooksResponse, error) {
	return unary(ctx, r, c.service.ListHooks)
}

func (c client) ListChanges(ctx context.Context, r *configv1.ListChangesRequest, _ ...grpc.CallOption) (*configv1.ListChangesResponse, error) {
	return unary(ctx, r, c.service.ListChanges)
}

func (c client) Watch(
	ctx context.Context, r *configv1.WatchRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[configv1.WatchResponse], error) {
	return stream(ctx, r, c.service.Watch), nil
}

func (c client) Wait(
	ctx context.Context, r *configv1.WaitRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[configv1.WaitResponse], error) {
	return stream(ctx, r, c.service.Wait), nil
}

// Backup has no path: a backup is not JSON.
func (client) Backup(context.Context, *configv1.BackupRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[configv1.BackupResponse], error) {
	return nil, status.Error(codes.Unimplemented, "a backup is made over gRPC: `portcullis store backup`")
}

func unary[In, Out any](ctx context.Context, r In, method func(context.Context, In) (Out, error)) (Out, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return method(ctx, r)
}

// callsKey is the key of the streams of a request in its context.
type callsKey struct{}

func withCalls(ctx context.Context, calls *sync.WaitGroup) context.Context {
	return context.WithValue(ctx, callsKey{}, calls)
}

// stream starts a method that sends messages. It runs until it returns or ctx ends.
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

// pipe is a stream without a connection or a buffer: a send waits for the receiver.
type pipe[T any] struct {
	ctx      context.Context //nolint:containedctx // a stream has one
	messages chan *T
	ended    chan struct{}
	err      error // of the method; read when ended is closed
}

// sender is the service's end of a pipe.
type sender[T any] struct {
	grpc.ServerStream // nil: other methods are not called

	p *pipe[T]
}

func (s sender[T]) Context() context.Context { return s.p.ctx }

func (s sender[T]) Send(m *T) error {
	select {
	case s.p.messages <- m:
		return nil
	case <-s.p.ctx.Done():
		return status.FromContextError(s.p.ctx.Err()).Err()
	}
}

// receiver is the mux's end of a pipe.
type receiver[T any] struct {
	grpc.ClientStream // nil: other methods are not called

	p *pipe[T]
}

func (r receiver[T]) Context() context.Context { return r.p.ctx }

func (r receiver[T]) Header() (metadata.MD, error) { return metadata.MD{}, nil }

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
