package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/build"
	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	// meshNamespace is the namespace of docs/install.md.
	meshNamespace = "portcullis-system"
	// serviceRange has the addresses of Services. They are addresses of this
	// machine, so that the mesh can listen on its own.
	serviceRange = "127.77.0.0/24"
	// forwardedPort is where the page finds the dispatchers' port for hosts.
	forwardedPort = "127.0.0.1:8444"
)

// installation is a cluster in which docs/install.md is followed. It has no
// controllers and no nodes: processes of this machine stand in for its Pods.
type installation struct {
	*guide
	cluster     *kube.Cluster
	tree        build.Tree
	dispatchers []mesh.Addresses
	pods        []*kube.RunningPod
}

// TestTheInstallPageLeadsToADeniedPod follows docs/install.md from an empty
// cluster to a denied Pod, and back to a cluster without Portcullis.
func TestTheInstallPageLeadsToADeniedPod(t *testing.T) {
	citest.Soak(t, "follows docs/install.md, with an API server of its own: 39 s")
	requireTools(t, "bash", "kubectl", "jq")
	requirePort443(t)
	i := newInstallation(t)

	applied := time.Now()
	i.run(t, "2. Render and apply the chart")
	i.run(t, "3. Make the certificates")
	i.runPods(t)
	i.runBlock(t, "3. Make the certificates", 1)
	t.Logf("from the chart to a mesh that is ready: %v", time.Since(applied).Round(time.Millisecond))
	i.runBlock(t, "4. Bring in a cluster", 1)
	i.run(t, "5. See a Pod denied")
	i.createAccount(t, "demo")
	eventually(t, "the entries take effect", func() error {
		if said, err := i.shell(t, "kubectl -n demo run web --image=nginx:1.29 --dry-run=server"); err == nil {
			return fmt.Errorf("the Pod is created: %s", said)
		}
		return nil
	})
	i.compare(t, "5. See a Pod denied", 1)
	i.compare(t, "5. See a Pod denied", 2)
	t.Logf("from the chart to a denied Pod: %v", time.Since(applied).Round(time.Millisecond))

	i.rotate(t)

	i.page(t, "install.md")
	i.run(t, "Uninstall")
	i.wantNothingLeft(t)
}

// rotate follows docs/certificates.md while Pods are created, each of which the
// hook has to see.
func (i *installation) rotate(t *testing.T) {
	t.Helper()
	i.page(t, "certificates.md")
	flow := newTraffic(t, func(ctx context.Context) error {
		_, err := i.cluster.Client().CoreV1().Pods("demo").
			Create(ctx, kube.Pod("demo", "web-2"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "images are named by digest here") {
			return fmt.Errorf("not denied by the hook: %w", err)
		}
		return nil
	})
	const renew, replace = "By hand: renew a certificate", "By hand: replace the authority"
	i.run(t, renew)
	i.refresh(t, "certs/server.crt")
	i.run(t, replace)
	i.refresh(t, "certs/server.crt")
	i.runBlock(t, replace, 1)
	flow.await(t)
	i.runBlock(t, replace, 2)
	i.refresh(t, "new/server.crt")
	flow.await(t)
	i.runBlock(t, replace, 3)
	i.refresh(t, "new/server.crt")
	flow.await(t)
	flow.wantNoFailure(t)
}

// refresh gives the Pods their new files, and returns when both listeners of
// all dispatchers show a certificate.
func (i *installation) refresh(t *testing.T, file string) {
	t.Helper()
	block, _ := pem.Decode(readFile(t, filepath.Join(i.dir, file)))
	if block == nil {
		t.Fatalf("%s is no certificate", file)
	}
	for _, pod := range i.pods {
		pod.Refresh(t)
	}
	for _, d := range i.dispatchers {
		for _, address := range []string{strings.TrimPrefix(d.Bridge, "https://"), d.Hosts} { // each listener reads the files by itself
			eventually(t, "the new certificate is shown", func() error { return shows(t.Context(), address, block.Bytes) })
		}
	}
}

// shows reports whether a listener shows a certificate.
func shows(ctx context.Context, address string, certificate []byte) error {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	shown, isTLS := conn.(*tls.Conn)
	if !isTLS || !bytes.Equal(shown.ConnectionState().PeerCertificates[0].Raw, certificate) {
		return fmt.Errorf("%s shows another one", address)
	}
	return nil
}

// page makes the examples of a page those that run.
func (i *installation) page(t *testing.T, name string) {
	t.Helper()
	i.read(t, name, strings.NewReplacer(forwardedPort, i.dispatchers[0].Hosts))
}

func requireTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			citest.Lacks(t, "there is no "+tool+" to follow the page with")
		}
	}
}

func requirePort443(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.77.0.254:443")
	if err != nil {
		citest.Lacks(t, fmt.Sprintf("nothing can stand in for a Service here: %v", err))
	}
	listener.Close()
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	own, err := kube.Start(t.Context(), kube.Options{Managed: true, APIServerArgs: []string{"--service-cluster-ip-range=" + serviceRange}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(own.Stop(), own.Remove()); err != nil {
			t.Error(err)
		}
	})
	tree, err := build.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{cluster: own, tree: tree, guide: &guide{dir: t.TempDir()}}
	for _, name := range []string{"deploy", "examples"} {
		link(t, filepath.Join(tree.Root, name), filepath.Join(i.dir, name))
	}
	render, err := tree.Render(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(i.dir, "bin")
	link(t, render, filepath.Join(bin, "helm"))
	link(t, portcullis, filepath.Join(bin, "portcullis"))
	kubeconfig := filepath.Join(i.dir, "admin.kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, own.Config()); err != nil {
		t.Fatal(err)
	}
	i.env = []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig, "HOME=" + i.dir}
	i.read(t, "install.md", strings.NewReplacer())
	return i
}

