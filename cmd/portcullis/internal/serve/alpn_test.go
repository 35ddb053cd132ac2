package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

// spoken is the protocol that the listener for API servers chooses of those that a client offers.
func spoken(t *testing.T, info readyInfo, offered ...string) (string, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(info.Bridge, "https://"),
		&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: offered})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.ConnectionState().NegotiatedProtocol, nil
}

func offersOnlyHTTP1(t *testing.T, info readyInfo) {
	t.Helper()
	if got, err := spoken(t, info, bridge.HTTP2, bridge.HTTP1); err != nil || got != bridge.HTTP1 {
		t.Errorf("%q is spoken, error %v", got, err)
	}
	if got, err := spoken(t, info, bridge.HTTP2); err == nil {
		t.Errorf("%q is spoken, and was not to be offered", got)
	}
}

func TestADispatcherOffersTheProtocolsOfItsFlag(t *testing.T) {
	info, _ := startStore(t, func(_ *dev, c *serveConfig) { c.alpn = alpnProtocols{bridge.HTTP1} })
	offersOnlyHTTP1(t, info)

	byDefault, _ := startStore(t, func(*dev, *serveConfig) {})
	for want, offered := range map[string][]string{bridge.HTTP1: {bridge.HTTP2, bridge.HTTP1}, bridge.HTTP2: {bridge.HTTP2}} {
		if got, err := spoken(t, byDefault, offered...); err != nil || got != want {
			t.Errorf("by default %q is spoken to a client of %q, error %v", got, offered, err)
		}
	}
}

func TestABridgeOffersTheProtocolsOfItsFlag(t *testing.T) {
	d := &dev{dir: t.TempDir()}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	files := tlsFiles{cert: d.path("certs/server.crt"), key: d.path("certs/server.key"), ca: d.path("certs/ca.crt")}
	c := bridgeConfig{
		cluster: "dev", dispatchers: []string{"127.0.0.1:1"}, mesh: files, tls: files, listen: "127.0.0.1:0", listenAdmin: "127.0.0.1:0",
		capabilities: clitest.Write(t, "capability", identity.NewCapability().Reveal()), noCluster: true, maxBody: bridge.DefaultMaxBodyBytes,
		alpn: alpnProtocols{bridge.HTTP1}, drainTimeout: long,
	}
	ctx, stop := context.WithCancel(t.Context())
	started, ended := make(chan readyInfo, 1), make(chan error, 1)
	go func() {
		ended <- runBridge(ctx, c, slog.New(slog.DiscardHandler), func(info readyInfo) error { started <- info; return nil })
	}()
	select {
	case info := <-started:
		offersOnlyHTTP1(t, info)
	case err := <-ended:
		t.Fatal(err)
	}
	stop()
	if err := within(t, "the end of the bridge", ended); err != nil {
		t.Error(err)
	}
}
