package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"
)

func certificate(t *testing.T, commonName string, uris ...string) *x509.Certificate {
	t.Helper()
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: commonName}}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		cert.URIs = append(cert.URIs, uri)
	}
	return cert
}

func TestOf(t *testing.T) {
	tests := map[string]struct {
		cert *x509.Certificate
		want string
	}{
		"A URI name wins over the common name.":          {certificate(t, "kube-apiserver", "spiffe://mesh/hook"), "spiffe://mesh/hook"},
		"The first of several URI names counts.":         {certificate(t, "", "spiffe://mesh/a", "spiffe://mesh/b"), "spiffe://mesh/a"},
		"Without a URI name it is the common name.":      {certificate(t, "kube-apiserver"), "kube-apiserver"},
		"A common name cannot pass for a URI name.":      {certificate(t, "spiffe://mesh/hook"), ""},
		"A certificate without names has no identity.":   {certificate(t, ""), ""},
		"No certificate has no identity.":                {nil, ""},
		"A DNS name is no identity: it names a machine.": {&x509.Certificate{DNSNames: []string{"host"}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Of(test.cert); got != test.want {
				t.Errorf("Of() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestFromTLS(t *testing.T) {
	leaf := certificate(t, "kube-apiserver")
	tests := map[string]struct {
		state *tls.ConnectionState
		want  string
	}{
		"A verified chain gives the identity of its leaf.": {
			&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, certificate(t, "ca")}}}, "kube-apiserver",
		},
		"A certificate that was only presented gives none.": {
			&tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}, "",
		},
		"A verified certificate without names gives none.": {
			&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate(t, "")}}}, "",
		},
		"An empty chain gives none.":  {&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}, ""},
		"A plain connection has none": {nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := FromTLS(test.state)
			if got.Name() != test.want || ok != (test.want != "") {
				t.Errorf("FromTLS() = %q, %t, want %q", got.Name(), ok, test.want)
			}
			if _, err := got.Identity(); (err == nil) != ok {
				t.Errorf("Identity() = %v", err)
			}
		})
	}
}
