package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// defaultPort is the port of services and URLs without one.
const defaultPort = 443

// endpoint is the address of a webhook.
type endpoint struct {
	url     url.URL // without query
	service Service // zero for a webhook with a URL; without the cluster, which only the resolver needs
	address string  // the address to dial for a service; empty for a webhook with a URL
	ca      []byte  // PEM; empty means the system's roots
}

// locate finds the webhook that a clientConfig describes, as ClientManager of k8s.io/apiserver/pkg/util/webhook does:
// a service goes before a URL, and path.Join cleans the path.
func (c *Client) locate(ctx context.Context, cluster string, cc *admissionregistrationv1.WebhookClientConfig) (*endpoint, error) {
	if cc.Service != nil {
		return c.locateService(ctx, cluster, cc)
	}
	if cc.URL == nil || *cc.URL == "" {
		return nil, errors.New("the webhook has neither url nor service in its clientConfig")
	}
	u, err := url.Parse(*cc.URL)
	if err != nil {
		return nil, fmt.Errorf("the url in clientConfig: %w", withoutURL(err))
	}
	if u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the url in clientConfig is %q, want https://host[:port][/path]", u.Redacted())
	}
	if err := c.checkHost(u.Hostname()); err != nil {
		return nil, fmt.Errorf("the url in clientConfig: %w", err)
	}
	return &endpoint{url: url.URL{Scheme: u.Scheme, Host: u.Host, Path: path.Join("/", u.Path)}, ca: cc.CABundle}, nil
}

// withoutURL takes the URL out of an error of url.Parse: there may be a password in it.
func withoutURL(err error) error {
	var parsing *url.Error
	if errors.As(err, &parsing) {
		return parsing.Err
	}
	return err
}

func (c *Client) locateService(ctx context.Context, cluster string, cc *admissionregistrationv1.WebhookClientConfig) (*endpoint, error) {
	s := Service{Cluster: cluster, Namespace: cc.Service.Namespace, Name: cc.Service.Name, Port: defaultPort}
	if cc.Service.Port != nil && *cc.Service.Port != 0 {
		s.Port = *cc.Service.Port
	}
	address, err := c.options.Resolver.Resolve(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("resolving the service in clientConfig: %w", err)
	}
	s.Cluster = ""
	e := &endpoint{service: s, address: address, ca: cc.CABundle}
	e.url = url.URL{Scheme: "https", Host: net.JoinHostPort(s.Host(), strconv.Itoa(int(s.Port))), Path: "/"}
	if cc.Service.Path != nil {
		e.url.Path = path.Join("/", *cc.Service.Path)
	}
	return e, nil
}

// direct sends a request to the address of a service, under its name.
func (e *endpoint) direct(r *http.Request) {
	if e.address != "" {
		r.URL.Host = e.address
	}
}

func (e *endpoint) isService() bool { return e.service.Name != "" }

// hostPort names a webhook with a URL to an identity resolver.
func (e *endpoint) hostPort() string {
	return net.JoinHostPort(e.url.Hostname(), cmp.Or(e.url.Port(), strconv.Itoa(defaultPort)))
}

// takesHTTP2 reports whether HTTP/2 may be spoken: only to this machine. To others HTTP/1.1 is spoken, as by kube-apiserver,
// since all calls over one connection go to the same replica of a service (SEMANTICS C38).
func (e *endpoint) takesHTTP2() bool {
	if e.isService() {
		return false
	}
	if strings.EqualFold(e.url.Hostname(), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(e.url.Hostname())
	return err == nil && ip.IsLoopback()
}
