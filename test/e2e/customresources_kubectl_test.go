package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

// customizedPair are two dispatchers with one store that read custom resources. The first one writes the statuses.
type customizedPair struct {
	*customized
	other *mesh.Dispatcher // it reads as an account of its own
}

// otherAccount is the service account of the other dispatcher.
const otherAccount = "portcullis-other"

func newCustomizedPair(t *testing.T) *customizedPair {
	t.Helper()
	c := newCustomized(t, "--etcd=http://"+cluster.EtcdAddress(), "--etcd-create", "--etcd-prefix=/"+rand.Text()+"/")
	p := &customizedPair{customized: c}
	p.grantOther(t)
	t.Cleanup(func() { p.withdrawOther(context.WithoutCancel(t.Context()), t) })
	c.readAs(t, otherAccount)
	p.other = c.Serve(t)
	eventually(t, "the other dispatcher has the configuration", func() error { return p.other.Ready(t.Context()) })
	return p
}

// grantOther lets the other dispatcher read custom resources.
func (p *customizedPair) grantOther(t *testing.T) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: otherAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "portcullis-custom-resources"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: otherAccount, Namespace: "portcullis-system"}},
	}
	if _, err := cluster.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// withdrawOther ends grantOther.
func (p *customizedPair) withdrawOther(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := cluster.Client().RbacV1().ClusterRoleBindings().Delete(ctx, otherAccount, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

const (
	elsewhere = "{apiVersion: portcullis.dev/v1, kind: Cluster, metadata: {name: elsewhere}, spec: {identities: [elsewhere]}}"
	readers   = "{apiVersion: portcullis.dev/v1, kind: Role, metadata: {name: readers}, spec: {role: viewer, identities: [ann]}}"
)

// everyKind is a file with an object of each kind of ours.
func everyKind(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "hooks.yaml")
	writeFile(t, file, strings.Join([]string{
		mesh.Route("policies", hostName),
		inOurGroup(t, kube.Validating("policies", onPods(policyHook))),
		inOurGroup(t, kube.Mutating("defaults", onNothing("defaults.example.com"))),
		elsewhere, readers, ownedPolicy, strings.Replace(ownedBinding, "Deny", "Warn", 1), ownerPolicy, ownerBinding,
	}, "\n---\n"))
	return file
}

// everyObject names the objects of everyKind by the short names of their kinds.
var everyObject = []string{"hr/policies", "vhook/policies", "mhook/defaults", "pcluster/elsewhere", "prole/readers",
	"vhpolicy/e2e-owned", "vhbinding/e2e-owned", "mhpolicy/e2e-owner", "mhbinding/e2e-owner"}

// says fails the test unless kubectl ends well and says so.
func says(t *testing.T, want string, args ...string) {
	t.Helper()
	said, err := runKubectl(t, args...)
	if diff := cmp.Diff(want, said); err != nil || diff != "" {
		t.Errorf("kubectl %s: %v (-want +said):\n%s", strings.Join(args, " "), err, diff)
	}
}

// every is a line of kubectl for each object of everyKind; the format has verbs for the kind and the name.
func every(format string) string {
	var all strings.Builder
	for _, object := range [][]any{
		{"hookroute", "policies"}, {"validatinghookconfiguration", "policies"}, {"mutatinghookconfiguration", "defaults"},
		{"cluster", "elsewhere"}, {"role", "readers"},
		{"validatinghookpolicy", "e2e-owned"}, {"validatinghookpolicybinding", "e2e-owned"},
		{"mutatinghookpolicy", "e2e-owner"}, {"mutatinghookpolicybinding", "e2e-owner"},
	} {
		fmt.Fprintf(&all, format+"\n", object...)
	}
	return all.String()
}

// columns is the output of `kubectl get`, without the age and with two spaces between columns.
func columns(t *testing.T, args ...string) (string, error) {
	t.Helper()
	said, err := runKubectl(t, append([]string{"get"}, args...)...)
	said = regexp.MustCompile(`(?m) +\S+ *$`).ReplaceAllString(said, "")
	return regexp.MustCompile(` {2,}`).ReplaceAllString(said, "  "), err
}

// showsColumns waits until `kubectl get` shows a table.
func showsColumns(t *testing.T, want string, args ...string) {
	t.Helper()
	eventually(t, "kubectl get "+strings.Join(args, " "), func() error {
		said, err := columns(t, args...)
		if diff := cmp.Diff(want, said); diff != "" {
			return fmt.Errorf("%w (-want +said):\n%s", err, diff)
		}
		return err
	})
}

// TestKubectlDrivesCustomResources applies, gets, awaits and deletes an object of each kind. The output of kubectl covers every dispatcher.
func TestKubectlDrivesCustomResources(t *testing.T) {
	citest.Soak(t, "waits as kubectl does for each kind: 17 s")
	c := newCustomizedPair(t)
	file := everyKind(t)
	wait := append([]string{"wait", "--for=condition=InForce", "--timeout=" + patience.String()}, everyObject...)
	says(t, every("%s.portcullis.dev/%s created"), "apply", "-f", file)
	says(t, every("%s.portcullis.dev/%s condition met"), wait...)
	says(t, every("%s.portcullis.dev/%s unchanged"), "apply", "-f", file)
	c.closed(t)

	route := func(inForce string) string {
		return "NAME  CONFIGURATION  ACCEPTED  IN FORCE  SERVED\npolicies  " + "policies  True  " + inForce + "  0\n"
	}
	for _, name := range []string{"hookroutes", "hookroute", "hroute", "hr"} {
		showsColumns(t, route("2/2"), name)
	}
	showsColumns(t, "NAME  CONFIGURATION  HOOK  ACCEPTED  IN FORCE  SERVED\npolicies  "+"policies  True  2/2  0\n", "hr", "-o=wide")
	showsColumns(t, "NAME  ACCEPTED  IN FORCE  SERVED\npolicies  True  2/2  0\n", "vhook")
	showsColumns(t, "NAME  ACCEPTED  IN FORCE  SERVED\ndefaults  True  2/2  0\n", "mhook")
	showsColumns(t, "NAME  ACCEPTED  IN FORCE  SERVED\nelsewhere  True  2/2\n", "pcluster")
	showsColumns(t, "NAME  ROLE  ACCEPTED  IN FORCE  SERVED\nreaders  viewer  True  2/2\n", "prole")
	showsColumns(t, "NAME  ACCEPTED  IN FORCE  SERVED\ne2e-owned  True  2/2\n", "vhpolicy")
	showsColumns(t, "NAME  POLICY  ACTIONS  ACCEPTED  IN FORCE  SERVED\ne2e-owned  "+"e2e-owned  [\"Warn\"]  True  2/2\n", "vhbinding")
	showsColumns(t, "NAME  POLICY  ACCEPTED  IN FORCE  SERVED\ne2e-owner  "+"e2e-owner  True  2/2\n", "mhbinding")

	c.readAs(t, "portcullis")
	third := c.Serve(t)
	showsColumns(t, route("3/3"), "hr")
	c.other.Stop(t)
	showsColumns(t, route("2/2"), "hr")

	says(t, every(`%s.portcullis.dev "%s" deleted`), "delete", "-f", file)
	says(t, "No resources found\n", "get", "portcullis")
	c.open(t)

	c.dispatcher.Stop(t) // it holds the Lease
	says(t, every("%s.portcullis.dev/%s created"), "apply", "-f", file)
	says(t, every("%s.portcullis.dev/%s condition met"), wait...)
	showsColumns(t, route("1/1"), "hr")
	third.Stop(t)
}

// TestKubectlWaitEndsWhenEveryDispatcherHasTheDocument has two dispatchers, takes the right to read from one, and gives it back.
func TestKubectlWaitEndsWhenEveryDispatcherHasTheDocument(t *testing.T) {
	citest.Gate(t, "covers custom resources: 9 s")
	c := newCustomizedPair(t)
	hooks := inOurGroup(t, kube.Validating("policies", onPods(policyHook)))
	c.apply(t, hooks)
	c.await(t, hooks, "InForce", "True", "on 2 of 2 dispatchers")
	c.withdrawOther(t.Context(), t)
	eventually(t, "the other dispatcher reads nothing", func() error {
		if err := c.other.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "the configuration is stale") {
			return fmt.Errorf("the dispatcher says: %w", err)
		}
		return nil
	})

	changed := inOurGroup(t, kube.Validating("policies", onNothing(policyHook)))
	c.apply(t, changed)
	ended := make(chan error, 1)
	go func() {
		said, err := runKubectl(t, "wait", "--for=condition=InForce", "--timeout=10m", "vhook/policies")
		if err == nil && said != "validatinghookconfiguration.portcullis.dev/policies condition met\n" {
			err = errors.New(said)
		}
		ended <- err
	}()
	c.await(t, changed, "InForce", "False", "on 1 of 2 dispatchers")
	select {
	case err := <-ended:
		t.Fatalf("kubectl wait has ended while a dispatcher judges by the old version: %v", err)
	default:
	}
	c.grantOther(t)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.await(t, changed, "InForce", "True", "on 2 of 2 dispatchers")
}

