package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/cluster/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

const (
	// MaxPerCluster is how many bridges of one cluster may be connected to a dispatcher at a time: each has a connection and its
	// buffers.
	MaxPerCluster = 16
	// firstTimeout bounds the wait for the name of the cluster.
	firstTimeout = 5 * time.Second
	// authorizeInterval is how often it is looked whether a bridge may still serve its cluster: documents change.
	authorizeInterval = time.Second
	// silence is the time without a frame after which a bridge is pinged, and pingTimeout that for the answer.
	silence     = 2 * time.Second
	pingTimeout = 3 * time.Second
)

// ErrNoBridge is the error of a request to a cluster of which no bridge is connected.
var ErrNoBridge = errors.New("no bridge of the cluster is connected")

// Server has the bridges that are connected to this dispatcher. It is the ClusterService. Its methods may be called
// concurrently. Make it with NewServer.
type Server struct {
	clusterv1.UnimplementedClusterServiceServer

	authorize func(ctx context.Context, cluster string) error
	transport *http2.Transport

	mu      sync.Mutex
	bridges map[string][]*http2.ClientConn // by cluster, the newest last
}

// NewServer returns a server without bridges. authorize returns an error unless the caller of a context may serve the API of a
// cluster; it may be called concurrently.
func NewServer(authorize func(ctx context.Context, cluster string) error) *Server {
	return &Server{
		authorize: authorize, bridges: map[string][]*http2.ClientConn{}, transport: newTransport(),
	}
}

// newTransport is the transport to API servers behind bridges. They send no more ahead than API servers that are dialled.
func newTransport() *http2.Transport {
	t, err := http2.ConfigureTransports(&http.Transport{HTTP2: answers.Buffers()})
	if err != nil {
		panic(err) //nolint:forbidigo // It is the error of a transport that speaks HTTP/2 already.
	}
	t.ReadIdleTimeout, t.PingTimeout, t.AllowHTTP = silence, pingTimeout, true
	return t
}

// Serve implements clusterv1.ClusterServiceServer.
func (r *Server) Serve(stream grpc.BidiStreamingServer[clusterv1.ServeRequest, clusterv1.ServeResponse]) error {
	cluster, err := nameOf(stream)
	if err != nil {
		return err
	}
	if err := r.authorize(stream.Context(), cluster); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	ctx, end := context.WithCancel(stream.Context())
	defer end()
	conn, err := r.transport.NewClientConn(&streamConn{
		send: func(data []byte) error { return stream.Send(&clusterv1.ServeResponse{Data: data}) },
		recv: func() ([]byte, error) {
			m, err := stream.Recv()
			if err != nil {
				end()
				return nil, io.EOF
			}
			return m.GetData(), nil
		},
		end: end,
	})
	if err != nil {
		return status.Error(codes.Aborted, err.Error())
	}
	defer conn.Close() //nolint:errcheck // it has no error
	if !r.add(cluster, conn) {
		return status.Errorf(codes.ResourceExhausted, "cluster %s has %d bridges here", cluster, MaxPerCluster)
	}
	defer r.remove(cluster, conn)
	return r.whileAuthorized(ctx, cluster)
}

// whileAuthorized returns when ctx has ended, or the caller may not serve the cluster any more.
func (r *Server) whileAuthorized(ctx context.Context, cluster string) error {
	t := time.NewTicker(authorizeInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-t.C:
			if err := r.authorize(ctx, cluster); err != nil {
				return status.Error(codes.PermissionDenied, err.Error())
			}
		}
	}
}

// nameOf reads the name of the cluster from the first message. If it does not come in time, the stream ends with its handler.
func nameOf(stream grpc.BidiStreamingServer[clusterv1.ServeRequest, clusterv1.ServeResponse]) (string, error) {
	type first struct {
		message *clusterv1.ServeRequest
		err     error
	}
	came := make(chan first, 1)
	go func() {
		m, err := stream.Recv()
		came <- first{m, err}
	}()
	late := time.NewTimer(firstTimeout)
	defer late.Stop()
	select {
	case f := <-came:
		switch {
		case f.err != nil:
			return "", f.err
		case f.message.GetCluster() == "" || len(f.message.GetData()) > 0:
			return "", status.Error(codes.InvalidArgument, "the first message has to name the cluster, and nothing else")
		}
		return f.message.GetCluster(), nil
	case <-late.C:
		return "", status.Errorf(codes.DeadlineExceeded, "the first message did not come within %s", firstTimeout)
	}
}

func (r *Server) add(cluster string, conn *http2.ClientConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bridges[cluster]) >= MaxPerCluster {
		return false
	}
	r.bridges[cluster] = append(slices.Clone(r.bridges[cluster]), conn)
	return true
}

func (r *Server) remove(cluster string, conn *http2.ClientConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(r.bridges[cluster]), func(c *http2.ClientConn) bool { return c == conn })
	if r.bridges[cluster] = left; len(left) == 0 {
		delete(r.bridges, cluster)
	}
}

// Transport returns a transport to the API server of a cluster, through whichever of its bridges is connected.
func (r *Server) Transport(cluster string) http.RoundTripper { return &transport{r, cluster} }

type transport struct {
	server  *Server
	cluster string
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.server.mu.Lock()
	all := t.server.bridges[t.cluster]
	t.server.mu.Unlock()
	for _, conn := range slices.Backward(all) {
		if conn.CanTakeNewRequest() {
			return conn.RoundTrip(r) //nolint:bodyclose // the caller of RoundTrip closes it
		}
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, fmt.Errorf("%w: run `portcullis bridge --cluster %s` there", ErrNoBridge, t.cluster)
}
