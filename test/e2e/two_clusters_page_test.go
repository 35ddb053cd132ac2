package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// TestThePageAboutTwoClustersLeadsToADenialInBoth follows docs/two-clusters.md.
func TestThePageAboutTwoClustersLeadsToADenialInBoth(t *testing.T) {
	citest.Soak(t, "follows docs/two-clusters.md with kubectl and two API servers: 40 s")
	requireTools(t, "bash", "kubectl")
	g := &guide{dir: t.TempDir()}
	webhook := freeAddress(t)
	g.env = []string{
		"PATH=" + filepath.Dir(portcullis) + string(os.PathListSeparator) + os.Getenv("PATH"), "PORTCULLIS_STOP_DELAY=0s",
		"KUBECONFIG=" + twoContexts(t, g.dir, "prod-1", "prod-2"),
	}
	g.read(t, "two-clusters.md", strings.NewReplacer("127.0.0.1:8443", freeAddress(t), "127.0.0.1:8444", freeAddress(t),
		"127.0.0.1:8445", freeAddress(t), "127.0.0.1:9443", webhook))

	g.run(t, "1. Certificates")
	serveAt(t, webhook, filepath.Join(g.dir, "certs", "webhook"))
	g.serve(t, "2. The mesh and a host", 0)
	g.start(t, "2. The mesh and a host", 1)
	eventually(t, "the host is connected", func() error {
		said, err := g.shell(t, "portcullis get hosts --settings settings.yaml")
		if err != nil || !strings.Contains(said, "imagepolicy") {
			return fmt.Errorf("%s: %w", said, err)
		}
		return nil
	})
	g.run(t, "3. The hooks")
	g.run(t, "4. The clusters")
	for _, context := range []string{"prod-1", "prod-2"} { // no controller makes it here
		if said, err := g.shell(t, "kubectl --context "+context+" -n demo create serviceaccount default"); err != nil {
			t.Fatal(said)
		}
		for _, write := range []string{"run web --image=nginx:1.29", "create configmap web"} {
			eventually(t, "it is denied in "+context, func() error {
				if said, err := g.shell(t, "kubectl --context "+context+" -n demo "+write+" --dry-run=server"); err == nil || !strings.Contains(said, "not by digest") {
					return errors.New(said)
				}
				return nil
			})
		}
	}
	g.compare(t, "5. A denial in both", 0)
	g.compare(t, "5. A denial in both", 1)
	g.run(t, "6. Look at all of it")
	g.run(t, "Back")
}

// twoContexts starts an API server for each context, and returns the name of
// their kubeconfig.
func twoContexts(t *testing.T, dir string, contexts ...string) string {
	t.Helper()
	all := clientcmdapi.NewConfig()
	for _, name := range contexts {
		own, err := kube.Start(t.Context(), kube.Options{Managed: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(own.Stop(), own.Remove()); err != nil {
				t.Error(err)
			}
		})
		own.IssueTokens(t)
		file := filepath.Join(dir, name+".admin")
		if err := kube.WriteKubeconfig(file, own.Config()); err != nil {
			t.Fatal(err)
		}
		one, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		current := one.Contexts[one.CurrentContext]
		all.Clusters[name], all.AuthInfos[name] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*all, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// serveAt serves the webhook of the guides at an address, by the certificate
// of a page.
func serveAt(t *testing.T, address, pair string) {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(pair+".crt", pair+".key")
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(imagePolicy), ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// start runs a command of a page until the test ends.
func (g *guide) start(t *testing.T, heading string, i int) {
	t.Helper()
	started, err := process.Start(process.Command{
		Path: "bash", Args: []string{"-c", `cd "$0" && exec ` + g.step(t, heading, i).text, g.dir},
		Env: g.env, LogFile: filepath.Join(g.dir, "host.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(0); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(started.Tail(50))
		}
	})
}
