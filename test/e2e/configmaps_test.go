package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"
	configkubernetes "github.com/portcullis-mesh/portcullis/internal/config/kubernetes"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// configNamespace is the namespace of the manifest.
const configNamespace = "portcullis"

// configured is a road whose dispatcher reads a directory, a store of its own
// and the ConfigMaps of a namespace, with the rights of the manifest.
type configured struct {
	*road
	manifest string
}

func newConfigured(t *testing.T) *configured {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/configmaps-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := &configured{manifest: string(manifest)}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, cluster.Account(t, "portcullis-system", "portcullis")); err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, c.manifest)
	c.road = newRoadWith(t, mesh.Options{Args: []string{
		"--config-namespace=" + configNamespace, "--config-kubeconfig=" + kubeconfig,
		"--data-dir=" + t.TempDir(), "--operator=operator",
	}}, kube.Validating("files", onNothing("files.example.com")))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = cluster.Client().CoreV1().ConfigMaps(configNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	c.validate(t)
	return c
}

// onNothing is a hook that no Pod meets.
func onNothing(name string) kube.Hook {
	hook := onPods(name)
	hook.Resources = []string{"podtemplates"}
	return hook
}

// write puts documents into a ConfigMap.
func (c *configured) write(t *testing.T, name string, labels map[string]string, documents ...string) {
	t.Helper()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"hooks.yaml": strings.Join(documents, "\n---\n")},
	}
	maps := cluster.Client().CoreV1().ConfigMaps(configNamespace)
	_, err := maps.Update(t.Context(), m, metav1.UpdateOptions{})
	if statusCode(err) == http.StatusNotFound {
		_, err = maps.Create(t.Context(), m, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *configured) remove(t *testing.T, name string) {
	t.Helper()
	if err := cluster.Client().CoreV1().ConfigMaps(configNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// policyHook is the hook that ConfigMaps have.
const policyHook = "policy.example.com"

// closed waits until Pods are refused, since nobody serves the hook.
func (c *configured) closed(t *testing.T) {
	t.Helper()
	eventually(t, policyHook+" is in force", func() error {
		err := c.createDry(t.Context())
		if statusCode(err) != http.StatusInternalServerError || !strings.Contains(err.Error(), policyHook) {
			return fmt.Errorf("a Pod was created, or refused for another reason: %w", err)
		}
		return nil
	})
}

// open waits until Pods are admitted.
func (c *configured) open(t *testing.T) {
	t.Helper()
	eventually(t, "Pods are admitted", func() error { return c.createDry(t.Context()) })
}

// stale waits until the dispatcher judges nothing, for a reason.
func (c *configured) stale(t *testing.T, why string) {
	t.Helper()
	eventually(t, "nothing is judged: "+why, func() error {
		err := c.dispatcher.Ready(t.Context())
		if err == nil || !strings.Contains(err.Error(), "the configuration is stale") || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("the dispatcher says: %w", err)
		}
		return nil
	})
	// It is not an empty configuration: the review is held, and then the
	// entry's own policy decides.
	wantError(t, c.createDry(t.Context()), http.StatusInternalServerError, entryName)
}

// object is the status of an object in `portcullis get -o json`.
type object struct {
	Source   string    `json:"source"`
	Origin   string    `json:"origin"`
	Findings []finding `json:"findings"`
}

// finding is a finding about an object.
type finding struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// get asks the dispatcher.
func (c *configured) get(t *testing.T, name string) object {
	t.Helper()
	cert, key := c.Certify(t, "operator")
	cmd := exec.CommandContext(t.Context(), portcullis, "get", "vwc", name, "-o", "json",
		"--server="+c.dispatcher.Hosts, "--ca="+c.AuthorityFile(), "--cert="+cert, "--key="+key)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("portcullis get: %v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var o struct {
		Status object `json:"status"`
	}
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return o.Status
}

// has reports whether a finding has a code.
func (o *object) has(code string) bool {
	return slices.ContainsFunc(o.Findings, func(f finding) bool { return f.Code == code })
}

func asConfiguration() map[string]string { return map[string]string{configkubernetes.Label: "true"} }

func TestConfigMapsAreConfiguration(t *testing.T) {
	c := newConfigured(t)
	c.write(t, "ignored", nil, documents(t, kube.Validating("ignored", onPods("ignored.example.com")))...)
	c.write(t, "policies", asConfiguration(), documents(t, kube.Validating("policies", onPods(policyHook)))...)
	c.closed(t)
	if o := c.get(t, "policies"); o.Source != "kubernetes" || o.Origin != "configmaps/portcullis/policies/hooks.yaml:1" {
		t.Errorf("%+v comes from elsewhere", o)
	}
	eventually(t, "its danger is told", func() error {
		if o := c.get(t, "policies"); !o.has("danger-kube-system") {
			return fmt.Errorf("the object is %+v", o)
		}
		return nil
	})
	if o := c.get(t, "files"); o.Source != "directory" || !strings.Contains(o.Origin, "initial.yaml:") {
		t.Errorf("%+v comes from elsewhere", o)
	}

	c.write(t, "policies", asConfiguration(), documents(t, kube.Validating("policies", onNothing(policyHook)))...)
	c.open(t)
	c.write(t, "policies", asConfiguration(), documents(t, kube.Validating("policies", onPods(policyHook)))...)
	c.closed(t)
	c.write(t, "policies", asConfiguration(), "kind: Secret", "{")
	eventually(t, "the last good version stays", func() error {
		if o := c.get(t, "policies"); !o.has("kept") {
			return fmt.Errorf("the object is %+v", o)
		}
		return nil
	})
	c.closed(t)
	c.remove(t, "policies")
	c.open(t)
}

func TestTheSameObjectFromTwoSourcesIsAnErrorOnBoth(t *testing.T) {
	citest.Gate(t, "covers two sources of configuration: a second")
	c := newConfigured(t)
	c.open(t)
	c.write(t, "again", asConfiguration(), mesh.Document(t, kube.Validating("files", onPods("files.example.com"))))
	eventually(t, "the object is an error", func() error {
		o := c.get(t, "files")
		var places []string
		for _, f := range o.Findings {
			if f.Code == "duplicate" {
				places = append(places, f.Message)
			}
		}
		if all := strings.Join(places, "\n"); len(places) != 2 || !strings.Contains(all, "initial.yaml:") || !strings.Contains(all, "configmaps/portcullis/again") {
			return fmt.Errorf("the object is %+v", o)
		}
		return nil
	})
	if o := c.get(t, "files"); o.Source != "directory" || !o.has("kept") {
		t.Errorf("in force is %+v, and not what was before", o)
	}
	c.open(t) // for the version before
	c.remove(t, "again")
	eventually(t, "all is well again", func() error {
		if o := c.get(t, "files"); o.has("duplicate") {
			return fmt.Errorf("the object is %+v", o)
		}
		return nil
	})
}

func TestConfigMapsThatCannotBeReadAreNoEmptyConfiguration(t *testing.T) {
	citest.Soak(t, "waits until a configuration is too old: 40 s")
	c := newConfigured(t)
	c.write(t, "policies", asConfiguration(), documents(t, kube.Validating("policies", onPods(policyHook)))...)
	c.closed(t)

	bindings := cluster.Client().RbacV1().RoleBindings(configNamespace)
	if err := bindings.Delete(t.Context(), "portcullis-configuration", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stale(t, "forbidden")
	cluster.Apply(t, c.manifest)
	c.closed(t)

	namespaces := cluster.Client().CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), configNamespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stale(t, "is being deleted")
	cluster.Finalize(t, configNamespace)
	c.stale(t, "not found")
	cluster.Apply(t, c.manifest)
	c.closed(t)
}