// TestKubectlApplyNamesTheFieldThatIsRefused has a document of each kind that the API server refuses, or that kubectl does not send.
func TestKubectlApplyNamesTheFieldThatIsRefused(t *testing.T) {
	citest.Gate(t, "covers custom resources: 7 s")
	installDefinitions(t)
	for document, want := range map[string]string{
		`{kind: HookRoute, spec: {configuration: policies, timeout: soon}}`:                              `spec.timeout: Invalid value: `,
		`{kind: HookRoute, spec: {configuration: policies, hosts: [policies]}}`:                          "spec.hosts: Invalid value: hosts serve streams only: add `stream: {}`",
		`{kind: HookRoute, spec: {configuration: policies, stream: {}, hots: [policies]}}`:               `unknown field "spec.hots"`,
		`{kind: Role, spec: {role: editor, identities: [ann]}}`:                                          `spec.role: Unsupported value: "editor": supported values: `,
		`{kind: Cluster, spec: {identities: [a], kubeconfig: /k, namespaces: {static: {a: {}}}}}`:        `spec.namespaces`,
		`{kind: ValidatingHookConfiguration, webhooks: [{name: policy, admissionReviewVersions: [v1]}]}`: `webhooks[0].name`,
		`{kind: MutatingHookConfiguration, webhooks: [{sideEffects: None}]}`:                             `webhooks[0].name: Required value`,
		`{kind: ValidatingHookPolicy, spec: {validations: [{expression: 'true'}]}}`:                      `spec.matchConstraints: Required value`,
		`{kind: MutatingHookPolicyBinding, spec: {policyName: p, validationActions: [Deny]}}`:            `unknown field "spec.validationActions"`,
		`{kind: InitializerConfiguration, initializers: [{name: a.example.com, timeoutSeconds: 1}]}`:     `unknown field "initializers[0].timeoutSeconds"`,
	} {
		file := filepath.Join(t.TempDir(), "hooks.yaml")
		writeFile(t, file, strings.Replace(document, "{", "{apiVersion: portcullis.dev/v1, metadata: {name: refused}, ", 1))
		if said, err := runKubectl(t, "apply", "-f", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want it to hold %q\n%s", document, err, want, said)
		}
	}
	says(t, "No resources found\n", "get", "portcullis")
}