func link(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(from, to); err != nil {
		t.Fatal(err)
	}
}

// runPods runs the Pods of both Deployments, and the Service that leads to the
// dispatchers.
func (i *installation) runPods(t *testing.T) {
	t.Helper()
	dispatchers, host := i.deployment(t, "portcullis"), i.deployment(t, "portcullis-imagepolicy")
	var addresses, bridges []string
	for n := range *dispatchers.Spec.Replicas {
		d := i.runDispatcher(t, dispatchers, filepath.Join(i.dir, fmt.Sprintf("dispatcher-%d", n)))
		i.dispatchers = append(i.dispatchers, d)
		addresses, bridges = append(addresses, d.Hosts), append(bridges, strings.TrimPrefix(d.Bridge, "https://"))
	}
	program, err := i.tree.ImagePolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i.pods = append(i.pods, i.cluster.RunPod(t, host, kube.PodOptions{
		Program: program, Dir: filepath.Join(i.dir, "host"),
		Names: []string{"portcullis-hosts." + meshNamespace + ".svc:8444", strings.Join(addresses, ",")},
	}))
	for _, d := range i.dispatchers {
		eventually(t, "the dispatcher is ready", func() error { return isReady(t.Context(), d.Admin) })
	}
	for _, d := range []*appsv1.Deployment{dispatchers, host} {
		if err := i.cluster.RolledOut(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	i.serveService(t, bridges)
}

func (i *installation) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	d, err := i.cluster.Client().AppsV1().Deployments(meshNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (i *installation) runDispatcher(t *testing.T, d *appsv1.Deployment, dir string) (listens mesh.Addresses) {
	t.Helper()
	settings, readyFile := filepath.Join(dir, "settings.yaml"), filepath.Join(dir, "ready.json")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, settings, "ready-file: "+readyFile+"\n")
	i.pods = append(i.pods, i.cluster.RunPod(t, d, kube.PodOptions{
		Program: portcullis, Dir: dir, Env: []string{"PORTCULLIS_SETTINGS=" + settings},
		Names: []string{"=:8443", "=127.0.0.1:0", "=:8444", "=127.0.0.1:0", "=:8445", "=127.0.0.1:0", "--stop-delay=10s", "--stop-delay=0s"},
	}))
	eventually(t, "the dispatcher listens", func() error { return mesh.ReadReadyFile(readyFile, &listens) })
	return listens
}

func isReady(ctx context.Context, admin string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	request.Close = true // the tests look for connections that were left open
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reasons, err := io.ReadAll(response.Body)
		return errors.Join(fmt.Errorf("not ready: %s", reasons), err)
	}
	return nil
}

// serveService listens on the address that Kubernetes gave the Service, as
// kube-proxy makes it reachable, and tells the page where kubectl port-forward
// would lead.
func (i *installation) serveService(t *testing.T, bridges []string) {
	t.Helper()
	service, err := i.cluster.Client().CoreV1().Services(meshNamespace).Get(t.Context(), "portcullis", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i.env = append(i.env, "ADDRESS="+service.Spec.ClusterIP)
	forward(t, net.JoinHostPort(service.Spec.ClusterIP, fmt.Sprint(service.Spec.Ports[0].Port)), bridges)
	i.page(t, "install.md")
}

// forward leads the connections to an address to one target after the other,
// until the test ends.
func forward(t *testing.T, address string, targets []string) {
	t.Helper()
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var connections sync.WaitGroup
	connections.Go(func() {
		for n := 0; ; n++ {
			client, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			connections.Go(func() { join(ctx, client, targets[n%len(targets)]) })
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		connections.Wait()
	})
}

// join copies both ways between a connection and a new one to target, until
// either ends or ctx does.
func join(ctx context.Context, client net.Conn, target string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp4", target)
	if err != nil {
		return // the client sees its connection closed
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()
	ended := make(chan struct{}, 2)
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // an error ends the connection, which is all that is known to do
		ended <- struct{}{}
	}
	go pipe(client, server)
	go pipe(server, client)
	<-ended
	client.Close()
	server.Close()
	<-ended
}

// createAccount stands in for the service account controller.
func (i *installation) createAccount(t *testing.T, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := i.cluster.Client().CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// wantNothingLeft wants no object of Portcullis in the cluster, and Pods
// created without it.
func (i *installation) wantNothingLeft(t *testing.T) {
	t.Helper()
	const kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations,clusterroles,clusterrolebindings," +
		"deployments,services,configmaps,secrets,poddisruptionbudgets,networkpolicies"
	said, err := i.shell(t, "kubectl get -A -o name "+kinds+" | grep -i -e portcullis -e imagepolicy || true")
	if err != nil || said != "" {
		t.Errorf("left in the cluster: %s (error %v)", said, err)
	}
	eventually(t, "Pods are created without hooks", func() error {
		said, err := i.shell(t, "kubectl -n default get serviceaccount default || kubectl -n default create serviceaccount default; "+
			"kubectl -n default run web --image=nginx:1.29 --dry-run=server")
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
}
