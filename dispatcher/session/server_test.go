package session

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	hostv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/host/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestAStoppedServerStartsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		entered, identified := make(chan struct{}), make(chan struct{})
		hosts := NewServer(r, func(context.Context) identity.Channel {
			close(entered)
			<-identified
			return identity.Named("host")
		})
		server, network := grpc.NewServer(ServerOptions()...), bufconn.Listen(1<<16)
		hostv1.RegisterHostServiceServer(server, hosts)
		go func() { _ = server.Serve(network) }()
		conn, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hostv1.NewHostServiceClient(conn).Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-entered
		stopped := make(chan struct{})
		go func() {
			server.Stop()
			hosts.Wait()
			close(stopped)
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("a stream that was opened before has not begun yet")
		default:
		}
		close(identified)
		<-stopped
		_ = conn.Close()
	})
}
