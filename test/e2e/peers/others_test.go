package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

// built is the file of a peer, if it is there.
func (c *comparison) built(name string) (string, bool) {
	file := filepath.Join(c.peers, name)
	_, err := os.Stat(file)
	return file, c.peers != "" && err == nil
}

func (c *comparison) opa(t *testing.T) *side {
	const name = "OPA"
	program, ok := c.built("opa")
	if !ok {
		return &side{name: name}
	}
	address, dir := c.serving(t)
	p := start(t, program, nil, "run", "--server", "--addr="+address, "--tls-cert-file="+dir+"/tls.crt", "--tls-private-key-file="+dir+"/tls.key",
		"--log-level=error", "--disable-telemetry", "testdata/opa.rego")
	s := c.newSide(t, name, "https://"+address+"/", c.cluster.Authority().PEM(), p)
	s.compute = c.byOPA(t)
	return s
}

func (c *comparison) gatekeeperCEL(t *testing.T) *side {
	return c.gatekeeper(t, "Gatekeeper, CEL", "cel", "--enable-k8s-native-validation=true")
}

func (c *comparison) gatekeeperRego(t *testing.T) *side {
	return c.gatekeeper(t, "Gatekeeper, Rego", "rego", "--enable-k8s-native-validation=false")
}

// gatekeeper starts a Gatekeeper for the templates and constraints, which all of them share.
func (c *comparison) gatekeeper(t *testing.T, name, engine, choice string) *side {
	program, ok := c.built("gatekeeper")
	if !ok {
		return &side{name: name}
	}
	c.applyManifest(t, "gatekeeper.yaml")
	address, dir := c.serving(t)
	port := address[strings.LastIndexByte(address, ':')+1:]
	pod := kube.Pod(c.cluster.Namespace(t, nil), "gatekeeper-"+port) // owns the states that Gatekeeper writes
	if _, err := c.cluster.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	environment := []string{"POD_NAMESPACE=" + pod.Namespace, "NAMESPACE=" + pod.Namespace, "POD_NAME=" + pod.Name, "CONTAINER_NAME=manager"}
	p := start(t, program, environment, "--kubeconfig="+c.kubeconfig(t), "--host=127.0.0.1", "--port="+port, "--cert-dir="+dir, "--disable-cert-rotation",
		"--health-addr=127.0.0.1:0", "--metrics-backend=prometheus", "--prometheus-port="+freePort(t), "--logtostderr", "--exempt-namespace="+pod.Namespace,
		"--operation=webhook", "--operation=mutation-webhook", "--operation=status", "--operation=generate", "--disable-opa-builtin={http.send}", choice)
	c.apply(t, documents(t, "testdata/gatekeeper-templates.yaml")...)
	c.eventually(t, p, func(context.Context) error {
		return c.kubectl(t, "apply", "--server-side", "--filename=testdata/gatekeeper-constraints.yaml")
	})
	s := c.newSide(t, name, "https://"+address+"/v1/admit", c.cluster.Authority().PEM(), p)
	s.compute = c.byGator(engine)
	return s
}

func (c *comparison) kyverno(t *testing.T) *side {
	const name = "Kyverno"
	program, ok := c.built("kyverno")
	if !ok {
		return &side{name: name}
	}
	c.applyManifest(t, "kyverno.yaml")
	s := c.newSide(t, name, "", nil)
	selector := fmt.Sprintf(`{"data":{"webhooks":"{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\"%s\"}}}"}}`, s.namespace)
	if err := c.kubectl(t, "patch", "configmap", "kyverno", "--namespace=kyverno", "--type=merge", "--patch="+selector); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	environment := []string{
		"KYVERNO_NAMESPACE=kyverno", "KYVERNO_POD_NAME=kyverno-0", "KYVERNO_DEPLOYMENT=kyverno-admission-controller", "KYVERNO_SVC=kyverno-svc",
		"KYVERNO_SERVICEACCOUNT_NAME=kyverno-admission-controller", "KYVERNO_ROLE_NAME=kyverno:admission-controller", "INIT_CONFIG=kyverno",
		"METRICS_CONFIG=kyverno-metrics",
	}
	p := start(t, program, environment, "--kubeconfig="+c.kubeconfig(t), "--serverIP=127.0.0.1:"+port, "--webhookServerHost=127.0.0.1", "--webhookServerPort="+port,
		"--caSecretName=kyverno-svc.kyverno.svc.kyverno-tls-ca", "--tlsSecretName=kyverno-svc.kyverno.svc.kyverno-tls-pair", "--tlsKeyAlgorithm=RSA",
		"--backgroundServiceAccountName=system:serviceaccount:kyverno:kyverno-background-controller",
		"--reportsServiceAccountName=system:serviceaccount:kyverno:kyverno-reports-controller", "--servicePort=443", "--resyncPeriod=15m",
		"--metricsPort="+freePort(t), "--controllerRuntimeMetricsAddress=127.0.0.1:0", "--loggingFormat=text", "--v=2")
	replacer := strings.NewReplacer("admissionregistration.k8s.io/v1", "policies.kyverno.io/v1", "ValidatingAdmissionPolicy", "ValidatingPolicy",
		"\nspec:\n", "\nspec:\n  validationActions: [Deny]\n")
	for _, document := range documents(t, "testdata/policies.yaml") {
		c.apply(t, replacer.Replace(document))
	}
	c.eventually(t, p, func(ctx context.Context) error {
		configurations, err := c.cluster.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, configuration := range configurations.Items {
			for _, w := range configuration.Webhooks {
				if u := w.ClientConfig.URL; u != nil && strings.HasSuffix(*u, "/vpol/few-replicas/image-tags/label-team/not-privileged") {
					s.webhook = newTarget(t, c.cluster, *u, w.ClientConfig.CABundle, kube.WebhookClientName)
					return nil
				}
			}
		}
		return fmt.Errorf("none of %d configurations is for all four policies", len(configurations.Items))
	})
	s.processes = []*process.Process{p}
	return s
}

// applyManifest applies a release's manifest without the parts that would call or limit Pods of the peer: it runs as a process.
func (c *comparison) applyManifest(t *testing.T, name string) {
	file, ok := c.built(name)
	if !ok {
		t.Fatalf("%s is missing: copy the release's manifest there, see docs/peers.md", file)
	}
	kept := slices.DeleteFunc(documents(t, file), func(document string) bool {
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		return strings.HasSuffix(object.Kind, "WebhookConfiguration") || object.Kind == "ResourceQuota" || object.Kind == ""
	})
	c.apply(t, kept...)
}

// apply applies documents.
func (c *comparison) apply(t *testing.T, documents ...string) {
	file := filepath.Join(t.TempDir(), "documents.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.kubectl(t, "apply", "--server-side", "--force-conflicts", "--filename="+file); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig is a file for the administrator.
func (c *comparison) kubeconfig(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, c.cluster.Config()); err != nil {
		t.Fatal(err)
	}
	return file
}

func (c *comparison) kubectl(t *testing.T, args ...string) error {
	command := exec.CommandContext(t.Context(), "kubectl", args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig(t), "HOME="+t.TempDir()) // kubectl keeps a cache there
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// eventually waits until done has no error.
func (c *comparison) eventually(t *testing.T, p *process.Process, done func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := p.Await(ctx, done); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	port, err := citest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(port)
}
