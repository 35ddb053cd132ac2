package lonebridge

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portcullis-mesh/portcullis/bridge"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/listen"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/identity"
)

func TestTheFlagsOfABridge(t *testing.T) {
	complete := []string{
		"--cluster=c", "--dispatcher=mesh:8444", "--mesh-cert=a", "--mesh-key=b", "--mesh-ca=c", "--tls-cert=d", "--tls-key=e",
	}
	known := clitest.Write(t, "capability", identity.NewCapability().Reveal()+"\n")
	for want, args := range map[string][]string{
		"bridge needs --cluster, --dispatcher, --mesh-cert, --mesh-key, --mesh-ca, --tls-cert, --tls-key, --caller with --tls-ca, or --capability-file": nil,
		"bridge needs --caller with --tls-ca, or --capability-file;":                                                                                    append([]string{"--caller=kube-apiserver"}, complete...),
		"give dispatchers access to the cluster, or not":                                                                                                append([]string{"--capability-file=" + known, "--no-cluster-api", "--kubeconfig=k"}, complete...),
		"33 addresses; give at most 32":                                                                                                                 append([]string{"--capability-file=" + known, "--dispatcher=" + strings.Repeat("a:1,", 31) + "a:1"}, complete...),
		"--alpn-protocols: http/1.1 is missing":                                                                                                         append([]string{"--capability-file=" + known, "--alpn-protocols=h2"}, complete...),
		"has no capability":                                                                                                                             append([]string{"--capability-file=" + clitest.Write(t, "weak", "secret")}, complete...),
		"--capability-file: open ":                                                                                                                      append([]string{"--capability-file=/does/not/exist"}, complete...),
		"spec.capabilities: Too many":                                                                                                                   append([]string{"--capability-file=" + clitest.Write(t, "many", fiveCapabilities())}, complete...),
		"metadata.name":                                                                                                                                 append([]string{"--capability-file=" + known}, append(complete[1:], "--cluster=A B")...),
	} {
		clitest.Execute(t, NewCommand(), nil, args...).Fails(t, want)
	}
}

func fiveCapabilities() string {
	var text strings.Builder
	for range 5 {
		text.WriteString(identity.NewCapability().Reveal() + "\n")
	}
	return text.String()
}

func TestABridgeKnowsItsCallersAsADispatcherDoes(t *testing.T) {
	shown := identity.NewCapability()
	c := config{cluster: "prod-1", callers: []string{"kube-apiserver"}, capabilities: clitest.Write(t, "capability", "# as it is printed\n"+shown.Reveal()+"\n\n# and this\ncapabilities:\n- name: a\n")}
	d, err := c.document()
	if err != nil {
		t.Fatal(err)
	}
	if d.Metadata.Name != "prod-1" || len(d.Spec.Identities) != 1 || d.Spec.Capabilities[0].Sum() != shown.Sum() {
		t.Errorf("the document is %+v", d)
	}
}

func TestABridgeOffersTheProtocolsOfItsFlag(t *testing.T) {
	dir := t.TempDir()
	ca, err := certs.NewAuthority("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ca.Issue(certs.Spec{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	files := listen.TLSFiles{Cert: filepath.Join(dir, "server.crt"), Key: filepath.Join(dir, "server.key"), CA: filepath.Join(dir, "ca.crt")}
	if err := errors.Join(server.Write(files.Cert, files.Key), ca.CA().Write(files.CA, filepath.Join(dir, "ca.key"))); err != nil {
		t.Fatal(err)
	}
	c := config{
		cluster: "dev", dispatchers: []string{"127.0.0.1:1"}, mesh: files, tls: files, listen: "127.0.0.1:0", listenAdmin: "127.0.0.1:0",
		capabilities: clitest.Write(t, "capability", identity.NewCapability().Reveal()), noCluster: true, maxBody: bridge.DefaultMaxBodyBytes,
		alpn: listen.ALPN{bridge.HTTP1}, drainTimeout: time.Minute,
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	started, ended := make(chan listen.ReadyInfo, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, c, slog.New(slog.DiscardHandler), func(info listen.ReadyInfo) error { started <- info; return nil })
	}()
	select {
	case info := <-started:
		for _, offered := range [][]string{{bridge.HTTP2, bridge.HTTP1}, {bridge.HTTP2}} {
			conn, err := tls.Dial("tcp", strings.TrimPrefix(info.Bridge, "https://"),
				&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: offered})
			if spoken := len(offered) == 2; spoken != (err == nil) || spoken && conn.ConnectionState().NegotiatedProtocol != bridge.HTTP1 {
				t.Errorf("to a client of %q: %v", offered, err)
			}
			if err == nil {
				conn.Close()
			}
		}
	case err := <-ended:
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
