package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// The Secrets of dispatchers, of a host, and of a bridge at dispatchers.
const (
	dispatcherSecret = "portcullis-tls"
	hostSecret       = "policies-tls"
	bridgeSecret     = "bridge-tls"
)

// kept are certificates that the CronJob of the chart keeps, in a namespace of
// its own, with the rights that the chart gives it. Directories of this
// machine stand in for the volumes of Pods.
type kept struct {
	name       string // of the release and of the entries
	namespace  string
	kubeconfig string
	args       []string // of the CronJob
	dir        string
	written    int
}

func newKept(t *testing.T) *kept {
	t.Helper()
	k := &kept{name: strings.ToLower("kept-" + rand.Text()), namespace: cluster.Namespace(t, nil), dir: t.TempDir()}
	objects := newChart(t, "portcullis").render(t, k.namespace, "fullnameOverride="+k.name, "certificates.self.enabled=true", "certificates.self.entries="+k.name,
		"certificates.self.dnsNames={"+mesh.Names()[0]+"}",
		"certificates.self.ipAddresses={"+strings.Join(mesh.Names()[1:], ",")+"}",
		"certificates.self.clients[0].secretName="+hostSecret, "certificates.self.clients[0].identity="+hostName,
		"certificates.self.clients[1].secretName="+bridgeSecret, "certificates.self.clients[1].identity="+bridgeName)
	account := ""
	for _, o := range objects {
		switch kind := o.GetKind(); {
		case kind == "CronJob":
			pod := as[batchv1.CronJob](t, o).Spec.JobTemplate.Spec.Template.Spec
			k.args, account = pod.Containers[0].Args, pod.ServiceAccountName
		case strings.Contains(kind, "Role") && strings.HasSuffix(o.GetName(), "-certificates"):
			document, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			cluster.Apply(t, string(document))
		}
	}
	k.kubeconfig = filepath.Join(k.dir, "kubeconfig")
	if err := kube.WriteKubeconfig(k.kubeconfig, cluster.Account(t, k.namespace, account)); err != nil {
		t.Fatal(err)
	}
	return k
}

// authority is the name of the authority's Secret.
func (k *kept) authority() string { return k.name + "-ca" }

// run runs the Pod of the CronJob once, and wants these lines in its output.
func (k *kept) run(t *testing.T, want ...string) {
	t.Helper()
	said, err := k.try(t)
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, text := range want {
		if !strings.Contains(said, text) {
			t.Fatalf("it does not say %q:\n%s", text, said)
		}
	}
	for _, name := range []string{k.authority(), dispatcherSecret, hostSecret, bridgeSecret} {
		k.project(t, name)
	}
}

func (k *kept) try(t *testing.T, more ...string) (string, error) {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), portcullis, slices.Concat(k.args, []string{"--kubeconfig=" + k.kubeconfig}, more)...).CombinedOutput()
	return string(said), err
}

