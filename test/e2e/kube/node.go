package kube

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// tokenDir is where Pods find the token of their service account.
const tokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// PodOptions say how a Pod runs on this machine, which is no node.
type PodOptions struct {
	// Program is the file in the place of the image.
	Program string
	// Names take the place of names and addresses that a node would resolve,
	// in arguments and in ConfigMaps: pairs of old and new.
	Names []string
	// Env is added to the environment of the Pod, as KEY=value.
	Env []string
	// Dir is where its volumes and its log lie.
	Dir string
}

// RunPod runs the first container of a Deployment's Pod as a process, which
// stands in for the controllers and the kubelet: with its arguments, its
// variables, and its volumes from the Secrets and ConfigMaps of the cluster.
// A mount is a directory of this machine, and its path in arguments and
// ConfigMaps is replaced. The process ends with the test.
func (c *Cluster) RunPod(t testing.TB, d *appsv1.Deployment, o PodOptions) *RunningPod {
	t.Helper()
	spec := d.Spec.Template.Spec
	container := spec.Containers[0]
	pairs := append([]string{"https://kubernetes.default.svc", c.url.String(), tokenDir, filepath.Join(o.Dir, "token")}, o.Names...)
	for _, mount := range container.VolumeMounts {
		pairs = append(pairs, mount.MountPath, filepath.Join(o.Dir, mount.Name))
	}
	names := strings.NewReplacer(pairs...)
	pod := &RunningPod{cluster: c, namespace: d.Namespace, volumes: spec.Volumes, dir: o.Dir, names: names}
	pod.Refresh(t)
	if ptr.Deref(spec.AutomountServiceAccountToken, true) {
		c.writeToken(t, d.Namespace, cmp.Or(spec.ServiceAccountName, "default"), filepath.Join(o.Dir, "token"))
	}
	command := process.Command{Path: o.Program, Env: o.Env, LogFile: filepath.Join(o.Dir, "log")}
	for _, arg := range container.Args {
		command.Args = append(command.Args, names.Replace(arg))
	}
	for _, env := range container.Env {
		command.Env = append(command.Env, env.Name+"="+env.Value)
	}
	started, err := process.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Stop(process.DefaultGrace); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(started.Tail(40))
		}
	})
	return pod
}

// RunningPod is a process that [Cluster.RunPod] has started.
type RunningPod struct {
	cluster   *Cluster
	namespace string
	volumes   []corev1.Volume
	dir       string
	names     *strings.Replacer
}

// Refresh copies the current Secrets and ConfigMaps into the volumes, as the
// kubelet does within a minute or two.
func (p *RunningPod) Refresh(t testing.TB) {
	t.Helper()
	for _, volume := range p.volumes {
		p.cluster.writeVolume(t, p.namespace, &volume, filepath.Join(p.dir, volume.Name), p.names)
	}
}

// writeVolume writes the files of a volume. A Secret or ConfigMap that does not
// exist fails the test: its Pod would not start.
func (c *Cluster) writeVolume(t testing.TB, namespace string, volume *corev1.Volume, dir string, names *strings.Replacer) {
	t.Helper()
	files := map[string]string{}
	switch core := c.client.CoreV1(); {
	case volume.Secret != nil:
		secret, err := core.Secrets(namespace).Get(t.Context(), volume.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range secret.Data {
			files[name] = string(data)
		}
	case volume.ConfigMap != nil:
		m, err := core.ConfigMaps(namespace).Get(t.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range m.Data {
			files[name] = names.Replace(text)
		}
	case volume.EmptyDir == nil:
		t.Fatalf("the volume %s is of a kind that is not known here", volume.Name)
	}
	writeFiles(t, dir, files)
}

// writeToken writes the files that a Pod has of its service account.
func (c *Cluster) writeToken(t testing.TB, namespace, account, dir string) {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"token": token.Status.Token, "ca.crt": string(c.authority.PEM()), "namespace": namespace})
}

// writeFiles replaces each file in one step.
func writeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		next := dir + ".next" // beside the directory, which may be a configuration
		if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// RolledOut says in the status of a Deployment that its Pods are ready, as its
// controller would.
func (c *Cluster) RolledOut(ctx context.Context, d *appsv1.Deployment) error {
	d = d.DeepCopy()
	n := *d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}},
	}
	if _, err := c.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("the status of %s: %w", d.Name, err)
	}
	return nil
}
