package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	hostkube "github.com/portcullis-mesh/portcullis/hostsdk/kube"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/apiserver"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// managedName is the name of a cluster whose API server has no client
// certificate.
const managedName = "managed"

// managed is a control plane of the test's own without a client certificate,
// and the mesh that judges for it.
type managed struct {
	*mesh.Mesh
	cluster    *kube.Cluster
	dispatcher *mesh.Dispatcher
	kubeconfig string
	namespace  string
	seen       sync.Map // names of Pods that the validating hook has seen
}

// capability is one as `portcullis cluster capability new -o json` prints it.
type capability struct {
	Capability string `json:"capability"`
	Name       string `json:"name"`
	SHA256     string `json:"sha256"`
	NotAfter   string `json:"notAfter"`
}

// TestAnAPIServerWithoutACertificateIsKnownByACapability is the life of a
// managed cluster: its entries show a capability, its hooks are called, the
// capability is replaced while Pods are created, and the old one is refused.
func TestAnAPIServerWithoutACertificateIsKnownByACapability(t *testing.T) {
	first, second := newCapability(t), newCapability(t)
	m := newManaged(t, first)
	m.register(t, first)

	if _, err := m.cluster.CreatePod(t.Context(), m.pod("good", "good")); err != nil {
		t.Fatalf("create a good pod: %v", err)
	}
	_, err := m.cluster.CreatePod(t.Context(), m.pod("bad", "bad"))
	wantError(t, err, http.StatusConflict, "bad image")

	flow := newTraffic(t, m.createDry)
	flow.await(t)
	m.allow(t, first, second)
	eventually(t, "the mesh knows the second capability", func() error { return m.known(t, second) })
	m.register(t, second)
	eventually(t, "the API server shows the second capability alone", func() error {
		used, before := m.uses(t, second), m.uses(t, first)
		flow.await(t)
		flow.await(t)
		if used == 0 || m.uses(t, first) != before {
			return errors.New("not yet")
		}
		return nil
	})
	m.allow(t, second)
	eventually(t, "the mesh has forgotten the first capability", func() error {
		if m.known(t, first) == nil {
			return errors.New("it is known")
		}
		return nil
	})
	flow.await(t)
	flow.wantNoFailure(t)

	m.wantRefused(t, first)
	_, err = m.cluster.CreatePod(t.Context(), m.pod("bad", "bad"))
	wantError(t, err, http.StatusConflict, "bad image")
	m.wantUnseen(t, first, second)

	// The threat that docs/clusters.md tells of.
	m.dispatcher.Stop(t)
	if err := m.createDry(t.Context()); err == nil || !strings.Contains(err.Error(), second.Capability) {
		t.Errorf("without the mesh: %v; say in docs/clusters.md that API servers do not show the URL any more", err)
	}
}

// newManaged starts all of it. Hooks deny Pods with the image "bad".
func newManaged(t *testing.T, known ...capability) *managed {
	t.Helper()
	m := newControlPlane(t)
	m.kubeconfig = m.kubeconfigFor(t, "portcullis", kube.ContextReaders)
	m.Mesh = mesh.New(t, m.options(t))
	m.allow(t, known...)
	m.dispatcher = m.Serve(t)
	m.serveHooks(t)
	return m
}

// The hooks of a managed cluster.
const managedMark, managedJudge = "mark.example.com", "judge.example.com"

// newControlPlane starts the control plane alone.
func newControlPlane(t *testing.T) *managed {
	t.Helper()
	own, err := kube.Start(t.Context(), kube.Options{Managed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(own.Stop(), own.Remove()); err != nil {
			t.Error(err)
		}
	})
	return &managed{cluster: own, namespace: own.Namespace(t, nil)}
}

// kubeconfigFor is the file of a kubeconfig of a user.
func (m *managed) kubeconfigFor(t *testing.T, user string, groups ...string) string {
	t.Helper()
	config, err := m.cluster.ConfigFor(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfigOf(t, config)
}

// options are the options of its mesh.
func (m *managed) options(t *testing.T, args ...string) mesh.Options {
	t.Helper()
	return mesh.Options{
		Portcullis: portcullis, Callers: m.cluster.Authority(), Args: append([]string{"--allow-capabilities", "--log-level=debug"}, args...),
		Documents: documents(t, kube.Mutating("mark", onPods(managedMark)), kube.Validating("judge", onPods(managedJudge))),
	}
}

// serveHooks runs the host of the hooks.
func (m *managed) serveHooks(t *testing.T) {
	t.Helper()
	m.Host(t, hostName,
		hostsdk.Mutate(managedMark, hostkube.Mutate(func(_ context.Context, pod *labelled, _ *hostsdk.Request) (*hostsdk.Response, error) {
			pod.set("marked", "yes")
			return hostsdk.Allow(), nil
		})),
		hostsdk.Validate(managedJudge, hostkube.Validate(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
			m.seen.Store(pod.Name, true)
			if pod.Spec.Containers[0].Image == "bad" {
				return hostsdk.Deny("bad image").WithCode(http.StatusConflict), nil
			}
			return hostsdk.Allow(), nil
		})),
	)
}

