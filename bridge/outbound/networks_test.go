package outbound

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/review"
)

// nowhere are networks that no test has an address in: nothing is allowed.
func nowhere() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }

func TestAddressesOfThisMachineAndItsLinkAreRefusedUnlessTheOperatorNamesThem(t *testing.T) {
	own := func() ([]net.Addr, error) {
		return []net.Addr{
			&net.IPNet{IP: net.IPv4(10, 1, 2, 3), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.ParseIP("fd00::7"), Mask: net.CIDRMask(64, 128)},
		}, nil
	}
	mesh := func() []netip.Prefix {
		return []netip.Prefix{netip.MustParsePrefix("10.96.0.9/32"), netip.MustParsePrefix("fd01::9/128"), netip.MustParsePrefix("172.16.0.0/12")}
	}
	for address, want := range map[string]string{
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"126.255.255.255": "", "128.0.0.1": "", "::2": "",
		"169.254.169.254": "link-local", "169.254.0.1": "link-local", "::ffff:169.254.169.254": "link-local", "fe80::1": "link-local",
		"fe80::1%lo": "link-local", "febf::1": "link-local", "fec0::1": "", "169.253.255.255": "", "169.255.0.0": "",
		"0.0.0.0": "no address", "0.1.2.3": "no address", "::": "no address", "::ffff:0.0.0.0": "no address", "1.0.0.0": "",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast", "ff02::1": "multicast", "255.255.255.255": "multicast", "223.255.255.255": "",
		"10.1.2.3": "of this process", "::ffff:10.1.2.3": "of this process", "fd00::7": "of this process", "10.1.2.4": "", "fd00::8": "",
		"10.96.0.9": "of the mesh", "::ffff:10.96.0.9": "of the mesh", "10.96.0.10": "", "fd01::9": "of the mesh", "fd01::9%eth0": "of the mesh",
		"172.16.0.0": "of the mesh", "172.31.255.255": "of the mesh", "172.32.0.0": "", "172.15.255.255": "",
		"192.168.0.1": "", "100.64.0.1": "", "2001:db8::1": "",
		"fd00:ec2::254": "metadata", "fd00:ec2::253": "", "fd20:ce::254": "metadata", "100.100.100.200": "metadata", "100.100.100.201": "",
		"168.63.129.16": "metadata", "::ffff:168.63.129.16": "metadata", "192.0.0.192": "metadata",
		"64:ff9b::169.254.169.254": "link-local", "64:ff9b::127.0.0.1": "loopback", "64:ff9b::10.96.0.9": "of the mesh", "64:ff9b::192.168.0.1": "",
		"64:ff9b:1::169.254.169.254": "link-local", "64:ff9b:2::169.254.169.254": "", "64:ff9b::1:169.254.169.254": "",
		"2002:a9fe:a9fe::1": "link-local", "2002:7f00:1::": "loopback", "2002:c0a8:1::1": "",
	} {
		a := netip.MustParseAddr(address)
		c := newClient(t, Options{Networks: nowhere(), Refused: mesh, own: own})
		var refused *networkError
		if err := c.checkAddress(a); (want == "") != (err == nil) || err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		named := newClient(t, Options{Networks: []netip.Prefix{netip.PrefixFrom(a.Unmap().WithZone(""), a.Unmap().BitLen())}, Refused: mesh, own: own})
		if err := named.checkAddress(a); err != nil {
			t.Errorf("%s, which the operator has named: %v", address, err)
		}
	}
	if err := newClient(t, Options{Networks: nowhere(), own: func() ([]net.Addr, error) { return nil, errors.New("no netlink") }}).checkAddress(netip.MustParseAddr("10.0.0.1")); err == nil {
		t.Error("an address is allowed while those of this machine are unknown")
	}
}

// failed is the failure of a call; nil for none.
func failed(r review.Result) error {
	if r.Failure == nil {
		return nil
	}
	return r.Failure
}

