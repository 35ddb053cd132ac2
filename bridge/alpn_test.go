package bridge

import (
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"testing"

	k8sv1 "k8s.io/api/admission/v1"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

func TestOnlyTheGivenProtocolsAreOfferedByALPN(t *testing.T) {
	for _, test := range []struct {
		offered, known []string
		want           string // empty: the handshake fails
	}{
		{[]string{HTTP1}, []string{HTTP2, HTTP1}, HTTP1},
		{[]string{HTTP1}, []string{HTTP2}, ""},
		{DefaultALPN(), []string{HTTP2, HTTP1}, HTTP1},
		{DefaultALPN(), []string{HTTP2}, HTTP2},
		{[]string{HTTP2, HTTP1}, []string{HTTP1, HTTP2}, HTTP2},
		{[]string{HTTP2, HTTP1}, []string{HTTP1}, HTTP1},
	} {
		e := serveWith(t, newBridge(t, testOptions(allow)), tls.VerifyClientCertIfGiven, ServerOptions{TLS: &tls.Config{NextProtos: test.offered}})
		config := e.clientTLS(t, e.authority, "kube-apiserver")
		config.NextProtos = test.known
		conn, err := tls.Dial("tcp", e.addr, config)
		switch {
		case err != nil && test.want == "":
			if !strings.Contains(err.Error(), "no application protocol") {
				t.Errorf("%v offered to a client of %v: %v", test.offered, test.known, err)
			}
			continue
		case err != nil:
			t.Fatalf("%v offered to a client of %v: %v", test.offered, test.known, err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != test.want {
			t.Errorf("%v offered to a client of %v: %q is spoken, want %q", test.offered, test.known, got, test.want)
		}
		conn.Close()
	}
}

func TestAListenerWithoutHTTP1IsRefused(t *testing.T) {
	for want, protocols := range map[string][]string{
		"http/1.1 is missing: API servers":         {HTTP2},
		"http/1.1 is missing: API servers speak":   {},
		`"h3" is not a protocol of this listener`:  {HTTP1, "h3"},
		`"h1" is not a protocol of this listener:`: {"h1"},
		`"" is not a protocol`:                     {HTTP1, ""},
		"h2 is there twice":                        {HTTP2, HTTP1, HTTP2},
	} {
		if err := CheckALPN(protocols); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", protocols, err, want)
		}
	}
	for _, good := range [][]string{{HTTP1}, {HTTP1, HTTP2}, {HTTP2, HTTP1}} {
		if err := CheckALPN(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

// The client of kube-apiserver chooses the protocols that it offers by the address of the webhook.
func TestAnAPIServerSpeaksHTTP2ToALocalURLThatPrefersIt(t *testing.T) {
	for _, test := range []struct {
		name    string
		offered []string
		service bool
		want    string
	}{
		{"a URL on localhost, by default", DefaultALPN(), false, "HTTP/1.1"},
		{"a URL on localhost, HTTP/2 first", []string{HTTP2, HTTP1}, false, "HTTP/2.0"},
		{"a Service, HTTP/2 first", []string{HTTP2, HTTP1}, true, "HTTP/1.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := serveWith(t, newBridge(t, testOptions(allow)), tls.VerifyClientCertIfGiven, ServerOptions{TLS: &tls.Config{NextProtos: test.offered}})
			if got := protocolOf(t, e, test.service); got != test.want {
				t.Errorf("%s is spoken, want %s", got, test.want)
			}
		})
	}
}

// protocolOf is the protocol of kube-apiserver's webhook client with a bridge, as a URL or as a Service.
func protocolOf(t *testing.T, e *edge, service bool) string {
	t.Helper()
	clients, err := webhookutil.NewClientManager(nil, k8sv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	address := at{Host: e.addr}
	clients.SetAuthenticationInfoResolver(address)
	clients.SetServiceResolver(address)
	config := webhookutil.ClientConfig{Name: "portcullis", CABundle: e.authority.CA().CertPEM, URL: e.url(validatePath)}
	if service {
		config.URL, config.Service = "", &webhookutil.ClientConfigService{Name: "portcullis", Namespace: "mesh", Port: 443}
	}
	client, err := clients.HookClient(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Client.Get(client.Get().URL().String())
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	t.Cleanup(client.Client.CloseIdleConnections)
	return response.Proto
}

// at answers the questions of the webhook client with one address.
type at url.URL

func (a at) ResolveEndpoint(string, string, int32) (*url.URL, error) { u := url.URL(a); return &u, nil }

func (a at) ClientConfigFor(string) (*rest.Config, error) { return &rest.Config{}, nil }

func (a at) ClientConfigForService(string, string, int) (*rest.Config, error) {
	host, _, err := net.SplitHostPort(a.Host)
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{ServerName: host}}, err
}
