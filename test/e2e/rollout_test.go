package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// The hooks of a road that is rolled; both fail closed.
const (
	rolledMark = "mark.example.com" // mutating
	rolledFind = "find.example.com" // validating
)

// newRolled is a road with a mutating and a validating hook.
func newRolled(t *testing.T, options mesh.Options) *road {
	t.Helper()
	return newRoadWith(t, options, kube.Mutating("mark", onPods(rolledMark)), kube.Validating("find", onPods(rolledFind)))
}

// rolledWitness makes Pods on a road that is rolled. The mutating hook marks
// each Pod that it has seen, and the validating hook writes names into a file.
type rolledWitness struct {
	witness
	road *road
	file string
}

func newRolledWitness(t *testing.T, r *road) *rolledWitness {
	t.Helper()
	return &rolledWitness{witness{create: r.createMarkedName}, r, filepath.Join(t.TempDir(), "seen")}
}

// replica starts a host for both hooks, and returns when they are in
// rotation. Verdicts take long enough that a replica is always told to go in
// the middle of some.
func (w *rolledWitness) replica(t *testing.T) mesh.HostProcess {
	t.Helper()
	return w.road.hostProcess(t, append(rolledHooks(), "-seen="+w.file)...)
}

// wantAll fails the test unless the validating hook has seen each Pod that was made.
func (w *rolledWitness) wantAll(t *testing.T) {
	t.Helper()
	names, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(names)) {
		w.seen.Store(name, true)
	}
	total := w.witness.wantAll(t)
	if total == 0 {
		t.Error("no Pod was made")
	}
	t.Logf("%d Pods were made", total)
}

// rolledHooks are the arguments of a host for both hooks.
func rolledHooks() []string {
	return []string{
		"-validate=" + rolledFind, "-mutate=" + rolledMark, "-delay=20ms", "-patch=" + markPatch,
	}
}

// markPatch is the mutating hook's patch of a Pod.
const markPatch = `[{"op":"add","path":"/metadata/labels","value":{"marked":"yes"}}]`

// createMarked creates a Pod, dry, which the mutating hook has to have marked.
func (r *road) createMarked(ctx context.Context) error { return r.createMarkedName(ctx, dryPod) }

