package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	// writeBufferBytes holds a usual review with its head.
	writeBufferBytes = 16 << 10
	// The health check of HTTP/2 connections: apimachinery's.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// targetTransport sends requests to one target.
type targetTransport struct {
	http.RoundTripper
	closeIdle func() // closes the connections without a request
	renew     bool   // the client certificate came from files
}

// open makes the transport of a target as ClientManager of k8s.io/apiserver/pkg/util/webhook and the transports of client-go
// make it: CA bundle, server name, protocol, credentials and proxy.
func (c *Client) open(e *endpoint) (*targetTransport, error) {
	proxy, err := c.proxy(e)
	if err != nil {
		return nil, err
	}
	cfg, err := c.config(e)
	if err != nil {
		return nil, err
	}
	cfg.Dial = c.dialer(e, proxy != nil)
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t := &http.Transport{
		Proxy:                  http.ProxyURL(proxy),
		OnProxyConnectResponse: refusedConnect,
		DialContext:            tc.DialHolder.Dial,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    tlsHandshakeTimeout,
		MaxIdleConnsPerHost:    c.options.limits.targetCalls, // A burst leaves its connections to the next one.
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeaderBytes,
		WriteBufferSize:        writeBufferBytes,
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(e.takesHTTP2())
	wrapped, err := transport.HTTPWrappersForConfig(tc, &proxied{t})
	if err != nil {
		return nil, err
	}
	return &targetTransport{RoundTripper: wrapped, closeIdle: t.CloseIdleConnections, renew: tc.TLS.ReloadTLSFiles}, nil
}

// config is the identity and the CA bundle of a target: hookClientConfig of k8s.io/apiserver/pkg/util/webhook.
func (c *Client) config(e *endpoint) (*rest.Config, error) {
	found, err := c.identity(e)
	if err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(found)
	cfg.UserAgent = "" // The request has it.
	if !e.takesHTTP2() {
		cfg.NextProtos = []string{"http/1.1"}
	}
	if e.isService() && cfg.ServerName == "" {
		cfg.ServerName = e.service.Host()
	}
	if len(cfg.CAData) > 0 {
		cfg.CAData = append(cfg.CAData, '\n')
	}
	if len(e.ca) > 0 && !x509.NewCertPool().AppendCertsFromPEM(e.ca) {
		return nil, errors.New("the caBundle of the hook holds no certificate: it is the PEM of CA certificates")
	}
	cfg.CAData = append(cfg.CAData, e.ca...)
	return cfg, nil
}

func (c *Client) identity(e *endpoint) (*rest.Config, error) {
	if e.isService() {
		return c.options.Identities.ClientConfigForService(e.service.Name, e.service.Namespace, int(e.service.Port))
	}
	return c.options.Identities.ClientConfigFor(e.hostPort())
}

// proxy is the proxy for the address that is dialled; nil for a service for whose name or address there is none.
func (c *Client) proxy(e *endpoint) (*url.URL, error) {
	at := e.url
	found, err := c.options.proxy(&http.Request{URL: &at})
	if found == nil || err != nil || e.address == "" {
		return found, err
	}
	at.Host = e.address
	return c.options.proxy(&http.Request{URL: &at})
}

// refusedConnect is the error of a proxy that does not connect.
func refusedConnect(_ context.Context, _ *url.URL, connect *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("it answered CONNECT %s with HTTP %s", connect.Host, answer.Status)
}

// proxied names the proxy in errors.
type proxied struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (p *proxied) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := p.Transport.RoundTrip(r)
	if err != nil {
		if through, _ := p.Proxy(r); through != nil {
			err = fmt.Errorf("through the proxy %s: %w", through.Redacted(), err)
		}
	}
	return answer, err
}

// dialer dials a webhook, or its proxy. The addresses of a proxy are the operator's own, as are those that were written down for a service.
func (c *Client) dialer(e *endpoint, proxied bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	address, service := e.address, e.service
	dialer := net.Dialer{Timeout: connectTimeout, KeepAlive: keepAlive}
	if writtenDown := address != "" && address != e.url.Host; !proxied && !writtenDown {
		dialer.ControlContext = c.checkDial
	}
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		inner, err := c.dial(ctx, &dialer, network, to)
		if err == nil {
			c.metrics.opened.Inc()
		}
		var unknown *net.DNSError
		if to == address && errors.As(err, &unknown) && unknown.IsNotFound {
			err = fmt.Errorf("%w: DNS here does not know the service %s/%s: write its address down",
				err, service.Namespace, service.Name)
		}
		return inner, err
	}
}

// dial tracks the connection, and the attempt to open it: net/http goes on with an attempt when the call that wanted it is over.
func (c *Client) dial(ctx context.Context, dialer *net.Dialer, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attempt := &dialAttempt{cancel}
	if !c.connections.add(attempt) {
		return nil, errClosed
	}
	defer c.connections.remove(attempt)
	inner, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	tracked := &conn{inner, c.connections}
	if !c.connections.add(tracked) {
		_ = inner.Close()
		return nil, errClosed
	}
	return tracked, nil
}

type dialAttempt struct{ cancel context.CancelFunc }

// abort implements aborter.
func (a *dialAttempt) abort() { a.cancel() }

// conn is a tracked connection.
type conn struct {
	net.Conn
	connections *tracker
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.connections.remove(c)
	return c.Conn.Close()
}

// abort implements aborter. net/http closes the connection when it finds it broken.
func (c *conn) abort() { _ = c.Conn.Close() }
