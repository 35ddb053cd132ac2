package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/reconcile"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	operationsPage = "../../docs/operations.md"
	// breakGlassHeading begins the part of that page with the two lines.
	breakGlassHeading = "### Break-glass\n"
)

// breakGlassLines are the lines of docs/operations.md that take the mesh off the writes of a cluster, and put it back. Commands print the
// same.
func breakGlassLines(t *testing.T) (on, off string) {
	t.Helper()
	page, err := os.ReadFile(operationsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), breakGlassHeading)
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "kubectl patch "):
			on = line
		case strings.HasPrefix(line, "kubectl annotate "):
			off = line
		}
	}
	for command, lines := range map[string][]string{"bypass": {on, off}, "cluster unregister": {on}} {
		help, err := exec.CommandContext(t.Context(), portcullis, append(strings.Fields(command), "--help")...).CombinedOutput()
		for _, line := range lines {
			if err != nil || line == "" || !strings.Contains(string(help), line) {
				t.Fatalf("%s --help does not have the line %q of %s: %v\n%s", command, line, operationsPage, err, help)
			}
		}
	}
	return on, off
}

// TestOneLineOpensAClusterWhileTheMeshKeepsItsEntries has a dispatcher that lives and keeps the entries, and an address for API servers that is
// dead. The two lines stand in docs/operations.md.
func TestOneLineOpensAClusterWhileTheMeshKeepsItsEntries(t *testing.T) {
	citest.Gate(t, "runs kubectl: 4 s")
	requireTools(t, "kubectl")
	const denier, name = "denier.example.com", registration.DefaultName // of the lines
	on, off := breakGlassLines(t)
	var r *road
	t.Cleanup(func() { // once the dispatcher has ended, which would write them again
		r.deleteEntriesOf(t, name)
		leases := cluster.Client().CoordinationV1().Leases(reconcile.Namespace)
		if err := leases.Delete(context.WithoutCancel(t.Context()), reconcile.EntriesLease(name).Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	hook := onPods(denier)
	hooks := documents(t, kube.Validating("denier", hook))
	m := newMesh(t, mesh.Options{Args: []string{"--operator=operator"}, Documents: append(hooks, clusterDocument(t))})
	r = newRoadOn(t, m, m.Serve(t))
	operator := newOperator(t, m, r.dispatcher)
	r.host(t, hostsdk.Validate(denier, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.Namespace() == r.namespace { // entries serve the whole cluster
			return hostsdk.Deny("not today"), nil
		}
		return hostsdk.Allow(), nil
	}))
	address := mesh.Balance(t, mesh.BridgePort, r.dispatcher)
	r.Configure(t, "initial", append(hooks, r.keptClusterAs(t, "https://"+address.Address, name))...)
	refused := func(code int32) func() error {
		return func() error {
			if err := r.createDry(t.Context()); statusCode(err) != code {
				return notDeniedError{err}
			}
			return nil
		}
	}
	eventually(t, "the hook denies", refused(http.StatusForbidden))
	address.Close()
	eventually(t, "every write is refused", refused(http.StatusInternalServerError))

	kubectl(t, on)
	eventually(t, "writes pass", func() error { return r.createDry(t.Context()) })
	for range 2 { // after each of them the dispatcher would have written the entries
		r.awaitAttempt(t, "break-glass")
		if err := r.createDry(t.Context()); err != nil {
			t.Errorf("the mesh has ended the break-glass: %v", err)
		}
	}
	eventually(t, "the Cluster shows it", func() error {
		return operator.has(t, "cluster", clusterName, "Registered", "False", `a break-glass is on in the cluster ("INC-42")`)
	})
	r.logs(t, "break-glass: the cluster does not call the mesh")
	if notes, err := r.dispatcher.Notes(t.Context()); err != nil || !strings.Contains(notes, "break-glass: cluster "+clusterName+" does not call the mesh") {
		t.Errorf("/readyz does not have it: %s, %v", notes, err)
	}
	if code, out := r.command(t, "register", clusterName, "--config="+r.ConfigDir(), "--url="+r.bridge, "--ca="+r.AuthorityFile(),
		"--kubeconfig="+kubeconfigOf(t, cluster.Config()), "--apply"); code == 0 || !strings.Contains(out, "a break-glass is on in the cluster") {
		t.Errorf("register --apply during a break-glass: exit code %d\n%s", code, out)
	}

	kubectl(t, off)
	eventually(t, "the entries are there again", refused(http.StatusInternalServerError))
	r.logs(t, "the break-glass in the cluster has ended") // once the entries are written
}

// awaitAttempt returns when the dispatcher has compared the entries of the shared cluster once more, with a result.
func (r *road) awaitAttempt(t *testing.T, result string) {
	t.Helper()
	attempts := func() (n int, err error) {
		metrics, err := r.dispatcher.Metrics(t.Context())
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(metrics, fmt.Sprintf("\nportcullis_registration_attempts_total{cluster=%q,result=%q} ", clusterName, result))
		value, _, _ := strings.Cut(rest, "\n")
		return strconv.Atoi(value)
	}
	before, err := attempts()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the entries are compared once more", func() error {
		now, err := attempts()
		if err == nil && now == before {
			err = errors.New("not yet")
		}
		return err
	})
}

