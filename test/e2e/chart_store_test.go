package e2e

import (
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/pki"
)

// TestTheChartRunsAStore runs the Pod of the StatefulSet with an embedded store,
// applies a document, and finds it after the Pod has been replaced on its
// volume.
func TestTheChartRunsAStore(t *testing.T) {
	citest.Gate(t, "covers the store of the chart: 2 s")
	const document = "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: prod-9}\nspec: {identities: [kube-apiserver]}\n"
	namespace, authority := cluster.Namespace(t, nil), newTLSAuthority(t)
	objects := newChart(t, "portcullis").render(t, namespace, "store.kind=embedded", "replicas=1", "operators={ann}", "serve.stopDelaySeconds=0")
	set := storeOf(t, objects)
	createTLS(t, namespace, authority)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "cluster.yaml"), document)
	run := func(verb ...string) func(*testing.T) {
		return func(t *testing.T) {
			hosts := runStore(t, set, dir)
			args := slices.Concat(verb, []string{
				"--server=" + hosts, "--ca=" + filepath.Join(dir, "ca.crt"),
				"--cert=" + filepath.Join(dir, "ann.crt"), "--key=" + filepath.Join(dir, "ann.key"),
			})
			if said, err := exec.CommandContext(t.Context(), portcullis, args...).CombinedOutput(); err != nil {
				t.Errorf("portcullis %q: %v\n%s", args, err, said)
			}
		}
	}
	ann, err := authority.Client("ann")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ann.Write(dir, "ann"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "ca.crt"), string(authority.PEM()))
	t.Run("apply", run("apply", "-f", filepath.Join(dir, "cluster.yaml"), "--wait"))
	t.Run("get, after a restart", run("get", "cluster", "prod-9"))
}

func newTLSAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("mesh")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// storeOf creates the objects that the Pod of the StatefulSet needs, and
// returns the StatefulSet as a Deployment with a single Pod.
func storeOf(t *testing.T, objects []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	for _, object := range objects {
		switch object.GetKind() {
		case "ConfigMap":
			m := as[corev1.ConfigMap](t, object)
			if _, err := cluster.Client().CoreV1().ConfigMaps(m.Namespace).Create(t.Context(), &m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		case "ServiceAccount":
			a := as[corev1.ServiceAccount](t, object)
			if _, err := cluster.Client().CoreV1().ServiceAccounts(a.Namespace).Create(t.Context(), &a, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		case "StatefulSet":
			s := as[appsv1.StatefulSet](t, object)
			d = appsv1.Deployment{ObjectMeta: s.ObjectMeta, Spec: appsv1.DeploymentSpec{Replicas: s.Spec.Replicas, Template: s.Spec.Template}}
		}
	}
	return &d
}

// createTLS makes the Secret of the dispatchers.
func createTLS(t *testing.T, namespace string, authority *pki.Authority) {
	t.Helper()
	pair, err := authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "portcullis-tls"},
		Data:       map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": authority.PEM()},
	}
	if _, err := cluster.Client().CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// runStore runs the Pod until the test ends, and returns where it listens for
// hosts. Its volume is a directory in dir.
func runStore(t *testing.T, d *appsv1.Deployment, dir string) (hosts string) {
	t.Helper()
	settings, readyFile := filepath.Join(dir, "settings.yaml"), filepath.Join(dir, "ready.json")
	writeFile(t, settings, "ready-file: "+readyFile+"\n")
	cluster.RunPod(t, d, kube.PodOptions{
		Program: portcullis, Dir: dir, Env: []string{"PORTCULLIS_SETTINGS=" + settings},
		Names: []string{"=:8443", "=127.0.0.1:0", "=:8444", "=127.0.0.1:0", "=:8445", "=127.0.0.1:0"},
	})
	var listens mesh.Addresses
	eventually(t, "the dispatcher listens", func() error { return mesh.ReadReadyFile(readyFile, &listens) })
	if _, _, err := net.SplitHostPort(listens.Hosts); err != nil {
		t.Fatal(err)
	}
	return listens.Hosts
}
