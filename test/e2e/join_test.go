package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	hostkube "github.com/portcullis-mesh/portcullis/hostsdk/kube"
	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// joining is a managed control plane, a mesh with a store that does not know
// it, and the machine of an operator.
type joining struct {
	*mesh.Mesh
	cluster    *kube.Cluster
	dispatcher *mesh.Dispatcher
	dir        string // working directory of the operator
	cert, key  string
	namespace  string
	hook       kube.Hook // in force
}

// newJoining starts all of it. The hook in force denies Pods with the image
// "bad".
func newJoining(t *testing.T, selector *metav1.LabelSelector) *joining {
	t.Helper()
	const judge = "judge.example.com"
	own, err := kube.Start(t.Context(), kube.Options{Managed: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(own.Stop(), own.Remove()); err != nil {
			t.Error(err)
		}
	})
	j := &joining{cluster: own, dir: t.TempDir(), namespace: own.Namespace(t, map[string]string{"judged": "yes"})}
	hook := onPods(judge)
	hook.NamespaceSelector = selector
	j.hook = hook
	j.Mesh = mesh.New(t, mesh.Options{
		Portcullis: portcullis, Callers: own.Authority(),
		Args:      []string{"--allow-capabilities", "--data-dir=" + t.TempDir(), "--operator=operator"},
		Documents: documents(t, kube.Validating("judge", hook)),
	})
	j.dispatcher = j.Serve(t)
	j.cert, j.key = j.Certify(t, "operator")
	j.Host(t, hostName, hostsdk.Validate(judge, hostkube.Validate(func(_ context.Context, pod *corev1.Pod, _ *hostsdk.Request) (*hostsdk.Response, error) {
		if pod.Spec.Containers[0].Image == "bad" {
			return hostsdk.Deny("bad image").WithCode(http.StatusConflict), nil
		}
		return hostsdk.Allow(), nil
	})))
	if err := kube.WriteKubeconfig(filepath.Join(j.dir, "admin.kubeconfig"), own.Config()); err != nil {
		t.Fatal(err)
	}
	return j
}

// run runs the program as the operator of the mesh and of the cluster, and
// wants its exit code and texts in its output.
func (j *joining) run(t *testing.T, wantCode int, args []string, want ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), portcullis, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.dir, &out, &out
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(j.dir, "admin.kubeconfig"))
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != wantCode {
		t.Errorf("portcullis %s: exit code %d, want %d:\n%s", strings.Join(args, " "), code, wantCode, &out)
	}
	for _, text := range want {
		if !strings.Contains(out.String(), text) {
			t.Errorf("portcullis %s: no %q in:\n%s", strings.Join(args, " "), text, &out)
		}
	}
	return out.String()
}

// mesh are the flags by which commands reach the mesh.
func (j *joining) mesh(args ...string) []string {
	return append(args, "--server="+j.dispatcher.Hosts, "--ca="+j.AuthorityFile(), "--cert="+j.cert, "--key="+j.key)
}

func (j *joining) join(args ...string) []string {
	return append(j.mesh("cluster", "join", managedName, "--url="+j.dispatcher.Bridge), args...)
}

