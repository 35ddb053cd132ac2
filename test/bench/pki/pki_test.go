package pki_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/portcullis-mesh/portcullis/test/bench/pki"
)

func TestAClientInAnotherProcessIsTheSameClient(t *testing.T) {
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := keys.Files().TLS()
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*tls.Config{"here": keys.Client(), "elsewhere": elsewhere} {
		config.ServerName = "127.0.0.1"
		ours, theirs := net.Pipe()
		server := tls.Server(theirs, keys.Server())
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		client := tls.Client(ours, config)
		if err := client.Handshake(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if peers := server.ConnectionState().PeerCertificates; len(peers) == 0 {
			t.Errorf("%s: no certificate of the client", name)
		}
		ours.Close()
		theirs.Close()
	}
}

func TestFilesThatAreNoneAreErrors(t *testing.T) {
	keys, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(c *pki.Client){
		"no authority": func(c *pki.Client) { c.Authority = nil },
		"no key":       func(c *pki.Client) { c.Key = nil },
	} {
		files := keys.Files()
		spoil(&files)
		if _, err := files.TLS(); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}