// TestNoRoadLeadsToAnAddressThatIsRefused has a webhook on loopback that a name stands for: the address from DNS is checked, however it was
// found, and nothing is sent.
func TestNoRoadLeadsToAnAddressThatIsRefused(t *testing.T) {
	w := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was called", r.Method, r.URL) })
	_, port, err := net.SplitHostPort(w.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, Options{Networks: nowhere(), Resolver: resolverFunc(func(s Service) (string, error) {
		return net.JoinHostPort(s.Host(), "443"), nil // as ClusterDNS does, of which the next says localhost
	})})
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST", "localhost.", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1"} {
		address := "https://" + net.JoinHostPort(strings.Trim(host, "[]"), port)
		h := w.hook("/")
		h.ClientConfig.URL = &address
		_, err := c.Conversions("prod-1").CallConversion(t.Context(), &apiextensionsv1.WebhookClientConfig{URL: &address, CABundle: w.ca}, []byte("{}"))
		reached := c.Reach(t.Context(), "prod-1", &h.ClientConfig)
		for road, err := range map[string]error{"a hook": failed(ask(t, c, h)[0]), "a conversion": err, "a trial": reached} {
			if err == nil || host != "127.1" && !strings.Contains(err.Error(), "--webhook-network") && !strings.Contains(err.Error(), "no such host") {
				t.Errorf("%s at %s: %v", road, address, err)
			}
		}
	}
	if n := w.opened(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestAnAddressThatTheOperatorHasWrittenDownIsNotRefused(t *testing.T) {
	ca := authority(t)
	allow := allowing(t)
	w := serve(t, allow, presenting(t, ca, "hook.policies.svc", "hooks.example.com"))
	h := service(w.hook("/"), "policies", "hook")
	h.ClientConfig.CABundle = ca.CA().CertPEM
	at := w.Listener.Addr().String()
	named := newClient(t, Options{Networks: nowhere(), Resolver: Table{Addresses: map[Service]string{{Namespace: "policies", Name: "hook"}: at}}})
	want(t, ask(t, named, h), "allowed")

	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Host != "hooks.example.com:443" {
			t.Errorf("the proxy is asked for %s", r.Host)
		}
		rw.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	behind := newClient(t, Options{Networks: nowhere(), proxy: func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }})
	h = w.hook("/")
	hooks, metadata := "https://hooks.example.com", "https://169.254.169.254"
	h.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &hooks, CABundle: ca.CA().CertPEM}
	wantFailure(t, failed(ask(t, behind, h)[0]), review.FailureUnavailable, "Bad Gateway")
	h.ClientConfig.URL = &metadata
	wantFailure(t, failed(ask(t, behind, h)[0]), review.FailureUnavailable, "link-local")
}

// TestAnErrorQuotesNothingOfAnAnswer has a webhook at an address that its author chose answer with the page of another server.
func TestAnErrorQuotesNothingOfAnAnswer(t *testing.T) {
	const secret = "hunter2"
	page := func(status int, header http.Header) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			for name, values := range header {
				rw.Header()[name] = values
			}
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, secret)
		}
	}
	raw := func(answer string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"a page of an error":    page(http.StatusInternalServerError, nil),
		"a page":                page(http.StatusOK, http.Header{"Content-Type": {"text/html"}}),
		"a redirect":            page(http.StatusFound, http.Header{"Location": {"https://" + secret + ".example.com"}}),
		"a type":                page(http.StatusOK, http.Header{"Content-Type": {secret + "/;;"}}),
		"a time to wait":        page(http.StatusServiceUnavailable, http.Header{"Retry-After": {secret}}),
		"a reason":              raw("HTTP/1.1 500 " + secret + "\r\nContent-Length: 0\r\n\r\n"),
		"a greeting":            raw("220 " + secret + " ESMTP\r\n"),
		"a header that is none": raw("HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n"),
		"a length that is none": raw("HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n"),
		"a code that is none":   raw("HTTP/1.1 " + secret + " OK\r\n\r\n"),
	} {
		w := serve(t, handler)
		c := newClient(t, Options{})
		_, err := c.Conversions("prod-1").CallConversion(t.Context(), w.converter("/"), []byte("{}"))
		reached := c.Reach(t.Context(), "prod-1", &w.hook("/").ClientConfig)
		for road, err := range map[string]error{"a hook": failed(ask(t, c, w.hook("/"))[0]), "a conversion": err, "a trial": reached} {
			if err == nil && (road == "a trial" || road == "a conversion" && name == "a page") {
				continue // any answer will do, or is read by the caller
			}
			if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "hunt") {
				t.Errorf("%s, %s: %v", name, road, err)
			}
		}
	}
}
