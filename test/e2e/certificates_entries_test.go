package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/certs/keep"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// TestEntriesFollowTheAuthorityOfTheMeshWhilePodsAreCreated: nobody brings the
// bundle into the entries but the dispatchers, from a file that the CronJob of
// the chart keeps.
func TestEntriesFollowTheAuthorityOfTheMeshWhilePodsAreCreated(t *testing.T) {
	citest.Soak(t, "rotates authorities five times while Pods are created: 3 minutes")
	r := newKeptRoad(t)
	file := r.path(dispatcherSecret, keep.BundleKey)
	r.keepEntries(t, file)
	for range citest.Rounds(1, 1, 5) {
		r.rotateAuthorityAlone(t, file)
	}
	if n := bytes.Count(readFile(t, file), []byte("BEGIN CERTIFICATE")); n != 1 {
		t.Errorf("the file has %d authorities in the end", n)
	}
	r.kept.run(t, "nothing to do")
	r.wantAllSeen(t)
}

// TestEntriesStayWhileTheFileOfTheirAuthoritiesIsBad has a file that is
// emptied, and written again.
func TestEntriesStayWhileTheFileOfTheirAuthoritiesIsBad(t *testing.T) {
	citest.Soak(t, "waits for entries, which are compared every 10 s: 20 s")
	r := newKeptRoad(t)
	file := r.kept.path("ca.crt")
	good := readFile(t, r.path(dispatcherSecret, keep.BundleKey))
	writeFile(t, file, string(good))
	r.keepEntries(t, file)
	writeFile(t, file, "")
	r.logged(t, "no certificate in it")
	if err := r.bundles(t, good); err != nil {
		t.Error(err)
	}
	twice := append(slices.Clone(good), good...) // other bytes for the same authorities
	writeFile(t, file, string(twice))
	eventually(t, "the entries follow the file again", func() error { return r.bundles(t, twice) })
	r.wantAllSeen(t)
}

// TestTheChartHasDispatchersKeepTheEntriesOfItsCluster: with its document, and
// no rights but those that it grants.
func TestTheChartHasDispatchersKeepTheEntriesOfItsCluster(t *testing.T) {
	citest.Gate(t, "covers the entries of the chart: a second")
	var r *road
	t.Cleanup(func() { r.deleteEntries(t) }) // once the dispatcher has ended
	hooks := documents(t, kube.Validating("denier", onPods(rotatedHook)))
	m := newMesh(t, mesh.Options{Documents: append(hooks, clusterDocument(t))})
	r = newRoadOn(t, m, m.Serve(t))
	r.host(t, hostsdk.Validate(rotatedHook, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.Namespace() == r.namespace { // entries serve the whole cluster
			return hostsdk.Deny("not today"), nil
		}
		return hostsdk.Allow(), nil
	}))
	release := strings.ToLower("kept-" + rand.Text())
	namespace, account, document := cluster.Namespace(t, nil), "", ""
	for _, o := range newChart(t, "portcullis").render(t, namespace, "fullnameOverride="+release, "cluster.name="+clusterName,
		"cluster.identities={"+kube.WebhookClientName+"}", "cluster.registration.url="+r.bridge, "cluster.registration.name="+r.name) {
		switch kind := o.GetKind(); {
		case kind == "ServiceAccount":
			account = o.GetName()
		case kind == "ConfigMap":
			document = as[corev1.ConfigMap](t, o).Data["this-cluster.yaml"]
		case strings.Contains(kind, "Role"):
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			cluster.Apply(t, string(text))
		}
	}
	kubeconfig, authorities := filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "ca.crt")
	if err := kube.WriteKubeconfig(kubeconfig, cluster.Account(t, namespace, account)); err != nil {
		t.Fatal(err)
	}
	writeFile(t, authorities, string(r.Authority().PEM()))
	r.Configure(t, "initial", append(hooks, strings.NewReplacer(
		"/etc/portcullis/kubeconfig/in-cluster.kubeconfig", kubeconfig, "/etc/portcullis/tls/ca.crt", authorities).Replace(document))...)
	eventually(t, "the entries are there", func() error {
		if err := r.createDry(t.Context()); statusCode(err) != http.StatusForbidden || !strings.Contains(err.Error(), "not today") {
			return notDeniedError{err}
		}
		return nil
	})
}

// keepEntries has the dispatchers keep the entries, with the authorities of a
// file.
func (r *keptRoad) keepEntries(t *testing.T, file string) {
	t.Helper()
	hook := onPods(rotatedHook)
	hook.NamespaceSelector = kube.InNamespace(r.road.namespace)
	r.Configure(t, "initial", append(documents(t, kube.Validating("rotated", hook)), mesh.Document(t, map[string]any{
		"apiVersion": "portcullis.dev/v1", "kind": "Cluster", "metadata": map[string]any{"name": clusterName},
		"spec": map[string]any{
			"identities": []string{kube.WebhookClientName}, "kubeconfig": r.admin,
			"registration": map[string]any{"url": r.bridge, "caFile": file, "name": r.kept.name},
		},
	}))...)
	eventually(t, "a dispatcher keeps the entries", func() error {
		_, err := cluster.Client().CoordinationV1().Leases("kube-system").Get(t.Context(), "portcullis-entries-"+r.kept.name, metav1.GetOptions{})
		return err
	})
}

// rotateAuthorityAlone replaces the authority. The CronJob does not check which
// authorities the entries trust.
func (r *keptRoad) rotateAuthorityAlone(t *testing.T, file string) {
	t.Helper()
	r.set(t, r.authority(), keep.RotateKey, "now")
	r.kept.run(t, "-ca: made a new authority, as asked for")
	r.follows(t, file)
	r.passOverlap(t)
	r.kept.run(t, "-ca: the new authority issues", "portcullis-tls: issued", "policies-tls: issued")
	r.taken(t)
	r.passOverlap(t)
	r.kept.run(t, "-ca: the old authority is no longer trusted")
	r.follows(t, file)
}

// logged returns when each dispatcher has logged a problem.
func (r *keptRoad) logged(t *testing.T, problem string) {
	t.Helper()
	for _, d := range r.dispatchers {
		eventually(t, "a dispatcher logs the problem", func() error {
			for line := range strings.Lines(string(readFile(t, d.LogFile()))) {
				if strings.Contains(line, "are not kept") && strings.Contains(line, problem) {
					return nil
				}
			}
			return errors.New("it has not")
		})
	}
}

// follows returns when the entries trust the authorities of a file, and Pods
// have been created since.
func (r *keptRoad) follows(t *testing.T, file string) {
	t.Helper()
	eventually(t, "the entries follow the file", func() error { return r.bundles(t, readFile(t, file)) })
	r.taken(t)
}

// bundles is an error unless each entry has a bundle.
func (r *keptRoad) bundles(t *testing.T, want []byte) error {
	t.Helper()
	entries, err := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), r.kept.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, entry := range entries.Webhooks {
		if !bytes.Equal(entry.ClientConfig.CABundle, want) {
			return fmt.Errorf("entry %s has another caBundle", entry.Name)
		}
	}
	if len(entries.Webhooks) == 0 {
		return errors.New("there are no entries")
	}
	return nil
}