// breakGlassLife is longer than the command for it takes, also on a machine that is busy.
const breakGlassLife = 20 * time.Second

// TestABreakGlassShowsInTheAuditLogAndEndsByItself opens the cluster by the command, while a hook denies each Pod, and waits for its end.
func TestABreakGlassShowsInTheAuditLogAndEndsByItself(t *testing.T) {
	citest.Soak(t, "waits for the end of a break-glass: 20 s")
	const denier, reason = "denier.example.com", "INC-42: imagepolicy refuses everything"
	m := newMesh(t, mesh.Options{Args: []string{
		"--operator=operator", "--etcd=http://" + cluster.EtcdAddress(), "--etcd-create", "--etcd-prefix=/" + rand.Text() + "/",
	}})
	r := newRoadOn(t, m, m.Serve(t))
	operator := newOperator(t, m, r.dispatcher)
	file := filepath.Join(t.TempDir(), "documents.yaml")
	hook := onPods(denier)
	hook.NamespaceSelector = kube.InNamespace(r.namespace)
	applied := append(documents(t, kube.Validating("denier", hook)), clusterDocument(t))
	if err := os.WriteFile(file, []byte(strings.Join(applied, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.run(t, "apply", "-f", file); err != nil {
		t.Fatal(err)
	}
	r.host(t, hostsdk.Validate(denier, func(context.Context, *hostsdk.Request) (*hostsdk.Response, error) {
		return hostsdk.Deny("not today"), nil
	}))
	r.validate(t)
	var e ear
	config := cluster.Config()
	config.WarningHandler = &e
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	create := func() error {
		_, err := client.CoreV1().Pods(r.namespace).Create(t.Context(), kube.Pod(r.namespace, "pod"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	denied := func() error {
		if err := create(); statusCode(err) != http.StatusForbidden {
			return notDeniedError{err}
		}
		return nil
	}
	eventually(t, "the hook denies", denied)

	begun := time.Now()
	if _, err := operator.run(t, "bypass", "on", "--cluster="+clusterName, "--for="+breakGlassLife.String(), "--reason="+reason); err != nil {
		t.Fatal(err)
	}
	if err := create(); err != nil {
		t.Errorf("a write during a break-glass, %v after the command: %v", time.Since(begun), err)
	}
	if all := e.heard(); len(all) == 0 || !strings.Contains(all[0], reason) {
		t.Errorf("the client was not warned: %q", all)
	}
	eventually(t, "the API server's audit log has the break-glass", func() error {
		return auditHas(func(event *auditv1.Event) bool {
			return event.ObjectRef != nil && event.ObjectRef.Namespace == r.namespace && event.Annotations[entryName+"/bypass"] == "break-glass: "+reason
		})
	})
	r.logs(t, "break-glass: no hook is called for the cluster")

	within(t, breakGlassLife+patience, "the hook denies again, without a command", denied)
	if ended := time.Since(begun); ended < breakGlassLife-time.Second { // the end is cut to whole seconds
		t.Errorf("the break-glass has ended after %v", ended)
	}
}
