package remote

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unixHost is the host in the requests that go to a socket.
const unixHost = "localhost"

// Address is where a webhook listens.
type Address struct {
	// URL is the URL of the requests: http or https, without query and user.
	URL url.URL
	// Socket is the file of the unix socket to dial; empty means the host and port of URL.
	Socket string
}

// ParseAddress reads http://HOST:PORT/PATH, https://HOST:PORT/PATH or unix:///FILE:/PATH. Without TLS a webhook has to be on this
// machine: reviews have Secrets in them.
func ParseAddress(text string) (Address, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return Address{}, fmt.Errorf("%q has bytes that no address has", text)
	}
	if file, ok := strings.CutPrefix(text, "unix://"); ok {
		return parseSocket(file)
	}
	u, err := url.Parse(text)
	if err != nil {
		return Address{}, fmt.Errorf("want http://HOST:PORT/PATH, https://HOST:PORT/PATH or unix:///FILE:/PATH: %w", withoutURL(err))
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return Address{}, fmt.Errorf("%q: want http://HOST:PORT/PATH, https://HOST:PORT/PATH or unix:///FILE:/PATH", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return Address{}, fmt.Errorf("%q: a webhook has no user, no query and no fragment in its URL", u.Redacted())
	case u.Scheme == "http" && !isLocal(u.Hostname()):
		return Address{}, fmt.Errorf("%q: reviews leave this machine over https only: they have Secrets in them", u.Redacted())
	}
	return Address{URL: url.URL{Scheme: u.Scheme, Host: u.Host, Path: path.Join("/", u.Path)}}, nil
}

func parseSocket(text string) (Address, error) {
	file, at, _ := strings.Cut(text, ":")
	switch {
	case !strings.HasPrefix(file, "/"):
		return Address{}, fmt.Errorf("unix://%s: want unix:///FILE:/PATH, the socket's path from the root and the path of the URL", text)
	case strings.ContainsAny(at, "?#"):
		return Address{}, fmt.Errorf("unix://%s: a webhook has no query and no fragment in its URL", text)
	case at != "" && !strings.HasPrefix(at, "/"):
		return Address{}, fmt.Errorf("unix://%s: %q is no path of a URL: begin it with a slash", text, at)
	}
	return Address{URL: url.URL{Scheme: "http", Host: unixHost, Path: path.Join("/", at)}, Socket: file}, nil
}

// withoutURL takes the URL out of an error of url.Parse: there may be a password in it.
func withoutURL(err error) error {
	var parsing *url.Error
	if errors.As(err, &parsing) {
		return parsing.Err
	}
	return err
}

// isLocal reports whether a host is this machine. The name localhost is, whatever a resolver makes of it (RFC 6761).
func isLocal(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// IsLocal reports whether the webhook is on this machine.
func (a Address) IsLocal() bool { return a.Socket != "" || isLocal(a.URL.Hostname()) }

// String is the address as ParseAddress reads it.
func (a Address) String() string {
	if a.Socket != "" {
		return "unix://" + a.Socket + ":" + a.URL.Path
	}
	return a.URL.String()
}

// target is the address to dial.
func (a Address) target() (network, address string) {
	if a.Socket != "" {
		return "unix", a.Socket
	}
	port := a.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[a.URL.Scheme]
	}
	return "tcp", net.JoinHostPort(a.URL.Hostname(), port)
}