func (j *joining) createPod(ctx context.Context, image string) error {
	pod := kube.Pod(j.namespace, dryPod)
	pod.Spec.Containers[0].Image = image
	_, err := j.cluster.Client().CoreV1().Pods(j.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// wantDenied waits until the hook judges Pods of the cluster.
func (j *joining) wantDenied(t *testing.T) {
	t.Helper()
	eventually(t, "the hook denies a bad Pod", func() error {
		err := j.createPod(t.Context(), "bad")
		if err == nil || !strings.Contains(err.Error(), "bad image") {
			return fmt.Errorf("not denied by the hook: %w", err)
		}
		return nil
	})
	if err := j.createPod(t.Context(), "good"); err != nil {
		t.Errorf("a good Pod: %v", err)
	}
}

// inventory names the objects of the cluster that a join could have made.
func (j *joining) inventory(t *testing.T) map[string]bool {
	t.Helper()
	client, names := j.cluster.Client(), map[string]bool{}
	add := func(kind string, o metav1.Object) { names[kind+" "+o.GetNamespace()+"/"+o.GetName()] = true }
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	all, ctx := metav1.ListOptions{}, t.Context()
	validating, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, all)
	check(err)
	for i := range validating.Items {
		add("validatingwebhookconfiguration", &validating.Items[i])
	}
	mutating, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, all)
	check(err)
	for i := range mutating.Items {
		add("mutatingwebhookconfiguration", &mutating.Items[i])
	}
	roles, err := client.RbacV1().ClusterRoles().List(ctx, all)
	check(err)
	for i := range roles.Items {
		add("clusterrole", &roles.Items[i])
	}
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, all)
	check(err)
	for i := range bindings.Items {
		add("clusterrolebinding", &bindings.Items[i])
	}
	accounts, err := client.CoreV1().ServiceAccounts("").List(ctx, all)
	check(err)
	for i := range accounts.Items {
		add("serviceaccount", &accounts.Items[i])
	}
	secrets, err := client.CoreV1().Secrets("").List(ctx, all)
	check(err)
	for i := range secrets.Items {
		add("secret", &secrets.Items[i])
	}
	leases, err := client.CoordinationV1().Leases("").List(ctx, all)
	check(err)
	for i := range leases.Items {
		if !strings.HasPrefix(leases.Items[i].Name, "apiserver-") { // kube-apiserver may write its own at any time
			add("lease", &leases.Items[i])
		}
	}
	leaseRoles, err := client.RbacV1().Roles("").List(ctx, all)
	check(err)
	for i := range leaseRoles.Items {
		add("role", &leaseRoles.Items[i])
	}
	leaseBindings, err := client.RbacV1().RoleBindings("").List(ctx, all)
	check(err)
	for i := range leaseBindings.Items {
		add("rolebinding", &leaseBindings.Items[i])
	}
	configMaps, err := client.CoreV1().ConfigMaps("").List(ctx, all)
	check(err)
	for i := range configMaps.Items {
		add("configmap", &configMaps.Items[i])
	}
	return names
}

// wantInventory wants the objects of before, and no other.
func (j *joining) wantInventory(t *testing.T, before map[string]bool) {
	t.Helper()
	after := j.inventory(t)
	for name := range after {
		if !before[name] {
			t.Errorf("left in the cluster: %s", name)
		}
	}
	for name := range before {
		if !after[name] {
			t.Errorf("gone from the cluster: %s", name)
		}
	}
}

// TestAManagedClusterJoinsByOneCommandAndLeavesNothing is the life of a
// cluster: it joins by a capability, its Pods are judged, a second join changes
// nothing, and when it has left neither the cluster nor the store holds a trace.
func TestAManagedClusterJoinsByOneCommandAndLeavesNothing(t *testing.T) {
	citest.Gate(t, "starts an API server, and waits for trials: 16 s")
	j := newJoining(t, nil)
	before := j.inventory(t)

	j.run(t, 0, j.join("--dry-run"), "Cluster/"+managedName+" created (dry run)", "validatingwebhookconfiguration/portcullis created (dry run)")
	j.run(t, 1, j.mesh("get", "cluster", managedName))
	if _, err := os.Stat(filepath.Join(j.dir, managedName+".capability")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run has made a capability: %v", err)
	}
	j.wantInventory(t, before)

	out := j.run(t, 0, j.join(), "Cluster/"+managedName+" created", "the mesh has judged a request of the API server",
		"mutatingwebhookconfiguration/portcullis created", "validatingwebhookconfiguration/portcullis created")
	j.wantDenied(t)
	secret, err := os.ReadFile(filepath.Join(j.dir, managedName+".capability"))
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.TrimSpace(string(secret)); strings.Contains(out, text) {
		t.Errorf("the capability is printed:\n%s", out)
	}
	j.run(t, 0, j.join(), "Cluster/"+managedName+" unchanged", "validatingwebhookconfiguration/portcullis unchanged")
	j.wantDenied(t)

	j.run(t, 0, j.mesh("cluster", "unregister", managedName, "--remove-document"),
		"validatingwebhookconfiguration/portcullis deleted", "Cluster/"+managedName+" is being removed")
	eventually(t, "a bad Pod is created", func() error { return j.createPod(t.Context(), "bad") })
	j.wantInventory(t, before)
	j.wantNoDocument(t)
	j.run(t, 0, j.mesh("cluster", "unregister", managedName, "--remove-document"), "validatingwebhookconfiguration/portcullis not there")
}

