// Package remote is a webhook in another process, for a host that forwards calls to it: its address, the connections to it, whether
// it can be called, and how many calls it takes at a time.
//
// A [Webhook] has the connections to one listener; hooks that differ in the path share it. A [Governor] watches the calls, and tells
// the host how many to take: it is all that such a host knows of the capacity of its webhook.
package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// connectTimeout is how long a connection, and then its TLS handshake, may take: a webhook beside the host accepts at once.
	connectTimeout = 5 * time.Second
	// idleTimeout is how long a connection is kept without a call: client-go's.
	idleTimeout = 90 * time.Second
	// writeBufferBytes holds a usual review with its head.
	writeBufferBytes = 16 << 10
	// maxHeaderBytes is the largest head of an answer.
	maxHeaderBytes = 64 << 10
	// quotedBytes is the most of an answer to a readiness check that is quoted.
	quotedBytes = 256
)

// Options describe a webhook.
type Options struct {
	// Address is where it listens. Required.
	Address Address
	// TLS is the configuration for https; nil means the roots of the system. It is cloned.
	TLS *tls.Config
	// MaxConnections is how many connections are kept for the next burst. Required.
	MaxConnections int
}

// Webhook has the connections to a listener of webhooks. It is safe for concurrent use. Its owner calls CloseIdleConnections at the end.
type Webhook struct {
	address   Address
	transport *http.Transport
	dial      func(ctx context.Context) (net.Conn, error)
}

// New makes the connections of a webhook. It does no I/O.
func New(o Options) (*Webhook, error) {
	if o.MaxConnections <= 0 {
		return nil, errors.New("remote: Options.MaxConnections is not positive")
	}
	if o.Address.URL.Host == "" {
		return nil, errors.New("remote: Options.Address is empty")
	}
	network, address := o.Address.target()
	w := &Webhook{address: o.Address, dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, address)
	}}
	w.transport = &http.Transport{ // without a proxy: it is a neighbour
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return w.dial(ctx) },
		TLSHandshakeTimeout:    connectTimeout,
		MaxIdleConnsPerHost:    o.MaxConnections,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		WriteBufferSize:        writeBufferBytes,
		Protocols:              new(http.Protocols),
	}
	w.transport.Protocols.SetHTTP1(true)
	if o.Address.URL.Scheme == "https" {
		w.transport.TLSClientConfig = cmp.Or(o.TLS, &tls.Config{MinVersion: tls.VersionTLS12}).Clone()
		w.transport.TLSClientConfig.ServerName = cmp.Or(w.transport.TLSClientConfig.ServerName, o.Address.URL.Hostname())
	}
	return w, nil
}

// RoundTrip implements [http.RoundTripper].
func (w *Webhook) RoundTrip(r *http.Request) (*http.Response, error) { return w.transport.RoundTrip(r) }

var _ http.RoundTripper = (*Webhook)(nil)

// Connect returns an error unless the webhook takes a connection, with TLS if it is called so. ctx bounds it.
func (w *Webhook) Connect(ctx context.Context) error {
	conn, err := w.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", w.address, err)
	}
	defer conn.Close()
	if w.transport.TLSClientConfig == nil {
		return nil
	}
	secured := tls.Client(conn, w.transport.TLSClientConfig)
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", w.address, err)
	}
	return nil
}

// Get returns an error unless a GET of a path is answered with a status of success, as kubelet probes. ctx bounds it.
func (w *Webhook) Get(ctx context.Context, path string) error {
	at := url.URL{Scheme: w.address.URL.Scheme, Host: w.address.URL.Host, Path: path}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := w.transport.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("%s: %w", w.address, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, quotedBytes))
	if err != nil {
		return fmt.Errorf("%s: %w", w.address, err)
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answered HTTP %s: %q", w.address, answer.Status, body)
	}
	return nil
}

// CloseIdleConnections closes the connections that no call uses.
func (w *Webhook) CloseIdleConnections() { w.transport.CloseIdleConnections() }
