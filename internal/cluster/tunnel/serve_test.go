package tunnel

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	clusterv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/cluster/v1"
)

// faulty is a dispatcher that begins to speak HTTP/2, and sends data of a request that has not begun.
type faulty struct {
	clusterv1.UnimplementedClusterServiceServer
}

// Serve implements clusterv1.ClusterServiceServer.
func (faulty) Serve(stream grpc.BidiStreamingServer[clusterv1.ServeRequest, clusterv1.ServeResponse]) error {
	const settings, data = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	if err := stream.Send(&clusterv1.ServeResponse{Data: []byte(http2.ClientPreface + settings + data)}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// The server of HTTP/2 gives up first, while another goroutine reads from the stream. Run with -race.
func TestADispatcherWithAFaultEndsTheTunnel(t *testing.T) {
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	clusterv1.RegisterClusterServiceServer(server, faulty{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); serving.Wait() })
	if _ = Serve(t.Context(), conn, "east", http.NotFoundHandler()); t.Context().Err() != nil {
		t.Error("the tunnel lasted as long as the test")
	}
}