// wantNoDocument waits until the store does not hold the Cluster any more.
func (j *joining) wantNoDocument(t *testing.T) {
	t.Helper()
	eventually(t, "the store has let go of the Cluster", func() error {
		out, err := exec.CommandContext(t.Context(), portcullis, j.mesh("get", "clusters", "-o=name")...).CombinedOutput()
		if err != nil || len(out) > 0 {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})
}

// TestAClusterThatJoinsWithAKubeconfigIsAskedForItsNamespaces has a hook that
// selects namespaces by a label, which reviews do not carry.
func TestAClusterThatJoinsWithAKubeconfigIsAskedForItsNamespaces(t *testing.T) {
	citest.Soak(t, "starts an API server, and waits for entries that the mesh keeps: 27 s")
	j := newJoining(t, &metav1.LabelSelector{MatchLabels: map[string]string{"judged": "yes"}})
	j.cluster.IssueTokens(t)
	before := j.inventory(t)
	mounted := filepath.Join(t.TempDir(), "managed.kubeconfig")
	join := j.join("--access=kubeconfig=" + mounted)

	j.run(t, 0, append(join, "--dry-run"), "serviceaccount/kube-system/portcullis-access created (dry run)", "a kubeconfig would be written")
	j.wantInventory(t, before)
	j.run(t, 3, join, "clusterrole/portcullis-access created", "secret/kube-system/portcullis-access created",
		"give this file to each dispatcher at "+mounted)
	j.wantNoDocument(t)
	kubeconfig, err := os.ReadFile(filepath.Join(j.dir, managedName+".kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mounted, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	j.run(t, 0, join, "clusterrole/portcullis-access unchanged", "Cluster/"+managedName+" created",
		"Cluster/"+managedName+" updated")
	j.wantDenied(t)
	other := j.cluster.Namespace(t, nil)
	pod := kube.Pod(other, dryPod)
	pod.Spec.Containers[0].Image = "bad"
	if _, err := j.cluster.CreatePod(t.Context(), pod); err != nil {
		t.Errorf("a Pod where the hook does not look: %v", err)
	}
	if _, ok := j.inventory(t)["lease default/portcullis-trial"]; ok {
		t.Error("the trial has stored its Lease")
	}

	j.run(t, 0, j.mesh("check", "--api-server"), "the token of dispatchers in secret/kube-system/portcullis-access is young: it is 0 days old")

	// The mesh keeps the entries, by the rights of its service account.
	j.hook.Operations = append(j.hook.Operations, admissionregistrationv1.Update)
	j.Configure(t, "initial", documents(t, kube.Validating("judge", j.hook))...)
	eventually(t, "the mesh writes the entries again", func() error {
		entries, err := j.cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "portcullis", metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(entries.Webhooks[0].Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(rule.Operations, admissionregistrationv1.Update)
		}) {
			err = errors.New("without UPDATE")
		}
		return err
	})
	j.wantDenied(t)
	j.run(t, 2, []string{"cluster", "unregister", managedName}, "would write them again: use --remove-document")

	j.run(t, 0, j.mesh("cluster", "unregister", managedName, "--remove-document"), "clusterrolebinding/portcullis-access deleted",
		"lease/kube-system/portcullis-entries-portcullis deleted")
	before["serviceaccount "+other+"/default"] = true
	j.wantInventory(t, before)
	j.wantNoDocument(t)

	// The kubeconfig that is left has a token of a service account that is gone.
	j.run(t, 2, join, "the cluster does not accept the token in "+managedName+".kubeconfig", "move it away")
	j.run(t, 0, j.mesh("cluster", "unregister", managedName, "--remove-document"), "secret/kube-system/portcullis-access deleted")
	j.wantInventory(t, before)
}

// TestAClusterJoinsByABridge has dispatchers that do not reach the cluster. The
// operator runs a join, which makes the capability and the document, then the
// bridge, and then the join again.
func TestAClusterJoinsByABridge(t *testing.T) {
	citest.Soak(t, "starts an API server, and waits for the trials of joins: 19 s")
	j := newJoining(t, &metav1.LabelSelector{MatchLabels: map[string]string{"judged": "yes"}})
	join := j.mesh("cluster", "join", managedName, "--access=bridge", "--identity="+bridgeName)

	j.run(t, 2, append(join, "--url=https://127.0.0.1:1"), "Cluster/"+managedName+" created", "the API server has not reached the mesh")
	_, bridge := runBridge(t, j.Mesh, j.dispatcher.Hosts, j.cluster, nil, "--cluster="+managedName, "--capability-file="+filepath.Join(j.dir, managedName+".capability"))
	j.run(t, 0, append(join, "--url="+bridge.Bridge), "Cluster/"+managedName+" unchanged", "validatingwebhookconfiguration/portcullis created")
	j.wantDenied(t)
	j.run(t, 0, j.mesh("cluster", "unregister", managedName, "--remove-document"), "validatingwebhookconfiguration/portcullis deleted")
}

// TestAClusterOfAFileJoinsByItsCertificate has a document that join may not
// write, and an API server with a client certificate.
func TestAClusterOfAFileJoinsByItsCertificate(t *testing.T) {
	citest.Gate(t, "covers joins: 6 s")
	const denier = "denier.example.com"
	r := newRoadWith(t, mesh.Options{Args: []string{"--operator=operator"}}, kube.Validating("denier", onPods(denier)))
	r.host(t, hostsdk.Validate(denier, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.Namespace() == r.namespace { // entries serve the whole cluster
			return hostsdk.Deny("not today"), nil
		}
		return hostsdk.Allow(), nil
	}))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	cert, key := r.Certify(t, "operator")
	join := func(code int, want string, args ...string) {
		t.Helper()
		got, out := r.command(t, append([]string{
			"join", clusterName, "--name=" + r.name, "--server=" + r.dispatcher.Hosts, "--url=" + r.bridge,
			"--ca=" + r.AuthorityFile(), "--cert=" + cert, "--key=" + key, "--kubeconfig=" + kubeconfig,
		}, args...)...)
		r.expect(t, got, code, out, want)
	}
	t.Cleanup(func() { r.deleteEntries(t) })

	join(1, "its callers have the identities "+kube.WebhookClientName, "--identity=another")
	join(1, "it has the spec.kubeconfig", "--identity="+kube.WebhookClientName, "--access=bridge", "--capability-file="+filepath.Join(t.TempDir(), "capability"))
	join(0, "has all that is needed", "--identity="+kube.WebhookClientName)
	eventually(t, "the hook denies", func() error {
		if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod")); statusCode(err) != http.StatusForbidden {
			return notDeniedError{err}
		}
		return nil
	})
	got, out := r.command(t, "unregister", clusterName, "--name="+r.name, "--kubeconfig="+kubeconfig)
	r.expect(t, got, 0, out, "validatingwebhookconfiguration/"+r.name+" deleted")
	eventually(t, "Pods are admitted", func() error { return r.createDry(t.Context()) })
}

