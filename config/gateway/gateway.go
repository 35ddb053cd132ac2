// Package gateway is ConfigService as JSON over HTTP, for who has no gRPC at hand: the generated mux of grpc-gateway in front
// of the service in this process, without a connection in between. It adds what the mux does not do: it says who calls,
// asks for a role before it reads a body, bounds bodies, and writes manifests as the JSON that they are.
//
// It decides nothing about the configuration, and believes no header: who calls stands in the certificate alone.
package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/dispatcher/memory"
	gatewayv1 "github.com/portcullis-mesh/portcullis/gen/gateway/portcullis/config/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/identity"
)

// Prefix is what the paths of all requests begin with.
const Prefix = "/v1/config/"

// Limits of requests.
const (
	// MaxBodyBytes bounds the body of a request: the manifests of the largest apply, in whichever form, and room around them.
	MaxBodyBytes = 16 << 20
	// MaxBodies bounds the requests with a body that are served at a time; more are refused with 429. One identity has no more
	// of them than it leaves free for the others.
	MaxBodies = 8
	// DefaultTimeout bounds a call that is no stream, the reading of a body, and each write of an answer.
	DefaultTimeout = 30 * time.Second
)

// Service is what a gateway stands in front of. Its methods are called concurrently; who calls is the peer of their context,
// as on a gRPC channel.
type Service interface {
	configv1.ConfigServiceServer
	// MayCall is nil for who has a role, and else the error to be answered.
	MayCall(ctx context.Context) error
}

// Options are what a Gateway needs.
type Options struct {
	// Service is called. Required.
	Service Service
	// Verify says who is at the other end of a connection, which may have no TLS, by the authorities of the service's callers. The
	// listener may trust others too, for other purposes. Required.
	Verify func(*tls.ConnectionState) identity.Channel
	// Timeout is for tests; 0 means DefaultTimeout.
	Timeout time.Duration
}

// Gateway serves ConfigService as JSON. Make it with New; it may be used concurrently.
type Gateway struct {
	options Options
	mux     *runtime.ServeMux
	bodies  *memory.Ledger // requests with a body, by identity
}

var _ http.Handler = (*Gateway)(nil)

// New makes a Gateway. It does no I/O.
func New(o Options) (*Gateway, error) {
	if o.Service == nil || o.Verify == nil {
		return nil, errors.New("gateway: Service and Verify are required")
	}
	bodies, err := memory.New(memory.Options{Total: MaxBodies})
	if err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	g := &Gateway{options: o, bodies: bodies}
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, codec{}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithMiddlewares(g.admit),
		runtime.WithDisablePathLengthFallback(),
	)
	ctx := context.Background() //nolint:forbidigo // in-process registration does not use it
	if err := gatewayv1.RegisterConfigServiceHandlerClient(ctx, g.mux, client{o.Service, o.Timeout}); err != nil {
		return nil, fmt.Errorf("registering the gateway: %w", err)
	}
	return g, nil
}

// ServeHTTP answers one request. Streams that it has begun have ended when it returns.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	channel := g.options.Verify(r.TLS)
	if _, err := channel.Identity(); err != nil {
		g.serve(r.Context(), w, r)
		return
	}
	address, _ := net.ResolveTCPAddr("tcp", r.RemoteAddr)
	ctx, stop := identity.While(peer.NewContext(r.Context(), &peer.Peer{Addr: address, AuthInfo: authInfo{channel}}), channel)
	defer stop()
	g.serve(ctx, w, r)
}

// serve answers one request. Its context says who calls, as that of a gRPC channel does; if it does not, nobody knows.
func (g *Gateway) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, cancel := context.WithCancel(withCalls(ctx, &calls))
	defer cancel()
	g.mux.ServeHTTP(&writer{w, http.NewResponseController(w), g.options.Timeout}, r.WithContext(ctx))
}

// callerOf is who calls, by the context of a request.
func callerOf(ctx context.Context) identity.Peer {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			caller, _ := info.Identity()
			return caller
		}
	}
	return identity.Peer{}
}

// authInfo is an identity.Channel, as those of gRPC channels are.
type authInfo struct{ identity.Channel }

// AuthType is part of credentials.AuthInfo.
func (authInfo) AuthType() string { return "tls" }

// admit is the middleware of the mux: it runs when the path is known, and before the body is read.
func (g *Gateway) admit(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		ctx, cancel := context.WithTimeout(r.Context(), g.options.Timeout)
		err := g.options.Service.MayCall(ctx)
		cancel()
		if r.Method != http.MethodPost {
			r.Body = http.NoBody // which the mux would read to its end
		} else if err == nil {
			var done func()
			if done, err = g.receive(w, r); err == nil {
				defer done()
			}
		}
		if err != nil {
			runtime.HTTPError(r.Context(), g.mux, codec{}, w, r, err)
			return
		}
		next(w, r, params)
	}
}

// receive reads the body of a request, within its bounds. done has to be called when the request is over.
func (g *Gateway) receive(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	caller := callerOf(r.Context()).Name()
	lease, err := g.bodies.Reserve(caller, 1)
	if err != nil {
		return nil, status.Errorf(codes.ResourceExhausted, "too many requests of %q with a body are being served: ask again", caller)
	}
	if err := g.read(w, r); err != nil {
		lease.Release()
		return nil, err
	}
	return lease.Release, nil
}

// read puts the body of a request into memory. A form of a web page is refused: its author is not who has the certificate.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != jsonType {
		return answer(http.StatusUnsupportedMediaType, codes.InvalidArgument, "content type %q is not read: send %s", r.Header.Get("Content-Type"), jsonType)
	}
	reading := http.NewResponseController(w)
	_ = reading.SetReadDeadline(time.Now().Add(g.options.Timeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	_ = reading.SetReadDeadline(time.Time{})
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return answer(http.StatusRequestEntityTooLarge, codes.InvalidArgument, "the body has more than %d bytes: apply fewer objects at a time", MaxBodyBytes)
	}
	if err != nil {
		return answer(http.StatusBadRequest, codes.InvalidArgument, "the body is cut off after %d bytes", len(body))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// answer is an error with an HTTP status of its own.
func answer(httpStatus int, code codes.Code, format string, args ...any) error {
	return &runtime.HTTPStatusError{HTTPStatus: httpStatus, Err: status.Errorf(code, format, args...)}
}

// writer bounds each write of an answer: who does not read it is hung up on.
type writer struct {
	http.ResponseWriter

	control *http.ResponseController
	timeout time.Duration
}

// Write is part of http.ResponseWriter.
func (w *writer) Write(data []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	return w.ResponseWriter.Write(data)
}

// Unwrap lets a ResponseController find the original.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