func (r *road) createMarkedName(ctx context.Context, name string) error {
	pod, err := cluster.Client().CoreV1().Pods(r.namespace).
		Create(ctx, kube.Pod(r.namespace, name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil && pod.Labels["marked"] != "yes" {
		err = errors.New("the mutating hook was not asked")
	}
	return err
}

func TestHostsAreRolledWhilePodsAreCreatedAndNoneFails(t *testing.T) {
	r := newRolled(t, mesh.Options{})
	w := newRolledWitness(t, r)
	replicas := [2]mesh.HostProcess{w.replica(t), w.replica(t)}
	r.mutate(t)
	r.validate(t)
	flow, direct := newTraffic(t, w.write), newTraffic(t, r.directCaller(t, r.dispatcher.Hosts))

	for range citest.Rounds(1, 5, 100) {
		for i, old := range replicas {
			replicas[i] = w.replica(t)
			flow.await(t)
			old.Drain(t)
			flow.await(t)
		}
	}

	flow.wantNoFailure(t)
	direct.wantNoFailure(t)
	w.wantAll(t)
}

func TestADispatcherIsRestartedAndItsHostReconnects(t *testing.T) {
	const hook = "patient.example.com"
	r := newRoad(t, kube.Validating("patient", onPods(hook)))
	r.host(t, hostsdk.Validate(hook, allow))
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

// TestDispatchersAreRolledWhilePodsAreCreatedAndNoneFails replaces each of two
// dispatchers, as a Deployment does, behind balancers that learn of it late.
// kube-apiserver comes through one, direct callers through the other. Hosts
// find the new ones by name.
func TestDispatchersAreRolledWhilePodsAreCreatedAndNoneFails(t *testing.T) {
	citest.Gate(t, "replaces two dispatchers under load: 15 s")
	r := newRollout(t, portcullis)
	w := newRolledWitness(t, r.road)
	w.replica(t)
	w.replica(t)
	r.mutate(t)
	r.validate(t)
	flow, direct := newTraffic(t, w.write), newTraffic(t, r.directCaller(t, r.callers.Address))

	for range citest.Rounds(1, 1, 20) {
		r.replaceEach(t, flow, direct)
	}

	flow.wantNoFailure(t)
	direct.wantNoFailure(t)
	w.wantAll(t)
}

// rollout is a road with two dispatchers behind balancers.
type rollout struct {
	*road
	dispatchers      []*mesh.Dispatcher
	bridges, callers *mesh.Balancer
}

// newRollout starts two dispatchers of a program.
func newRollout(t *testing.T, program string) *rollout {
	t.Helper()
	m := newMesh(t, mesh.Options{StopDelay: 2 * time.Second, Documents: []string{clusterDocument(t)}},
		kube.Mutating("mark", onPods(rolledMark)), kube.Validating("find", onPods(rolledFind)))
	m.Install(program)
	r := &rollout{road: newRoadOn(t, m, m.Serve(t))}
	r.dispatchers = []*mesh.Dispatcher{r.dispatcher, r.Serve(t)}
	r.bridges, r.callers = mesh.Balance(t, mesh.BridgePort, r.dispatchers...), mesh.Balance(t, mesh.HostsPort, r.dispatchers...)
	r.bridge = "https://" + r.bridges.Address
	return r
}

func (r *rollout) uses(t *testing.T, all ...*mesh.Dispatcher) {
	t.Helper()
	eventually(t, "balancers know who is ready", func() error { return errors.Join(r.bridges.Uses(all...), r.callers.Uses(all...)) })
}

// replaceEach replaces one dispatcher after the other, and awaits the flows
// between two steps.
func (r *rollout) replaceEach(t *testing.T, flows ...*traffic) {
	t.Helper()
	r.uses(t, r.dispatchers...)
	await := func() {
		for _, f := range flows {
			f.await(t)
		}
	}
	for i, old := range r.dispatchers {
		next := r.Serve(t)
		r.bridges.Add(next)
		r.callers.Add(next)
		r.uses(t, append([]*mesh.Dispatcher{next}, r.dispatchers...)...)
		await()
		old.Stop(t)
		r.bridges.Remove(old)
		r.callers.Remove(old)
		r.dispatchers[i] = next
		await()
	}
}

// directCaller is a function that asks the AdmissionService behind an address
// for all its mutating and validating hooks have to say to a Pod.
func (r *road) directCaller(t *testing.T, address string) func(context.Context) error {
	t.Helper()
	pair, err := r.Authority().Client(kube.WebhookClientName)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: r.Authority().Pool(), Certificates: []tls.Certificate{certificate},
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client, pod := admissionv1.NewAdmissionServiceClient(conn), podObject(t, r.namespace)
	return func(ctx context.Context) error {
		answer, err := client.Review(ctx, &admissionv1.ReviewRequest{
			Stage: admissionv1.Stage_STAGE_ADMIT,
			Request: &admissionv1.AdmissionRequest{
				Uid: string(uuid.NewUUID()), Cluster: clusterName, Operation: "CREATE", Namespace: r.namespace, Name: dryPod,
				Kind:     &admissionv1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource: &admissionv1.GroupVersionResource{Version: "v1", Resource: "pods"},
				Object:   &admissionv1.Object{Raw: pod}, DryRun: proto.Bool(true),
			},
		})
		if err == nil && (!answer.GetResponse().GetAllowed() || len(answer.GetResponse().GetPatch()) == 0) {
			err = fmt.Errorf("not admitted and marked: %v", answer.GetResponse())
		}
		return err
	}
}

// podObject is a Pod as JSON.
func podObject(t *testing.T, namespace string) []byte {
	t.Helper()
	pod := kube.Pod(namespace, dryPod)
	pod.APIVersion, pod.Kind = "v1", "Pod"
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheCertificateIsReplacedWhilePodsAreCreatedAndNoneFails(t *testing.T) {
	citest.Gate(t, "covers a certificate that is replaced under load: 4 s")
	const hook, rotations = "rotated.example.com", 3
	r := newRoad(t, kube.Validating("rotated", onPods(hook)))
	r.host(t, hostsdk.Validate(hook, allow))
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
