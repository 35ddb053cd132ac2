package e2e

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/portcullis-mesh/portcullis/hostsdk"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	// clusterName is the name of the cluster in the mesh.
	clusterName = "e2e"
	// entryName is the webhook in the cluster's own configuration that calls
	// the mesh.
	entryName = "mesh.e2e.portcullis.dev"
	// hostName is the identity that the mesh lets serve its hooks.
	hostName = "policies"
)

// road is all that a review passes: the shared cluster, a dispatcher of the
// test's own, and a namespace whose objects are reviewed. Hosts are added to
// it.
type road struct {
	*mesh.Mesh
	dispatcher *mesh.Dispatcher
	// bridge is the URL that kube-apiserver calls.
	bridge string
	// name is the road's own: entries carry it, and select the namespaces that
	// are labelled with it.
	name      string
	namespace string
}

// roadLabel marks the namespaces of a road.
const roadLabel = "e2e.portcullis.dev/road"

// newRoad starts a dispatcher for webhook configurations whose hooks the
// identity hostName may serve.
func newRoad(t *testing.T, configurations ...metav1.Object) *road {
	t.Helper()
	return newRoadWith(t, mesh.Options{}, configurations...)
}

// newRoadWith is newRoad with some options of the mesh, further documents
// among them.
func newRoadWith(t *testing.T, options mesh.Options, configurations ...metav1.Object) *road {
	t.Helper()
	options.Documents = append(options.Documents, clusterDocument(t))
	m := newMesh(t, options, configurations...)
	return newRoadOn(t, m, m.Serve(t))
}

// newMesh is the files of a mesh for webhook configurations.
func newMesh(t *testing.T, options mesh.Options, configurations ...metav1.Object) *mesh.Mesh {
	t.Helper()
	options.Portcullis, options.Callers = portcullis, cluster.Authority()
	options.Documents = append(options.Documents, documents(t, configurations...)...)
	return mesh.New(t, options)
}

// newRoadOn is the road over a dispatcher that runs.
func newRoadOn(t *testing.T, m *mesh.Mesh, d *mesh.Dispatcher) *road {
	t.Helper()
	r := &road{Mesh: m, dispatcher: d, bridge: d.Bridge, name: strings.ToLower("road-" + rand.Text())}
	r.namespace = r.newNamespace(t, nil)
	return r
}

// newNamespace makes one more namespace whose objects are reviewed.
func (r *road) newNamespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	all := map[string]string{roadLabel: r.name}
	maps.Copy(all, labels)
	return cluster.Namespace(t, all)
}

// documents are configurations, and the routes of their hooks.
func documents(t *testing.T, configurations ...metav1.Object) []string {
	t.Helper()
	var all []string
	for _, c := range configurations {
		all = append(all, mesh.Document(t, c), mesh.Route(c.GetName(), hostName))
	}
	return all
}

// clusterDocument is the Cluster document of the shared cluster. The mesh may
// read from it the data that reviews do not carry, and no more.
func clusterDocument(t *testing.T) string {
	t.Helper()
	return clusterDocumentAt(t, cluster.Config().Host)
}

// host runs a host in this process.
func (r *road) host(t *testing.T, hooks ...hostsdk.Hook) {
	t.Helper()
	r.Host(t, hostName, hooks...)
}

// hostProcess runs a host in a process of its own.
func (r *road) hostProcess(t *testing.T, args ...string) mesh.HostProcess {
	t.Helper()
	return r.HostProcess(t, mesh.HostOptions{Program: testhost, Identity: hostName, Args: args})
}

// validate has kube-apiserver send the mesh its validating reviews of the
// operations on Pods in the road's namespaces.
func (r *road) validate(t *testing.T, operations ...admissionregistrationv1.OperationType) {
	t.Helper()
	cluster.InstallValidating(t, kube.Validating(r.name, r.entry("validate", operations)))
}

// mutate has kube-apiserver send the mesh its mutating reviews of the creation
// of Pods in the road's namespaces.
func (r *road) mutate(t *testing.T) {
	t.Helper()
	cluster.InstallMutating(t, kube.Mutating(r.name, r.entry("mutate", nil)))
}

func (r *road) entry(stage string, operations []admissionregistrationv1.OperationType) kube.Hook {
	hook := onPods(entryName, operations...)
	hook.URL = r.bridge + "/v1/clusters/" + clusterName + "/" + stage
	hook.CABundle = r.Authority().PEM()
	hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{roadLabel: r.name}}
	return hook
}

// onPods is a hook for operations on Pods, CREATE when none is named.
func onPods(name string, operations ...admissionregistrationv1.OperationType) kube.Hook {
	if len(operations) == 0 {
		operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	}
	return kube.Hook{Name: name, Operations: operations, Resources: []string{"pods"}}
}

// wantError fails the test unless err is an answer of the API server with
// that code whose message holds every part.
func wantError(t *testing.T, err error, code int32, parts ...string) {
	t.Helper()
	if statusCode(err) != code {
		t.Errorf("error = %v, want code %d", err, code)
	}
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error = %v, want it to hold %q", err, part)
		}
	}
}

// logs returns when the dispatcher has logged text. It logs many changes after they can be seen.
func (r *road) logs(t *testing.T, text string) {
	t.Helper()
	eventually(t, "the dispatcher logs", func() error { return logHas(r.dispatcher.LogFile(), text) })
}

// logHas is an error unless the log holds text.
func logHas(log, text string) error {
	data, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), text) {
		return fmt.Errorf("%s does not hold %q", log, text)
	}
	return nil
}

// apiServerCertificate is one as kube-apiserver presents it to webhooks.
func apiServerCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := cluster.Authority().Client(kube.WebhookClientName)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// podRequest is the creation of a Pod with one container, as kube-apiserver
// would have it reviewed.
func podRequest(namespace, image string) *admissionv1.AdmissionRequest {
	pod := kube.Pod(namespace, "reviewed")
	pod.Spec.Containers[0].Image = image
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &admissionv1.AdmissionRequest{
		UID: uuid.NewUUID(), Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
		Name: pod.Name, Namespace: namespace, Operation: admissionv1.Create, Object: runtime.RawExtension{Object: pod},
	}
}
