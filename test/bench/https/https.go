// Package https is the least that a call over HTTPS takes: a server on loopback for one handler, and a client that posts
// a review and looks for a permission in the answer without parsing it. Both speak HTTP/1.1, as API servers do to webhooks
// on other machines, and keep their connections. A client may speak HTTP/2, as API servers do to webhooks on localhost.
package https

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/portcullis-mesh/portcullis/test/bench/pki"
)

const (
	// maxIdle is how many connections a client keeps: more than there are callers at a time.
	maxIdle = 1024
	// headerTimeout bounds the reading of a request's headers.
	headerTimeout = 10 * time.Second
	// maxAnswerBytes bounds the answers that are read.
	maxAnswerBytes = 1 << 20
)

// Server serves one handler. Close ends it.
type Server struct {
	http   *http.Server
	url    string
	served chan error
}

// Serve starts a server of HTTP/1.1.
func Serve(ctx context.Context, keys *pki.PKI, handler http.Handler) (*Server, error) {
	return ServeProtocols(ctx, keys, handler, "http/1.1")
}

// ServeProtocols starts a server that offers protocols, as ALPN names them.
func ServeProtocols(ctx context.Context, keys *pki.PKI, handler http.Handler, protocols ...string) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("https: %w", err)
	}
	s := &Server{url: "https://" + listener.Addr().String(), served: make(chan error, 1)}
	s.http = &http.Server{
		Handler: handler, TLSConfig: keys.Server(protocols...), ReadHeaderTimeout: headerTimeout,
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // callers that are closed in mid-handshake
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	go func() { s.served <- s.http.ServeTLS(listener, "", "") }()
	return s, nil
}

// URL is where the server is, without a path.
func (s *Server) URL() string { return s.url }

// Close ends the server and its connections at once. A graceful end would wait for connections that clients opened and
// never used.
func (s *Server) Close() error {
	err := s.http.Close()
	if ended := <-s.served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// Client posts reviews. It may be used from any goroutine.
type Client struct {
	http *http.Client
}

// NewClient makes a client of HTTP/1.1 with a certificate of its own.
func NewClient(keys *pki.PKI) *Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return newClient(keys, &protocols)
}

// NewHTTP2Client makes a client that sends all reviews over one connection of HTTP/2.
func NewHTTP2Client(keys *pki.PKI) *Client {
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	return newClient(keys, &protocols)
}

func newClient(keys *pki.PKI, protocols *http.Protocols) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		TLSClientConfig: keys.Client(), MaxIdleConnsPerHost: maxIdle, Protocols: protocols,
	}}}
}

// Post sends a review; anything but a permission is an error.
func (c *Client) Post(ctx context.Context, url string, review []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(review))
	if err != nil {
		return fmt.Errorf("https: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("https: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("https: reading an answer: %w", err)
	}
	if response.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"allowed":true`)) {
		return fmt.Errorf("https: status %d is no permission: %s", response.StatusCode, answer)
	}
	return nil
}

// Close closes the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ReadAll reads the body of a request whose length is known, into memory of its size.
func ReadAll(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fmt.Errorf("https: reading a request: %w", err)
	}
	return body, nil
}
