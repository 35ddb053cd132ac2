package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/netns"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

const (
	// bridgeName is the identity of the bridge at dispatchers.
	bridgeName = "e2e-bridge"
	// tierLabel is the label by which the hook of these tests selects namespaces. Reviews do not carry it.
	tierLabel = "e2e.portcullis.dev/tier"
	// bridged is the Cluster of a bridge.
	bridged = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: " + clusterName + "}\n" +
		"spec: {identities: [" + bridgeName + "], bridge: {}}\n"
	// bridgeTimeout is the timeout of the hook and its entry. TCP takes longer to give up a link.
	bridgeTimeout = 5 * time.Second
)

// startBridge runs "portcullis bridge" beside the shared cluster for the first dispatcher of the road, and has the road use it.
func (r *road) startBridge(t *testing.T) {
	t.Helper()
	r.startBridgeWith(t, nil)
}

// startBridgeWith is startBridge with variables. The API server shows its client certificate.
func (r *road) startBridgeWith(t *testing.T, env []string, args ...string) *process.Process {
	t.Helper()
	started, at := runBridge(t, r.Mesh, r.dispatcher.Hosts, cluster, env, append([]string{"--cluster=" + clusterName}, args...)...)
	r.bridge = at.Bridge
	return started
}

// runBridge runs "portcullis bridge" for the dispatcher at an address, beside a cluster. Arguments may name more dispatchers.
func runBridge(t *testing.T, m *mesh.Mesh, dispatcher string, beside *kube.Cluster, env []string, args ...string) (*process.Process, mesh.Addresses) {
	t.Helper()
	config, err := beside.ConfigFor("portcullis", kube.ContextReaders)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, ready, log := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "ready"), filepath.Join(dir, "log")
	if err := kube.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	cert, key := m.Certify(t, bridgeName)
	files := filepath.Dir(m.ConfigDir())
	started, err := process.Start(process.Command{Path: portcullis, LogFile: log, Env: env, Args: append([]string{
		"bridge", "--dispatcher=" + dispatcher, "--ready-file=" + ready,
		"--mesh-cert=" + cert, "--mesh-key=" + key, "--mesh-ca=" + m.AuthorityFile(),
		"--listen=127.0.0.1:0", "--listen-admin=127.0.0.1:0", "--kubeconfig=" + kubeconfig,
		"--tls-cert=" + filepath.Join(files, "dispatcher.crt"), "--tls-key=" + filepath.Join(files, "dispatcher.key"),
		"--stop-delay=100ms", "--drain-timeout=30s", "--webhook-network=127.0.0.0/8",
		"--tls-ca=" + filepath.Join(files, "callers-ca.crt"), "--caller=" + kube.WebhookClientName,
	}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(process.DefaultGrace); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(started.Tail(30))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var at mesh.Addresses
	if err := started.Await(ctx, func(context.Context) error { return mesh.ReadReadyFile(ready, &at) }); err != nil {
		t.Fatal(err)
	}
	return started, at
}

// TestABridgeJudgesBehindASlowLinkThatIsCutAndRestored has the dispatcher in a network of its own, 50 ms away. It has no credentials of the
// cluster: the bridge reads the labels that a hook selects by.
func TestABridgeJudgesBehindASlowLinkThatIsCutAndRestored(t *testing.T) {
	citest.Soak(t, "waits for sessions to notice a link that is cut, as root: 8 s")
	n := netns.New(t)
	here, far := n.Here(), n.Namespace(t)
	link := n.Link(t, here, far)
	link.Slow(25*time.Millisecond, 10<<20)
	const denier = "denier.example.com"
	hook := onPods(denier)
	hook.Timeout = bridgeTimeout
	hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{tierLabel: "strict"}}
	m := newMesh(t, mesh.Options{Addresses: []string{far.Address()}, Documents: []string{bridged}}, kube.Validating("denier", hook))
	r := newRoadOn(t, m, m.ServeIn(t, far))
	r.host(t, hostsdk.Validate(denier, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("not in " + denier), nil
	}))
	r.startBridge(t)
	entry := r.entry("validate", nil)
	entry.Timeout = bridgeTimeout
	cluster.InstallValidating(t, kube.Validating(r.name, entry))

	create := func(namespace string) error {
		_, err := cluster.Client().CoreV1().Pods(namespace).Create(t.Context(), kube.Pod(namespace, "pod"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	denied := func(namespace string) func() error {
		return func() error {
			if err := create(namespace); statusCode(err) != http.StatusForbidden {
				return errors.Join(errors.New("not denied"), err)
			}
			return nil
		}
	}
	strict := r.newNamespace(t, map[string]string{tierLabel: "strict"})
	eventually(t, "the hook denies in its namespace", denied(strict))
	eventually(t, "and in no other one", func() error { return create(r.namespace) })

	cut := time.Now()
	link.Cut()
	wantError(t, create(strict), http.StatusInternalServerError, "failed calling webhook")
	late := r.newNamespace(t, map[string]string{tierLabel: "strict"})
	t.Logf("a write was answered %v after the cut", time.Since(cut))
	mended := time.Now()
	link.Mend()
	eventually(t, "the hook denies again", denied(strict))
	t.Logf("the hook denied again %v after the link was restored", time.Since(mended))
	eventually(t, "a namespace is known that came while the link was cut", denied(late))
	eventually(t, "the others pass", func() error { return create(r.namespace) })
	t.Logf("all was known %v after the link was restored", time.Since(mended))
}

// TestABridgeCallsConversionWebhooksForADispatcherElsewhere has a hook that takes another version than clients write. The conversion webhook is
// on a loopback address: the dispatcher, in a network of its own, cannot reach it.
func TestABridgeCallsConversionWebhooksForADispatcherElsewhere(t *testing.T) {
	citest.Gate(t, "covers bridges: 3 s")
	n := netns.New(t)
	here, far := n.Here(), n.Namespace(t)
	n.Link(t, here, far)
	const hook, group = "widgets.example.com", "bridged.example.com"
	cluster.InstallDefinitions(t, widgetDefinition(group, conversionWebhook(t)))
	onWidgets := kube.Hook{
		Name: hook, Group: group, Resources: []string{widgets},
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
	}
	m := newMesh(t, mesh.Options{Addresses: []string{far.Address()}, Documents: []string{bridged}}, inVersion(kube.Mutating("widgets", onWidgets), "v1"))
	r := newRoadOn(t, m, m.ServeIn(t, far))
	r.host(t, hostsdk.Mutate(hook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if !strings.Contains(string(q.RawObject()), `"size"`) {
			return hostsdk.Deny("no size in " + string(q.RawObject())), nil
		}
		return hostsdk.Patch([]byte(`[{"op":"replace","path":"/spec/size","value":2}]`)), nil
	}))
	r.startBridge(t)
	r.mutateAll(t, group, widgets)

	version := schema.GroupVersionResource{Group: group, Version: "v1beta1", Resource: widgets}
	eventually(t, "the hook changes a widget in the version that it takes", func() error {
		created, err := cluster.Dynamic(t).Resource(version).Namespace(r.namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1beta1", "kind": "Widget", "metadata": map[string]any{"generateName": "widget-"},
			"spec": map[string]any{"dimension": int64(1)},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(map[string]any{"dimension": int64(2)}, created.Object["spec"]); diff != "" {
			return errors.New("the widget (-want +got):\n" + diff)
		}
		return nil
	})
}

// bridgedPair is a bridge for two dispatchers, each with a host of its own, so that the hook's side shows which of them judged.
type bridgedPair struct {
	*road
	*witness

	dispatchers [2]*mesh.Dispatcher
	judged      [2]atomic.Int64
	holding     atomic.Bool   // whether the hook holds the reviews of the second dispatcher
	held        atomic.Int64  // their number
	release     chan struct{} // closed when it holds them no longer
}

// newBridgedPair has the second dispatcher in a namespace, or none.
func newBridgedPair(t *testing.T, far *netns.Namespace) *bridgedPair {
	t.Helper()
	const watching = "watching.example.com"
	options := mesh.Options{Documents: []string{bridged}}
	if far != nil {
		options.Addresses = []string{far.Address()}
	}
	m := newMesh(t, options, kube.Validating("watching", onPods(watching)))
	p := &bridgedPair{road: newRoadOn(t, m, m.Serve(t)), release: make(chan struct{})}
	p.witness = &witness{create: p.createDryName}
	p.dispatchers[0] = p.dispatcher
	if far != nil {
		p.dispatchers[1] = p.ServeIn(t, far)
	} else {
		p.dispatchers[1] = p.Serve(t)
	}
	for i, d := range p.dispatchers {
		p.HostOn(t, d, hostName, hostsdk.Validate(watching, func(ctx context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
			p.judged[i].Add(1)
			if i == 1 && p.holding.Load() {
				p.held.Add(1)
				<-p.release
			}
			return p.judge(ctx, q)
		}))
	}
	p.startBridgeWith(t, nil, "--dispatcher="+p.dispatchers[1].Hosts)
	p.validate(t)
	eventually(t, "the hook sees Pods", func() error { return p.sees(t.Context()) })
	return p
}

// more returns when a dispatcher has judged some more reviews.
func (p *bridgedPair) more(t *testing.T, i int) {
	t.Helper()
	target := p.judged[i].Load() + between
	eventually(t, "a dispatcher judges more reviews", func() error {
		if p.judged[i].Load() < target {
			return fmt.Errorf("dispatcher %d does not", i)
		}
		return nil
	})
}

// hold has the hook hold the reviews of the second dispatcher, and returns when it holds one.
func (p *bridgedPair) hold(t *testing.T) {
	t.Helper()
	p.holding.Store(true)
	eventually(t, "the hook holds a review", func() error {
		if p.held.Load() == 0 {
			return errors.New("it does not")
		}
		return nil
	})
}

// TestABridgeGoesOnWithOneDispatcherWhenTheOtherIsKilled: the bridge does not send the reviews again that the hook holds at the
// dispatcher that is killed. It answers 503 with Retry-After, and the API server asks again. So no write fails, and the hook sees each of
// them.
func TestABridgeGoesOnWithOneDispatcherWhenTheOtherIsKilled(t *testing.T) {
	citest.Gate(t, "covers bridges: 2 s")
	p := newBridgedPair(t, nil)
	flow := newTraffic(t, p.write)
	p.more(t, 0)
	p.more(t, 1)
	p.hold(t)
	p.dispatchers[1].Kill(t)
	close(p.release)
	p.more(t, 0)
	flow.wantNoFailure(t)
	last := p.judged[1].Load()
	after := newTraffic(t, p.write)
	p.more(t, 0)
	after.wantNoFailure(t)
	if now := p.judged[1].Load(); now != last {
		t.Errorf("%d reviews by the dispatcher that was killed", now-last)
	}
	t.Logf("%d Pods; judged by each dispatcher: %d, %d, of which %d were held at the kill", p.wantAll(t), p.judged[0].Load(), last, p.held.Load())
}

// TestABridgeGoesOnWithOneDispatcherWhenTheLinkToTheOtherCarriesNothing cuts it without a word: at first while the hook holds reviews behind
// it, so that the bridge hears nothing and has nothing to send, and then while reviews are sent over it. The bridge gives up the link while
// those writes have time for the other dispatcher.
func TestABridgeGoesOnWithOneDispatcherWhenTheLinkToTheOtherCarriesNothing(t *testing.T) {
	citest.Soak(t, "waits for sessions to notice a link that is silent, as root: 17 s")
	n := netns.New(t)
	here, far := n.Here(), n.Namespace(t)
	link := n.Link(t, here, far)
	p := newBridgedPair(t, far)
	defer close(p.release)
	flow := newTraffic(t, p.write)
	p.more(t, 0)
	p.more(t, 1)
	p.hold(t)
	flow.stop()
	link.Cut()
	cut := time.Now()
	flow.wantNoFailure(t)
	t.Logf("%d reviews were held behind the link; their writes were made %v after it was cut", p.held.Load(), time.Since(cut))
	flow = newTraffic(t, p.write)
	p.more(t, 0)
	flow.wantNoFailure(t)

	p.holding.Store(false)
	link.Mend()
	within(t, 2*time.Minute, "the dispatcher behind it has its host again", func() error { return p.dispatchers[1].Ready(t.Context()) })
	flow = newTraffic(t, p.write)
	p.more(t, 1)
	link.Cut()
	p.more(t, 0)
	flow.wantNoFailure(t)
	t.Logf("%d Pods", p.wantAll(t))
}
