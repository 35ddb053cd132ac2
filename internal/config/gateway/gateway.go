// Package gateway serves ConfigService and AnalysisService as JSON over HTTP: the generated mux of grpc-gateway calls the service in this process,
// without a connection. The package adds the identity of the caller, the check of its role before a body is read, bounds on
// bodies, and manifests as plain JSON.
//
// It decides nothing about the configuration. The identity comes from the certificate, never from a header.
package gateway

import (
	"bytes"
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
	analysisgatewayv1 "github.com/portcullis-mesh/portcullis/gen/gateway/portcullis/analysis/v1"
	gatewayv1 "github.com/portcullis-mesh/portcullis/gen/gateway/portcullis/config/v1"
	analysisv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/analysis/v1"
	configv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/config/v1"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// Prefix is the prefix of the paths of ConfigService, and AnalysisPrefix the prefix for AnalysisService.
const (
	Prefix         = "/v1/config/"
	AnalysisPrefix = "/v1/analysis/"
)

// Limits of requests.
const (
	// MaxBodyBytes bounds the body of a request, in bytes: the manifests of the largest apply, in YAML or JSON, with headroom.
	MaxBodyBytes = 16 << 20
	// MaxBodies bounds the requests with a body in flight; others are refused with 429. One identity has no more of them than it
	// leaves free for the others.
	MaxBodies = 8
	// timeout bounds a unary call, the reading of a body, and each write of an answer.
	timeout = 30 * time.Second
)

// Service is the service behind a Gateway. Its methods are called concurrently; the caller is the peer of their context, as on a
// gRPC channel.
type Service interface {
	configv1.ConfigServiceServer
	analysisv1.AnalysisServiceServer
	// MayCall returns nil if the caller has a role, else the error of the answer.
	MayCall(ctx context.Context) error
}

// Options configure a Gateway.
type Options struct {
	// Service is required.
	Service Service
	// Verify returns the peer of a connection, which may have no TLS, by the authorities of the service's callers. The listener may
	// trust other authorities too. Required.
	Verify func(*tls.ConnectionState) identity.Channel
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
	g := &Gateway{options: o, bodies: bodies}
	g.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, codec{}),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithMiddlewares(g.admit),
		runtime.WithDisablePathLengthFallback(),
	)
	ctx := context.Background() //nolint:forbidigo // in-process registration does not use it
	if err := errors.Join(
		gatewayv1.RegisterConfigServiceHandlerClient(ctx, g.mux, client{o.Service}),
		analysisgatewayv1.RegisterAnalysisServiceHandlerClient(ctx, g.mux, client{o.Service}),
	); err != nil {
		return nil, fmt.Errorf("registering the gateway: %w", err)
	}
	return g, nil
}

// ServeHTTP answers one request. Its streams have ended when it returns.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, stop := Identify(r, g.options.Verify)
	defer stop()
	g.serve(ctx, w, r)
}

// Identify returns the context of the calls that a request becomes: their peer is the caller by its certificate, as on a gRPC channel,
// and they end when its identity does not hold any more. Without an identity they have no peer. stop ends the context.
func Identify(r *http.Request, verify func(*tls.ConnectionState) identity.Channel) (ctx context.Context, stop func()) {
	channel := verify(r.TLS)
	if _, err := channel.Identity(); err != nil {
		return r.Context(), func() {}
	}
	address, _ := net.ResolveTCPAddr("tcp", r.RemoteAddr)
	return identity.While(peer.NewContext(r.Context(), &peer.Peer{Addr: address, AuthInfo: authInfo{channel}}), channel)
}

// serve answers one request. The peer of ctx is the caller; without one the caller is unknown.
func (g *Gateway) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, cancel := context.WithCancel(withCalls(ctx, &calls))
	defer cancel()
	g.mux.ServeHTTP(&writer{w, http.NewResponseController(w)}, r.WithContext(ctx))
}

func callerOf(ctx context.Context) identity.Peer {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			caller, _ := info.Identity()
			return caller
		}
	}
	return identity.Peer{}
}

// authInfo is an identity.Channel as credentials.AuthInfo.
type authInfo struct{ identity.Channel }

func (authInfo) AuthType() string { return "tls" }

// admit is the middleware of the mux. It runs after routing, and before the body is read.
func (g *Gateway) admit(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		err := g.options.Service.MayCall(ctx)
		cancel()
		if r.Method != http.MethodPost {
			r.Body = http.NoBody // the mux would read it to its end
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

// receive reads the body of a request within its bounds. done has to be called at the end of the request.
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

// read reads the body of a request into memory. It refuses forms, which a web page could send with the certificate of its reader.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != jsonType {
		return answer(http.StatusUnsupportedMediaType, codes.InvalidArgument, "content type %q is not read: send %s", r.Header.Get("Content-Type"), jsonType)
	}
	reading := http.NewResponseController(w)
	_ = reading.SetReadDeadline(time.Now().Add(timeout))
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

// answer returns an error with an HTTP status.
func answer(httpStatus int, code codes.Code, format string, args ...any) error {
	return &runtime.HTTPStatusError{HTTPStatus: httpStatus, Err: status.Errorf(code, format, args...)}
}

// writer bounds the time of each write of an answer.
type writer struct {
	http.ResponseWriter

	control *http.ResponseController
}

func (w *writer) Write(data []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(timeout))
	return w.ResponseWriter.Write(data)
}

// Unwrap lets a ResponseController find the original.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
