package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// callerRoad is a road with Pods that are created, and several addresses: the API server has a client certificate for each.
type callerRoad struct {
	*keptRoad
	apply func(want string)
	gate  atomic.Pointer[chan struct{}] // closed when the hook may answer; nil if it may
}

func newCallerRoad(t *testing.T) *callerRoad {
	t.Helper()
	hook := onPods(rotatedHook)
	r := &callerRoad{keptRoad: &keptRoad{}}
	r.road = newRoadWith(t, mesh.Options{Args: []string{"--log-level=debug"}}, kube.Validating("rotated", hook))
	hook.NamespaceSelector = kube.InNamespace(r.road.namespace)
	r.Configure(t, "initial", append(documents(t, kube.Validating("rotated", hook)), clusterDocument(t))...)
	r.host(t, hostsdk.Validate(rotatedHook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		r.seen.Store(q.Name(), true)
		if gate := r.gate.Load(); gate != nil {
			<-*gate
		}
		return hostsdk.Allow(), nil
	}))
	listener, err := cluster.AlternateListener()
	if err != nil {
		t.Fatal(err)
	}
	balancer := mesh.BalanceOn(t, listener, mesh.BridgePort, r.dispatcher)
	eventually(t, "the balancer knows who is ready", func() error { return balancer.Uses(r.dispatcher) })
	r.apply = r.entries(t)
	r.apply(" created")
	cluster.SettleValidating(t)
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
	return r
}

// rotate issues the API server a certificate for an address that it does not call yet, and has the entries name that address. It
// returns when the dispatcher has seen the certificate, and Pods have been created since.
func (r *callerRoad) rotate(t *testing.T, alternate int) {
	t.Helper()
	pair, err := cluster.Authority().Client(kube.WebhookClientName)
	if err != nil {
		t.Fatal(err)
	}
	address, err := cluster.PresentAt(alternate, pair)
	if err != nil {
		t.Fatal(err)
	}
	r.bridge = "https://" + address
	r.apply(" updated")
	r.logs(t, "serial="+serialOf(t, pair))
	r.flow.await(t)
}

func serialOf(t *testing.T, pair pki.Pair) string {
	t.Helper()
	block, _ := pem.Decode(pair.Cert)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate.SerialNumber.Text(16)
}

// TestTheClientCertificateOfAnAPIServerIsRotatedWhilePodsAreCreated: the kubeconfig of the API server has a certificate for each of several
// addresses of the mesh. A certificate that is not in use is replaced, and the entries then name its address.
func TestTheClientCertificateOfAnAPIServerIsRotatedWhilePodsAreCreated(t *testing.T) {
	citest.Gate(t, "rotates a certificate under load: 4 s")
	r := newCallerRoad(t)
	for i := range kube.Alternates {
		r.rotate(t, i)
	}
	r.wantAllSeen(t)
}

// dialUntil has the API server dial the mesh until the dispatcher has seen the certificate: more and more reviews are under way, for which it
// has no connections.
func (r *callerRoad) dialUntil(t *testing.T, pair pki.Pair) {
	t.Helper()
	gate := make(chan struct{})
	var underWay sync.WaitGroup
	defer underWay.Wait()
	defer close(gate)
	r.gate.Store(&gate)
	defer r.gate.Store(nil)
	eventually(t, "a new connection has the certificate", func() error {
		underWay.Go(func() { _ = r.create(t.Context()) })
		return logHas(r.dispatcher.LogFile(), "serial="+serialOf(t, pair))
	})
}

// TestAClientCertificateThatIsReplacedInItsFilesLetsNoWritePastTheHook: the API server closes the connections that it has, and the
// reviews that are under way on them fail. Their writes are refused.
func TestAClientCertificateThatIsReplacedInItsFilesLetsNoWritePastTheHook(t *testing.T) {
	citest.Gate(t, "replaces a certificate under load: 6 s")
	r := newCallerRoad(t)
	for range kube.Alternates {
		pair, err := cluster.Authority().Client(kube.WebhookClientName)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Present(pair); err != nil {
			t.Fatal(err)
		}
		r.dialUntil(t, pair)
		r.flow.await(t)
	}
	r.flow.end()
	t.Logf("%d of %d writes were refused", r.flow.failed, r.flow.sent)
	r.wantAllCreatedSeen(t)
}
