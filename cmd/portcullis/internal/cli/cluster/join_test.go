package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

func join(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	mesh := clitest.StartMesh(t, nil)
	return clitest.Execute(t, NewCommand(), nil, append([]string{"join", "--ready-file", mesh.File(t)}, args...)...)
}

func TestJoinRefusesFlagsThatDoNotFit(t *testing.T) {
	url := "--url=https://mesh.example.com:8443"
	for want, args := range map[string][]string{
		"name one cluster":               {url},
		"--url is missing":               {"prod-1"},
		"name the absolute path":         {"prod-1", url, "--access", "kubeconfig=k"},
		`--access "other"`:               {"prod-1", url, "--access", "other"},
		`--access "bridge=x"`:            {"prod-1", url, "--access", "bridge=x"},
		"--identity is missing":          {"prod-1", url, "--access", "bridge"},
		"--identity and --capability-fi": {"prod-1", url, "--identity", "a", "--capability-file", "f"},
		"as in 90d":                      {"prod-1", url, "--expires", "soon"},
		"--keep-ca-file: name":           {"prod-1", url, "--access", "kubeconfig=/k", "--keep-ca-file", "ca.crt"},
		"--keep-ca-file is for entries":  {"prod-1", url, "--keep-ca-file", "/ca.crt"},
		"it needs --access":              {"prod-1", url, "--access", "kubeconfig=/k", "--keep-entries=false", "--keep-ca-file", "/ca.crt"},
		"--kubeconfig":                   {"prod-1", url, "--kubeconfig", filepath.Join(t.TempDir(), "none")},
	} {
		join(t, args...).Fails(t, want)
	}
}

func TestAClientDryRunOfJoinAsksNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "prod-1.capability")
	r := join(t, "prod-1", "--url", "https://mesh.example.com:8443", "--dry-run=client", "--capability-file", file,
		"--kubeconfig", filepath.Join(dir, "none"), "--access", "kubeconfig=/k")
	if r.Code != 0 || !strings.Contains(r.Out, "make a capability in "+file) || !strings.Contains(r.Out, "service account") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the capability was made")
	}
}

func TestASecretIsForItsOwnerAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := writeSecret(file, "text"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := writeSecret(file, "other"); !os.IsExist(err) {
		t.Errorf("a second write: %v, want none over the first", err)
	}
}

func TestEntriesThatTheMeshKeepsFollowAFile(t *testing.T) {
	c := joinCommand{keepCAFile: "/etc/ca.crt", want: demands{registration: &kinds.Registration{URL: "https://mesh"}}}
	if err := c.followAuthorities(); err == nil || !strings.Contains(err.Error(), "--ca is missing") {
		t.Errorf("without its content: %v", err)
	}
	c.options.CABundle, c.want.registration.CABundle = []byte("x"), []byte("x")
	if err := c.followAuthorities(); err != nil || c.want.registration.CAFile != "/etc/ca.crt" || c.want.registration.CABundle != nil {
		t.Errorf("%v: %+v", err, c.want.registration)
	}
}

func TestAJoinNamesOnlyWhatIsLeft(t *testing.T) {
	const (
		keep  = "Keep prod-1.capability"
		each  = "The trial has reached 1 of 3 dispatchers: each needs --allow-capabilities"
		again = "Run this command again when hooks change"
	)
	for name, tc := range map[string]struct {
		change func(*joinCommand)
		want   []string
	}{
		"a capability, and one dispatcher":        {func(*joinCommand) {}, []string{keep, again}},
		"a capability, and three":                 {func(c *joinCommand) { c.dispatchers = 3 }, []string{each, keep, again}},
		"an identity, and three":                  {func(c *joinCommand) { c.dispatchers, c.want.capability = 3, nil }, []string{again}},
		"the mesh is to keep the entries":         {func(c *joinCommand) { c.keep = true }, []string{keep}},
		"the mesh keeps the entries":              {func(c *joinCommand) { c.document.Cluster.Spec.Registration = &kinds.Registration{} }, []string{keep}},
		"the mesh knows labels of the namespaces": {func(c *joinCommand) { c.document.Cluster.Spec.Kubeconfig = "/k" }, []string{keep, again}},
	} {
		c := joinCommand{name: "prod-1", dispatchers: 1, want: demands{capability: &kinds.Capability{}}, document: clusterObject(t, "{identities: [a]}")}
		c.secret = "prod-1.capability"
		tc.change(&c)
		steps := c.rest()
		fits := len(steps) == len(tc.want)+1 && strings.HasPrefix(steps[len(tc.want)], "The way back: ")
		for i, want := range tc.want {
			fits = fits && strings.HasPrefix(steps[i], want)
		}
		if !fits {
			t.Errorf("%s: %q, want %q", name, steps, tc.want)
		}
	}
}

// A hook that selects by other labels than the name of a namespace is named with the entries: join does not repeat it for all.
func TestEntriesNameHooksThatNeedLabelsOfNamespaces(t *testing.T) {
	for selector, want := range map[string]bool{
		"{matchLabels: {kubernetes.io/metadata.name: a}}":                                                  false,
		"{matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}": false,
		"{}":                         false,
		"{matchLabels: {env: prod}}": true,
		"{matchLabels: {kubernetes.io/metadata.name: a}, matchExpressions: [{key: env, operator: Exists}]}": true,
	} {
		objects, problems := configtest.Decode("c.yaml", []byte(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: p}
webhooks:
- {name: a.example.com, clientConfig: {url: "https://hooks.example.com"}, failurePolicy: Ignore, sideEffects: None, admissionReviewVersions: [v1],
   rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}], namespaceSelector: `+selector+`}
`))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		var notes strings.Builder
		if _, err := compileFor(t.Context(), "prod-1", append(objects, *clusterObject(t, "{identities: [a]}")), &notes); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(notes.String(), "needs the labels of the namespace"); got != want {
			t.Errorf("%s: %q", selector, notes.String())
		}
	}
}
