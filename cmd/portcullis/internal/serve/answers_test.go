package serve

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/portcullis-mesh/portcullis/dispatcher/session"
	"github.com/portcullis-mesh/portcullis/dispatcher/session/stream"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	initializerv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/initializer/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
	"github.com/portcullis-mesh/portcullis/internal/initializer/service"
)

// smallWindow is how many bytes a client takes that nobody reads. Without a size gRPC measures the connection, and takes up to 16 MiB.
const smallWindow = 64 << 10

// heldObjects is a store that has the same objects for each list.
type heldObjects struct {
	service.Store

	all []*initializerv1.StagedObject
}

func (s heldObjects) List(context.Context) ([]*initializerv1.StagedObject, string, error) {
	return s.all, "7", nil
}

// everything grants the initializer "a" to every caller.
type everything struct{}

func (everything) Access(identity.Peer) service.Access {
	return service.Access{Initializers: []service.Initializer{{Pending: "a"}}}
}
func (everything) Configured(string, string) []string { return nil }
func (everything) Next() <-chan struct{}              { return nil }

// unreadAnswers asks a server of InitializerService, and reads nothing.
type unreadAnswers struct {
	t    *testing.T
	conn *grpc.ClientConn
}

// callerInMetadata is the caller that the metadata name.
func callerInMetadata(ctx context.Context) identity.Peer {
	md, _ := metadata.FromIncomingContext(ctx)
	return identity.Named(strings.Join(md.Get("from"), ""))
}

// serveObjects serves so many objects of a size, with the options of the listener for hosts. A caller is who its metadata say.
func serveObjects(t *testing.T, objects, bytes int) (dial func() unreadAnswers) {
	t.Helper()
	var store heldObjects
	for i := range objects {
		store.all = append(store.all, &initializerv1.StagedObject{
			Key:     &initializerv1.StagedKey{Cluster: "prod", Name: fmt.Sprint(i)},
			Pending: []string{"a"}, Object: &admissionv1.Object{Raw: make([]byte, bytes)},
		})
	}
	s, err := service.New(service.Options{Store: store, Grants: everything{}, Identity: callerInMetadata})
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAnswers(callerInMetadata)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(append(session.ServerOptions(), grpc.UnaryInterceptor(a.unary), grpc.StreamInterceptor(a.stream))...)
	initializerv1.RegisterInitializerServiceServer(server, s)
	network := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(network) }()
	t.Cleanup(server.Stop)
	return func() unreadAnswers {
		conn, err := grpc.NewClient("passthrough:mesh", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }),
			grpc.WithInitialWindowSize(smallWindow), grpc.WithInitialConnWindowSize(smallWindow),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return unreadAnswers{t, conn}
	}
}

// ask begins a call, and returns when its answer has begun: with its error if that is one.
func (c unreadAnswers) ask(who, method string, r proto.Message, o ...grpc.CallOption) (grpc.ClientStream, error) {
	c.t.Helper()
	ctx := metadata.AppendToOutgoingContext(c.t.Context(), "from", who)
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, o...)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := stream.SendMsg(r); err != nil {
		c.t.Fatal(err)
	}
	_ = stream.CloseSend()
	if header, err := stream.Header(); err == nil && header != nil {
		return stream, nil // a message follows
	}
	return stream, stream.RecvMsg(&initializerv1.ListResponse{})
}

// TestAnAnswerIsBookedUntilItIsRead: of lists that it does not read, an identity has its share of bytes, whatever it says about their encoding;
// another identity has its own. Bytes are released when they are read, or when the connection ends.
func TestAnAnswerIsBookedUntilItIsRead(t *testing.T) {
	const size = 3 << 20
	share, list := maxAnswerBytes/2/size, initializerv1.InitializerService_List_FullMethodName
	for name, options := range map[string][]grpc.CallOption{"plain": nil, "compressed": {grpc.UseCompressor(gzip.Name)}} {
		t.Run(name, func(t *testing.T) {
			dial := serveObjects(t, 1, size-1<<10)
			one, two := dial(), dial()
			refused := func() bool {
				_, err := dial().ask("one", list, &initializerv1.ListRequest{}, options...)
				return status.Code(err) == codes.ResourceExhausted
			}
			var unread []grpc.ClientStream
			for i := range share {
				stream, err := one.ask("one", list, &initializerv1.ListRequest{}, options...)
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				unread = append(unread, stream)
			}
			if !refused() {
				t.Error("one more is answered")
			}
			if _, err := two.ask("two", list, &initializerv1.ListRequest{}, options...); err != nil {
				t.Errorf("another identity: %v", err)
			}
			_ = two.conn.Close()
			for _, stream := range unread {
				if err := stream.RecvMsg(&initializerv1.ListResponse{}); err != nil {
					t.Fatal(err)
				}
			}
			for refused() { // until the transport knows that the last one is read
				runtime.Gosched()
			}
		})
	}
}

// sentAnswers is a stream that writes nothing.
type sentAnswers struct {
	grpc.ServerStream

	ctx     context.Context
	answers []*stream.Answer
}

func (s *sentAnswers) Context() context.Context { return s.ctx }
func (s *sentAnswers) SendMsg(m any) error {
	s.answers = append(s.answers, m.(*stream.Answer))
	return nil
}

// TestAMessageOfAWatchIsBookedUntilItIsWritten: a message without room ends its stream.
func TestAMessageOfAWatchIsBookedUntilItIsWritten(t *testing.T) {
	a, err := newAnswers(func(context.Context) identity.Peer { return identity.Named("one") })
	if err != nil {
		t.Fatal(err)
	}
	message := &initializerv1.WatchResponse{Object: &initializerv1.StagedObject{Object: &admissionv1.Object{Raw: make([]byte, 1<<20-20)}}}
	sent, share := &sentAnswers{ctx: t.Context()}, maxAnswerBytes/2>>20
	info := &grpc.StreamServerInfo{FullMethod: initializerv1.InitializerService_Watch_FullMethodName}
	err = a.stream(nil, sent, info, func(_ any, to grpc.ServerStream) error {
		for {
			if err := to.SendMsg(message); err != nil {
				return err
			}
		}
	})
	if status.Code(err) != codes.ResourceExhausted || len(sent.answers) != share {
		t.Errorf("%d messages were sent, want %d: %v", len(sent.answers), share, err)
	}
	buffers, err := stream.Codec().Marshal(sent.answers[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.book(t.Context(), message); err == nil {
		t.Error("a message that is not written is not booked")
	}
	buffers.Free()
	if _, err := a.book(t.Context(), message); err != nil {
		t.Errorf("a message was written: %v", err)
	}
}

// TestALargeAnswerIsTheWholeShare: so that a configuration of any size can be read, once at a time.
func TestALargeAnswerIsTheWholeShare(t *testing.T) {
	a, err := newAnswers(callerInMetadata)
	if err != nil {
		t.Fatal(err)
	}
	large := &initializerv1.WatchResponse{Object: &initializerv1.StagedObject{Object: &admissionv1.Object{Raw: make([]byte, maxAnswerBytes)}}}
	small := &initializerv1.WatchResponse{Object: &initializerv1.StagedObject{Uid: "u"}}
	if _, err := a.book(t.Context(), large); err != nil {
		t.Errorf("it is refused: %v", err)
	}
	if _, err := a.book(t.Context(), small); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("another one beside it: %v", err)
	}
}