// TestAJoinThatCannotBeProvedWritesNoEntry names an address that the API server
// does not reach: its fail-closed entries would refuse every Pod.
func TestAJoinThatCannotBeProvedWritesNoEntry(t *testing.T) {
	citest.Soak(t, "starts an API server, and waits for joins that cannot be proved: 19 s")
	j := newJoining(t, nil)
	alice, err := j.cluster.ConfigFor("alice", "developers")
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.WriteKubeconfig(filepath.Join(j.dir, "alice.kubeconfig"), alice); err != nil {
		t.Fatal(err)
	}
	j.run(t, 2, j.join("--kubeconfig=alice.kubeconfig"), "this user may not get mutatingwebhookconfigurations, create")
	j.run(t, 2, append(j.mesh("cluster", "join", managedName), "--url=https://127.0.0.1:1"),
		"the API server has not reached the mesh", "connection refused", "Nothing was registered", "run the same command again")
	if _, err := j.cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "portcullis", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the entries are there: %v", err)
	}
	if err := j.createPod(t.Context(), "bad"); err != nil {
		t.Errorf("Pods are refused: %v", err)
	}
	j.run(t, 0, j.join(), "Cluster/"+managedName+" unchanged", "validatingwebhookconfiguration/portcullis created")
	j.wantDenied(t)
}