// project brings a Secret to its directory, all files in one step, as the
// kubelet does.
func (k *kept) project(t *testing.T, name string) {
	t.Helper()
	k.written++
	version := fmt.Sprintf("%s.%d", name, k.written)
	if err := os.Mkdir(filepath.Join(k.dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, data := range k.secret(t, name).Data {
		writeFile(t, filepath.Join(k.dir, version, file), string(data))
	}
	next := filepath.Join(k.dir, "next")
	if err := errors.Join(os.Symlink(version, next), os.Rename(next, k.path(name))); err != nil {
		t.Fatal(err)
	}
}

func (k *kept) path(elements ...string) string {
	return filepath.Join(append([]string{k.dir}, elements...)...)
}

func (k *kept) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := cluster.Client().CoreV1().Secrets(k.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// set writes a key of a Secret as an operator would; empty removes it.
func (k *kept) set(t *testing.T, name, key, value string) {
	t.Helper()
	secret := k.secret(t, name)
	secret.Data[key] = []byte(value)
	if value == "" {
		delete(secret.Data, key)
	}
	if _, err := cluster.Client().CoreV1().Secrets(k.namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// passOverlap has the overlap be over.
func (k *kept) passOverlap(t *testing.T) {
	t.Helper()
	k.set(t, k.authority(), "settled", time.Now().Add(-365*24*time.Hour).UTC().Format(time.RFC3339))
}

// served is an error unless new connections to a listener meet the certificate
// of the Secret, and are asked for a certificate of its authorities.
func (k *kept) served(t *testing.T, address string, asks bool) error {
	t.Helper()
	var asked [][]byte
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true,
		GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = info.AcceptableCAs
			return &tls.Certificate{}, nil
		},
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "https://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	secret := k.secret(t, dispatcherSecret)
	want, _ := pem.Decode(secret.Data[keep.CertKey])
	if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]; !bytes.Equal(got.Raw, want.Bytes) {
		return errors.New("the certificate is another one")
	}
	bundle, err := certs.ParseBundle(secret.Data[keep.BundleKey])
	if err != nil {
		return err
	}
	var subjects [][]byte
	for _, authority := range bundle {
		subjects = append(subjects, authority.RawSubject)
	}
	if asks && !slices.EqualFunc(asked, subjects, bytes.Equal) {
		return fmt.Errorf("it asks for certificates of %d authorities, want %d", len(asked), len(subjects))
	}
	return nil
}

// keptRoad is a road whose certificates are kept, with two dispatchers, two
// replicas of a host, and Pods that are created.
type keptRoad struct {
	*road
	*kept
	dispatchers []*mesh.Dispatcher
	admin       string // kubeconfig of the entries' writer
	flow        *traffic
	names       atomic.Int64
	seen        sync.Map // names of Pods that the hook has seen
	created     sync.Map // names of Pods that were created
}

const rotatedHook = "rotated.example.com"

func newKeptRoad(t *testing.T) *keptRoad {
	t.Helper()
	r := newKeptMesh(t, clusterDocument(t))
	balancer := mesh.Balance(t, mesh.BridgePort, r.dispatchers...)
	eventually(t, "the balancer knows who is ready", func() error { return balancer.Uses(r.dispatchers...) })
	r.bridge = "https://" + balancer.Address
	r.begin(t)
	return r
}

// newKeptMesh is a keptRoad without entries, for the document of a cluster.
func newKeptMesh(t *testing.T, document string) *keptRoad {
	t.Helper()
	r := &keptRoad{kept: newKept(t)}
	r.kept.run(t, "-ca: made an authority", "portcullis-tls: issued a certificate", "policies-tls: issued a certificate")
	m := newMesh(t, mesh.Options{
		Certificates: r.kept.path(dispatcherSecret),
		// As in the chart, a dispatcher stays ready while hosts dial again.
		Args: []string{"--ready-timeout=1s"}, Documents: []string{document},
	}, kube.Validating("rotated", onPods(rotatedHook)))
	r.road = newRoadOn(t, m, m.Serve(t))
	hook := onPods(rotatedHook)
	hook.NamespaceSelector = kube.InNamespace(r.road.namespace)
	r.Configure(t, "initial", append(documents(t, kube.Validating("rotated", hook)), document)...)
	r.road.name = r.kept.name
	r.dispatchers = []*mesh.Dispatcher{r.dispatcher, r.Serve(t)}
	for range 2 {
		r.runHost(t)
	}
	return r
}

// begin writes the entries, and has Pods created.
func (r *keptRoad) begin(t *testing.T) {
	t.Helper()
	r.admin = filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(r.admin, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.deleteEntries(t) })
	r.register(t)
	eventually(t, "the entries are in force", func() error {
		if err := r.create(t.Context()); err != nil {
			return err
		}
		if _, ok := r.seen.Load(fmt.Sprint("pod-", r.names.Load())); !ok {
			return errors.New("the hook has not seen it")
		}
		return nil
	})
	r.created.Clear() // those from before the entries
	r.flow = newTraffic(t, r.create)
}

// runHost runs a replica of the host, with the files of its Secret.
func (r *keptRoad) runHost(t *testing.T) {
	t.Helper()
	host, err := hostsdk.New(hostsdk.Options{
		Name: hostName, Dispatchers: []string{r.dispatchers[0].Hosts, r.dispatchers[1].Hosts}, Logger: slog.New(slog.DiscardHandler),
		TLS: hostsdk.TLSFiles(r.path(hostSecret, keep.CertKey), r.path(hostSecret, keep.KeyKey), r.path(hostSecret, keep.BundleKey)),
	}, hostsdk.Validate(rotatedHook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		r.seen.Store(q.Name(), true)
		return hostsdk.Allow(), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the host: %v", err)
		}
	})
	select {
	case <-host.Ready():
	case <-time.After(patience):
		t.Fatalf("the host is not ready: %+v", host.Status())
	}
}

// register brings the authorities of the Secret into the entries.
func (r *keptRoad) register(t *testing.T) {
	t.Helper()
	code, out := r.command(t, "register", clusterName, "--name="+r.kept.name, "--config="+r.ConfigDir(), "--url="+r.bridge,
		"--ca="+r.path(r.authority(), keep.BundleKey), "--kubeconfig="+r.admin, "--apply")
	r.expect(t, code, 0, out, "validatingwebhookconfiguration/"+r.kept.name)
	cluster.SettleValidating(t)
}

// create creates a Pod, dry, under a name of its own.
func (r *keptRoad) create(ctx context.Context) error {
	name := fmt.Sprint("pod-", r.names.Add(1))
	_, err := cluster.Client().CoreV1().Pods(r.road.namespace).
		Create(ctx, kube.Pod(r.road.namespace, name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		r.created.Store(name, true)
	}
	return err
}

// taken returns when all listeners of the dispatchers serve the certificate of
// the Secret, and Pods have been created since.
func (r *keptRoad) taken(t *testing.T) {
	t.Helper()
	for _, d := range r.dispatchers {
		eventually(t, "the dispatchers have the new files", func() error {
			return errors.Join(r.served(t, d.Bridge, false), r.served(t, d.Hosts, true))
		})
	}
	eventually(t, "the API server meets the new certificate", func() error { return r.served(t, r.bridge, false) })
	r.flow.await(t)
}

// rotateLeaf has a certificate issued again.
func (r *keptRoad) rotateLeaf(t *testing.T, secret string) {
	t.Helper()
	r.set(t, secret, keep.CertKey, "")
	r.kept.run(t, secret+": issued a certificate")
	r.taken(t)
}

// rotateAuthority replaces the authority, with all that it has issued.
func (r *keptRoad) rotateAuthority(t *testing.T) {
	t.Helper()
	r.set(t, r.authority(), keep.RotateKey, "now")
	r.kept.run(t, "-ca: made a new authority, as asked for", "bring the bundle into the entries")
	r.taken(t)
	r.passOverlap(t)
	r.kept.run(t, "does not issue before validatingwebhookconfiguration/"+r.kept.name)
	r.register(t)
	r.flow.await(t)

	r.kept.run(t, "-ca: the new authority issues", "portcullis-tls: issued", "policies-tls: issued", "bridge-tls: issued")
	r.taken(t)

	r.passOverlap(t)
	r.kept.run(t, "-ca: the old authority is no longer trusted")
	r.taken(t)
	r.register(t)
	r.flow.await(t)
}

// wantAllSeen wants no request to have failed, and no Pod to have been created
// that the hook has not seen.
func (r *keptRoad) wantAllSeen(t *testing.T) {
	t.Helper()
	r.flow.wantNoFailure(t)
	r.wantAllCreatedSeen(t)
}

// wantAllCreatedSeen wants no Pod to have been created that the hook has not
// seen.
func (r *keptRoad) wantAllCreatedSeen(t *testing.T) {
	t.Helper()
	total, unseen := 0, 0
	for name := range r.created.Range {
		total++
		if _, ok := r.seen.Load(name); !ok {
			unseen++
		}
	}
	t.Logf("%d Pods created, %d that the hook has not seen", total, unseen)
	if unseen > 0 || total == 0 {
		t.Errorf("%d Pods were created, %d without the hook", total, unseen)
	}
}

// TestEveryKindOfCertificateIsRotatedWhilePodsAreCreated: the CronJob of the
// chart replaces the certificate of the dispatchers on both listeners, the
// certificate of the host, and their authority. The old authority overlaps with
// the new one, in the entries too.
func TestEveryKindOfCertificateIsRotatedWhilePodsAreCreated(t *testing.T) {
	citest.Soak(t, "rotates each certificate five times while Pods are created: 3 minutes")
	r := newKeptRoad(t)
	for range citest.Rounds(1, 1, 5) {
		r.rotateLeaf(t, dispatcherSecret)
		r.rotateLeaf(t, hostSecret)
		r.rotateAuthority(t)
	}
	r.kept.run(t, "nothing to do")
	r.wantAllSeen(t)
}

// TestTheCronJobOfCertificatesMayNotReadOtherSecrets: its rights end with the
// Secrets that the chart names.
func TestTheCronJobOfCertificatesMayNotReadOtherSecrets(t *testing.T) {
	citest.Gate(t, "covers the rights of the chart: 3 s")
	k := newKept(t)
	k.run(t, "made an authority")
	if said, err := k.try(t, "--client=another=x"); err == nil || !strings.Contains(said, "forbidden") {
		t.Errorf("error %v: %s", err, said)
	}
	if said, err := k.try(t, "--authority=another"); err == nil || !strings.Contains(said, "forbidden") {
		t.Errorf("error %v: %s", err, said)
	}
}