// newCapability makes one with the command.
func newCapability(t *testing.T) (c capability) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), portcullis, "cluster", "capability", "new", managedName, "--expires=1d", "-o=json").Output()
	if err != nil {
		t.Fatalf("portcullis cluster capability new: %v", err)
	}
	if err := json.Unmarshal(out, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// allow replaces the capabilities of the cluster. It has no identity: nothing
// else lets its API server in.
func (m *managed) allow(t *testing.T, all ...capability) {
	t.Helper()
	document := fmt.Sprintf("apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: %s}\nspec:\n  kubeconfig: %q\n  capabilities:\n",
		managedName, m.kubeconfig)
	for _, c := range all {
		document += fmt.Sprintf("  - {name: %s, sha256: %s, notAfter: %q}\n", c.Name, c.SHA256, c.NotAfter)
	}
	m.Configure(t, "cluster", document)
}

// register applies the output of the command to the cluster, as kubectl does.
func (m *managed) register(t *testing.T, c capability) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "capability")
	if err := os.WriteFile(file, []byte(c.Capability), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), portcullis, "cluster", "register", managedName, "--config="+m.ConfigDir(),
		"--url="+m.dispatcher.Bridge, "--ca="+m.AuthorityFile(), "--capability-file="+file).Output()
	if err != nil {
		t.Fatalf("portcullis cluster register: %v", err)
	}
	objects, problems := config.NewDecoder(apiserver.Validator{}).Decode("register", out)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	client := m.cluster.Client().AdmissionregistrationV1()
	for _, o := range objects {
		if o.Validating != nil {
			before, err := client.ValidatingWebhookConfigurations().Get(t.Context(), o.Name, metav1.GetOptions{})
			if err != nil {
				m.cluster.InstallValidating(t, o.Validating)
				continue
			}
			o.Validating.ResourceVersion = before.ResourceVersion
			if _, err := client.ValidatingWebhookConfigurations().Update(t.Context(), o.Validating, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		before, err := client.MutatingWebhookConfigurations().Get(t.Context(), o.Name, metav1.GetOptions{})
		if err != nil {
			m.cluster.InstallMutating(t, o.Mutating)
			continue
		}
		o.Mutating.ResourceVersion = before.ResourceVersion
		if _, err := client.MutatingWebhookConfigurations().Update(t.Context(), o.Mutating, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *managed) pod(name, image string) *corev1.Pod {
	pod := kube.Pod(m.namespace, name)
	pod.Spec.Containers[0].Image = image
	return pod
}

// createDry creates a Pod, dry, which both hooks have to see.
func (m *managed) createDry(ctx context.Context) error {
	pod, err := m.cluster.Client().CoreV1().Pods(m.namespace).
		Create(ctx, m.pod(dryPod, "good"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil && pod.Labels["marked"] != "yes" {
		err = errors.New("the mutating hook was not asked")
	}
	return err
}

// known is an error unless the dispatcher counts the reviews of a capability.
func (m *managed) known(t *testing.T, c capability) error {
	t.Helper()
	if _, ok := m.reviews(t, c); !ok {
		return errors.New("it is not in the metrics")
	}
	return nil
}

func (m *managed) uses(t *testing.T, c capability) int {
	t.Helper()
	n, _ := m.reviews(t, c)
	return n
}

func (m *managed) reviews(t *testing.T, c capability) (n int, ok bool) {
	t.Helper()
	return reviewsBy(t, m.dispatcher, c.Name)
}

// reviewsBy is how many reviews a dispatcher has had by a capability of the
// managed cluster; false if it does not know it.
func reviewsBy(t *testing.T, d *mesh.Dispatcher, name string) (n int, ok bool) {
	t.Helper()
	metrics, err := d.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(fmt.Sprintf(`portcullis_capability_reviews_total{cluster=%q,name=%q} (\S+)`, managedName, name)).FindStringSubmatch(metrics)
	if line == nil {
		return 0, false
	}
	var count float64
	if _, err := fmt.Sscan(line[1], &count); err != nil {
		t.Fatal(err)
	}
	return int(count), true
}

// wantRefused calls as the API server would with the capability.
func (m *managed) wantRefused(t *testing.T, c capability) {
	t.Helper()
	caller := mesh.NewCaller(t, m.Authority().Pool(), tls.Certificate{}, true)
	_, err := caller.Review(t.Context(), m.dispatcher.URL(managedName, "capability/"+c.Capability+"/validate"), podRequest(m.namespace, "good"))
	if err == nil || !strings.Contains(err.Error(), "status 401") {
		t.Errorf("a removed capability: %v, want status 401", err)
	}
}

// wantUnseen looks for capabilities in all that the dispatcher has written.
func (m *managed) wantUnseen(t *testing.T, all ...capability) {
	t.Helper()
	log, err := os.ReadFile(m.dispatcher.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := m.dispatcher.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "review answered") {
		t.Fatal("the dispatcher has written no line about a review")
	}
	for where, text := range map[string]string{"log": string(log), "metrics": metrics} {
		for _, c := range all {
			if strings.Contains(text, c.Capability) {
				t.Errorf("the %s holds capability %s", where, c.Name)
			}
		}
	}
}
