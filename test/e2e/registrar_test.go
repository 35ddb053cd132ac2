package e2e

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/hostsdk"
	"github.com/portcullis-mesh/portcullis/internal/citest"
	"github.com/portcullis-mesh/portcullis/internal/cluster/touch"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
)

// command runs "portcullis cluster" with arguments, and returns its exit code and output.
func (r *road) command(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var both bytes.Buffer
	cmd := exec.CommandContext(t.Context(), portcullis, append([]string{"cluster"}, args...)...)
	cmd.Stdout, cmd.Stderr = &both, &both
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), both.String()
}

// TestEntriesAreAppliedDiffedAndRemoved registers a cluster by the command alone, until nothing of it is left.
func TestEntriesAreAppliedDiffedAndRemoved(t *testing.T) {
	citest.Gate(t, "covers register --apply: 13 s")
	const denier = "denier.example.com"
	hook := onPods(denier)
	r := newRoad(t, kube.Validating("denier", hook))
	r.host(t, hostsdk.Validate(denier, func(_ context.Context, q *hostsdk.Request) (*hostsdk.Response, error) {
		if q.Namespace() == r.namespace { // entries serve the whole cluster
			return hostsdk.Deny("not today"), nil
		}
		return hostsdk.Allow(), nil
	}))
	kubeconfig := kubeconfigOf(t, cluster.Config())
	register := func(code int, args []string, want ...string) {
		t.Helper()
		got, out := r.command(t, append([]string{"register", clusterName, "--name=" + r.name, "--config=" + r.ConfigDir(), "--url=" + r.bridge,
			"--ca=" + r.AuthorityFile(), "--kubeconfig=" + kubeconfig}, args...)...)
		r.expect(t, got, code, out, want...)
	}
	unregister := func(code int, args []string, want ...string) {
		t.Helper()
		got, out := r.command(t, append([]string{"unregister", clusterName, "--name=" + r.name, "--kubeconfig=" + kubeconfig}, args...)...)
		r.expect(t, got, code, out, want...)
	}
	t.Cleanup(func() { r.deleteEntries(t) })
	mutating, validating := "mutatingwebhookconfiguration/"+r.name, "validatingwebhookconfiguration/"+r.name

	register(1, []string{"--diff"}, "+    url: "+r.bridge+"/v1/clusters/"+clusterName+"/validate/fail-closed/")
	register(0, []string{"--apply", "--dry-run"}, mutating+" created (dry run)", validating+" created (dry run)")
	unregister(0, nil, mutating+" not there", validating+" not there")
	register(0, []string{"--apply"}, mutating+" created", validating+" created", "written once more in 5s")
	r.writtenAgain(t, 1)
	register(0, []string{"--diff"})
	register(0, []string{"--apply"}, mutating+" unchanged", validating+" unchanged")
	eventually(t, "the hook denies", func() error {
		if _, err := cluster.CreatePod(t.Context(), kube.Pod(r.namespace, "pod")); statusCode(err) != http.StatusForbidden {
			return notDeniedError{err}
		}
		return nil
	})

	// A label of somebody else stays; a changed rule is a difference.
	admission := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	labelled, err := admission.Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labelled.Labels["example.com/owner"] = "somebody"
	if _, err := admission.Update(t.Context(), labelled, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	hook.Operations = append(hook.Operations, admissionregistrationv1.Delete)
	r.Configure(t, "initial", append(documents(t, kube.Validating("denier", hook)), clusterDocument(t))...)
	register(1, []string{"--diff"}, "+    - DELETE")
	register(0, []string{"--apply"}, mutating+" unchanged", validating+" updated", "written once more in 5s")
	r.writtenAgain(t, 2)
	register(0, []string{"--diff"})
	if now, err := admission.Get(t.Context(), r.name, metav1.GetOptions{}); err != nil || now.Labels["example.com/owner"] != "somebody" {
		t.Errorf("labels %v, %v", now.Labels, err)
	}

	// Objects of others stay.
	got, out := r.command(t, "unregister", "another", "--name="+r.name, "--kubeconfig="+kubeconfig)
	r.expect(t, got, 2, out, "was not made by portcullis for this cluster: it is for cluster \""+clusterName+"\"")
	unregister(0, []string{"--dry-run=server"}, validating+" deleted (dry run)")
	unregister(0, nil, validating+" deleted", mutating+" deleted")
	if _, err := admission.Get(t.Context(), r.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the entries are still there: %v", err)
	}
	foreign := kube.Validating(r.name)
	if _, err := admission.Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	register(2, []string{"--apply"}, "was not made by portcullis for this cluster: choose another name (--name,")
	unregister(2, nil, "was not made by portcullis for this cluster")
	eventually(t, "Pods are admitted", func() error { return r.createDry(t.Context()) })
}

// writtenAgain fails the test unless the validating entries have changed so often, and were written once more since.
func (r *road) writtenAgain(t *testing.T, generation int64) {
	t.Helper()
	o, err := cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := o.Annotations[touch.Annotation]; got != touch.Mark(o) || o.Generation != generation {
		t.Errorf("generation %d has the annotation %q, want that of generation %d", o.Generation, got, generation)
	}
}

// entries returns the function that applies the entries by the command, until the test ends. It does not wait for the end of the command,
// which writes them once more.
func (r *road) entries(t *testing.T) (apply func(want string)) {
	t.Helper()
	kubeconfig := kubeconfigOf(t, cluster.Config())
	t.Cleanup(func() { r.deleteEntries(t) })
	return func(want string) {
		t.Helper()
		var notes bytes.Buffer
		cmd := exec.CommandContext(t.Context(), portcullis, "cluster", "register", clusterName, "--name="+r.name, "--config="+r.ConfigDir(),
			"--url="+r.bridge, "--ca="+r.AuthorityFile(), "--kubeconfig="+kubeconfig, "--apply")
		cmd.Stderr = &notes
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Wait() // killed with the test's context
			if t.Failed() {
				t.Log(notes.String())
			}
		})
		validating, lines := "validatingwebhookconfiguration/"+r.name, bufio.NewScanner(out)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), validating) {
		}
		if !strings.HasPrefix(lines.Text(), validating+want) {
			t.Fatalf("the command printed %q, want %q", lines.Text(), validating+want)
		}
	}
}

// applyEntries registers the cluster by the command, until the test ends.
func (r *road) applyEntries(t *testing.T) {
	t.Helper()
	r.entries(t)(" created")
}

// expect compares the end of a command.
func (r *road) expect(t *testing.T, code, wantCode int, out string, want ...string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d:\n%s", code, wantCode, out)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in:\n%s", text, out)
		}
	}
}
