package serve

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
)

// spoken is the protocol that the listener for API servers chooses of those that a client offers.
func spoken(t *testing.T, info listen.ReadyInfo, offered ...string) (string, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(info.Bridge, "https://"),
		&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: offered})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.ConnectionState().NegotiatedProtocol, nil
}

func offersOnlyHTTP1(t *testing.T, info listen.ReadyInfo) {
	t.Helper()
	if got, err := spoken(t, info, bridge.HTTP2, bridge.HTTP1); err != nil || got != bridge.HTTP1 {
		t.Errorf("%q is spoken, error %v", got, err)
	}
	if got, err := spoken(t, info, bridge.HTTP2); err == nil {
		t.Errorf("%q is spoken, and was not to be offered", got)
	}
}

func TestADispatcherOffersTheProtocolsOfItsFlag(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.alpn = listen.ALPN{bridge.HTTP1} })
	offersOnlyHTTP1(t, info)

	byDefault, _ := startStore(t, func(*dev, *serveConfig) {})
	for want, offered := range map[string][]string{bridge.HTTP1: {bridge.HTTP2, bridge.HTTP1}, bridge.HTTP2: {bridge.HTTP2}} {
		if got, err := spoken(t, byDefault, offered...); err != nil || got != want {
			t.Errorf("by default %q is spoken to a client of %q, error %v", got, offered, err)
		}
	}
}
