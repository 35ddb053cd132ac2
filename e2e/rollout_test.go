package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/e2e/kube"
	"github.com/portcullis-mesh/portcullis/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/e2e/pki"
)

func TestHostsAreRolledWhilePodsAreCreatedAndNoneFails(t *testing.T) {
	const hook, replicas, rounds = "rolled.example.com", 2, 4
	r := newRoad(t, kube.Validating("rolled", onPods(hook)))
	start := func() mesh.HostProcess {
		// Verdicts take long enough that a replica is always told to go in the
		// middle of some.
		return r.hostProcess(t, "-validate="+hook, "-delay=20ms")
	}
	hosts := make([]mesh.HostProcess, replicas)
	for i := range hosts {
		hosts[i] = start()
	}
	r.validate(t)
	flow := newTraffic(t, r.createDry)

	for round := range rounds * replicas {
		i := round % replicas
		flow.await(t)
		hosts[i].Drain(t)
		flow.await(t)
		hosts[i] = start()
	}

	flow.wantNoFailure(t)
}

func TestAHostThatHangsAsAWholeIsLeftOutAndNoRequestFails(t *testing.T) {
	const hook = "frozen.example.com"
	r := newRoad(t, kube.Validating("frozen", onPods(hook)))
	frozen := r.hostProcess(t, "-validate="+hook, "-delay=20ms")
	r.hostProcess(t, "-validate="+hook, "-delay=20ms")
	r.validate(t)
	flow := newTraffic(t, r.createDry)
	flow.await(t)

	// Neither TCP nor gRPC notices: the process just does nothing any more.
	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its session is ended", func() error { return r.dispatcher.HasMetric(t.Context(), "portcullis_host_sessions 1") })
	flow.await(t)
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it dials again", func() error { return r.dispatcher.HasMetric(t.Context(), "portcullis_host_sessions 2") })
	flow.await(t)

	flow.wantNoFailure(t)
}

func TestADispatcherIsRestartedAndItsHostReconnects(t *testing.T) {
	const hook = "patient.example.com"
	r := newRoad(t, kube.Validating("patient", onPods(hook)))
	r.host(t, func(h *hostsdk.Host) { h.Validate(hook, allow) })
	r.validate(t)
	if err := r.createDry(t.Context()); err != nil {
		t.Fatalf("before the restart: %v", err)
	}

	r.dispatcher.Stop(t)
	if err := r.createDry(t.Context()); err == nil {
		t.Error("a pod was created without a dispatcher")
	}
	r.dispatcher.Start(t)

	eventually(t, "the host is back", func() error { return r.dispatcher.Ready(t.Context()) })
	if err := r.createDry(t.Context()); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestDispatchersAreRolledWhilePodsAreCreatedAndNoneFails(t *testing.T) {
	const hook, rounds = "steady.example.com", 2
	r := newRoad(t, kube.Validating("steady", onPods(hook)))
	dispatchers := []*mesh.Dispatcher{r.dispatcher, r.Serve(t)}
	r.hostProcess(t, "-validate="+hook, "-delay=20ms")
	r.bridge = mesh.Balance(t, dispatchers...)
	r.validate(t)
	flow := newTraffic(t, r.createDry)

	for range rounds {
		for _, d := range dispatchers {
			eventually(t, "all are ready", func() error {
				return errors.Join(dispatchers[0].Ready(t.Context()), dispatchers[1].Ready(t.Context()))
			})
			flow.await(t)
			d.Stop(t)
			flow.await(t)
			d.Start(t)
		}
	}

	flow.wantNoFailure(t)
}

func TestTheCertificateIsReplacedWhilePodsAreCreatedAndNoneFails(t *testing.T) {
	const hook, rotations = "rotated.example.com", 3
	r := newRoad(t, kube.Validating("rotated", onPods(hook)))
	r.host(t, func(h *hostsdk.Host) { h.Validate(hook, allow) })
	r.validate(t)
	flow := newTraffic(t, r.createDry)
	fresh := newTraffic(t, r.reviewer(t))

	for range rotations {
		pair := r.RotateCertificate(t)
		eventually(t, "new connections get the new certificate", func() error { return r.serves(t.Context(), pair) })
		flow.await(t)
	}

	flow.wantNoFailure(t)
	fresh.wantNoFailure(t)
}

// allow is a handler that lets everything pass.
func allow(context.Context, *hostsdk.Request) (*hostsdk.Response, error) { return hostsdk.Allow(), nil }

// reviewer is a function that sends the mesh the review of a Pod as
// kube-apiserver would, over a connection of its own each time.
func (r *road) reviewer(t *testing.T) func(context.Context) error {
	t.Helper()
	caller := mesh.NewCaller(t, r.Authority().Pool(), apiServerCertificate(t), false)
	url := r.dispatcher.URL(clusterName, "validate")
	request := podRequest(r.namespace, "app")
	return func(ctx context.Context) error {
		response, err := caller.Review(ctx, url, request)
		if err == nil && !response.Allowed {
			err = fmt.Errorf("denied: %s", response.Result.Message)
		}
		return err
	}
}

// serves is an error unless a new connection to the bridge meets that
// certificate.
func (r *road) serves(ctx context.Context, pair pki.Pair) error {
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: r.Authority().Pool()}}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(r.dispatcher.Bridge, "https://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	want, _ := pem.Decode(pair.Cert)
	if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]; !bytes.Equal(got.Raw, want.Bytes) {
		return errors.New("it is another one")
	}
	return nil
}
