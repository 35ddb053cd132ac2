package peers

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // for the defaults
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
	"github.com/portcullis-mesh/portcullis/test/e2e/process"
)

const (
	// noCheck is the side without any check.
	noCheck = "no check"
	// hook is the name of the hook of the host.
	hook = "checks.example.com"
	// hostIdentity is who serves it.
	hostIdentity = "checks"
	// inMesh is the name of the cluster in the mesh.
	inMesh = "e2e"
)

// newSide is a side whose namespace is there. Without a URL it is no webhook.
func (c *comparison) newSide(t *testing.T, name, url string, authority []byte, processes ...*process.Process) *side {
	namespace := c.cluster.Namespace(t, nil)
	s := &side{name: name, namespace: namespace, processes: processes, writes: c.writesTo(t, namespace)}
	if url != "" {
		s.webhook = newTarget(t, c.cluster, url, authority, kube.WebhookClientName)
		c.cluster.InstallValidating(t, kube.Validating(namespace, kube.Hook{
			Name: hook, URL: url, CABundle: authority, Group: "apps", Resources: []string{"deployments"},
			Operations:        []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			NamespaceSelector: kube.InNamespace(namespace),
		}))
	}
	return s
}

// writesTo are dry-run creations in a namespace.
func (c *comparison) writesTo(t *testing.T, namespace string) *target {
	url := c.cluster.Config().Host + "/apis/apps/v1/namespaces/" + namespace + "/deployments?dryRun=All"
	writes := newTarget(t, c.cluster, url, c.cluster.Authority().PEM(), "e2e-admin", "system:masters")
	writes.writes = true
	return writes
}

// start runs a program. Its log belongs to the output of a failed test.
func start(t *testing.T, program string, env []string, args ...string) *process.Process {
	log := filepath.Join(t.TempDir(), filepath.Base(program)+".log")
	p, err := process.Start(process.Command{Path: program, Args: args, Env: env, LogFile: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Tail(40))
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// serving is a free address, and the files of a certificate for it, in a directory of their own.
func (c *comparison) serving(t *testing.T) (address, dir string) {
	port, err := citest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := c.cluster.Authority().Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if _, _, err := pair.Write(dir, "tls"); err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir
}

func (c *comparison) noCheck(t *testing.T) *side { return c.newSide(t, noCheck, "", nil) }

// checks is the program with the checks in Go.
func (c *comparison) checks(t *testing.T) string {
	program, err := c.tree.Checks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func (c *comparison) native(t *testing.T) *side {
	address, dir := c.serving(t)
	p := start(t, c.checks(t), nil, "-webhook="+address, "-cert="+dir+"/tls.crt", "-key="+dir+"/tls.key")
	s := c.newSide(t, "webhook in Go", "https://"+address, c.cluster.Authority().PEM(), p)
	s.compute = c.checked(plain)
	return s
}

// mesh starts a dispatcher with these documents.
func (c *comparison) mesh(t *testing.T, documents ...string) (*mesh.Mesh, *mesh.Dispatcher) {
	portcullis, err := c.tree.Portcullis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.cluster.ConfigFor("portcullis", kube.ContextReaders)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	documents = append(documents, mesh.Cluster(inMesh, kube.WebhookClientName, kubeconfig))
	m := mesh.New(t, mesh.Options{Portcullis: portcullis, Callers: c.cluster.Authority(), Documents: documents})
	return m, m.Serve(t)
}

func (c *comparison) portcullisHost(t *testing.T) *side {
	configuration := kube.Validating("checks", kube.Hook{
		Name: hook, Group: "apps", Resources: []string{"deployments"},
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
	})
	m, d := c.mesh(t, mesh.Document(t, configuration), mesh.Route("checks", hostIdentity))
	host := m.HostProcess(t, mesh.HostOptions{Program: c.checks(t), Identity: hostIdentity, Args: []string{"-hook=" + hook}})
	s := c.newSide(t, "Portcullis, host in Go", d.URL(inMesh, "validate"), m.Authority().PEM(), d.Process(), host.Process)
	s.compute = c.checked(sensitive)
	return s
}

// policies are the four policies, and a binding of each, for all namespaces or one.
func policies(t *testing.T, namespace string) (
	all []*admissionregistrationv1.ValidatingAdmissionPolicy, bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding,
) {
	for _, document := range documents(t, "testdata/policies.yaml") {
		policy := new(admissionregistrationv1.ValidatingAdmissionPolicy)
		if err := yaml.UnmarshalStrict([]byte(document), policy); err != nil {
			t.Fatal(err)
		}
		legacyscheme.Scheme.Default(policy)
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: policy.APIVersion, Kind: policy.Kind + "Binding"},
			ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}
		if namespace != "" {
			binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: kube.InNamespace(namespace)}
		}
		legacyscheme.Scheme.Default(binding)
		all, bindings = append(all, policy), append(bindings, binding)
	}
	return all, bindings
}

// documents are the YAML documents of a file.
func documents(t *testing.T, file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n---\n")
}

func (c *comparison) portcullisPolicies(t *testing.T) *side {
	var all []string
	policies, bindings := policies(t, "")
	for i := range policies {
		all = append(all, mesh.Document(t, policies[i]), mesh.Document(t, bindings[i]))
	}
	m, d := c.mesh(t, all...)
	s := c.newSide(t, "Portcullis, policies in the mesh", d.URL(inMesh, "validate"), m.Authority().PEM(), d.Process())
	s.compute = c.byMesh(t)
	return s
}

func (c *comparison) apiServerPolicies(t *testing.T) *side {
	s := c.newSide(t, "ValidatingAdmissionPolicies in kube-apiserver", "", nil)
	s.compute = c.byPlugin(t)
	api := c.cluster.Client().AdmissionregistrationV1()
	policies, bindings := policies(t, s.namespace)
	for i := range policies {
		if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), policies[i], metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), bindings[i], metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
