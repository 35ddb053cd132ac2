package tunnel

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"github.com/portcullis-mesh/portcullis/conversion/custom"
	clusterv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/cluster/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/answers"
)

// NewHandler returns the handler for [Serve]: it passes allowed requests on to an API server, whose address is to and whose
// credentials over has. Conversions are booked to the memory of over. No header of the dispatcher but Accept and Content-Type goes on: it cannot
// impersonate. conversions calls the conversion webhooks that CustomResourceDefinitions of the cluster name.
func NewHandler(to *url.URL, over answers.Transport, conversions custom.Caller, log *slog.Logger) http.Handler {
	converts := newConverter(to, over, conversions)
	proxy := &httputil.ReverseProxy{
		Transport:     over.RoundTripper,
		FlushInterval: -1, // watches
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = ""
			header := http.Header{}
			for _, name := range []string{"Accept", "Content-Type"} {
				if values := r.In.Header.Values(name); len(values) > 0 {
					header[name] = values
				}
			}
			header.Set("User-Agent", "portcullis-bridge")
			r.Out.Header = header
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := conversionOf(r); ok {
			converts.ServeHTTP(w, r)
			return
		}
		if !allowed(r) {
			http.Error(w, "portcullis bridge: a dispatcher may not ask for "+r.Method+" "+r.URL.Path, http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// Serve serves the API of a cluster to the dispatcher at the other end of a connection, until ctx or the stream ends.
func Serve(ctx context.Context, conn *grpc.ClientConn, cluster string, handler http.Handler) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := clusterv1.NewClusterServiceClient(conn).Serve(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&clusterv1.ServeRequest{Cluster: cluster}); err != nil && err != io.EOF { //nolint:errorlint // as gRPC documents it
		return err
	}
	ended := make(chan error, 1) // the server may return before its reader
	server := &http2.Server{MaxConcurrentStreams: 256}
	server.ServeConn(&streamConn{
		send: func(data []byte) error { return stream.Send(&clusterv1.ServeRequest{Data: data}) },
		recv: func() ([]byte, error) {
			m, err := stream.Recv()
			if err != nil {
				select {
				case ended <- err:
				default:
				}
				return nil, io.EOF
			}
			return m.GetData(), nil
		},
		end: end,
	}, &http2.ServeConnOpts{Context: ctx, Handler: handler})
	select {
	case err := <-ended:
		return err
	default:
		return nil
	}
}
