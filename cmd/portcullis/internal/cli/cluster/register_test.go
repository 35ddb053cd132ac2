package cluster

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	"github.com/portcullis-mesh/portcullis/internal/certs"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

const registeredHooks = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: imagepolicy}
webhooks:
- name: imagepolicy.example.com
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 3
  admissionReviewVersions: [v1]
`

const registeredMesh = `apiVersion: portcullis.dev/v1
kind: HookRoute
metadata: {name: imagepolicy}
spec: {configuration: imagepolicy, stream: {}, hosts: ["spiffe://mesh/imagepolicy"], clusters: [prod-1]}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-1}
spec: {identities: [kube-apiserver], namespaces: {static: {default: {}}}}
---
apiVersion: portcullis.dev/v1
kind: Cluster
metadata: {name: prod-2}
spec: {identities: [kube-apiserver], namespaces: {static: {default: {}}}}
`

// configuration writes files to a new directory.
func configuration(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func register(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	return clitest.Execute(t, NewCommand(), nil, append([]string{"register"}, args...)...)
}

func TestClusterRegisterPrintsWhatKubectlApplies(t *testing.T) {
	dir := configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": registeredMesh})
	certificate := authority(t)
	r := register(t, "prod-1", "--print", "--config", dir, "--url", "https://mesh.example.com:8443",
		"--ca", clitest.Write(t, "ca.crt", string(certificate)))
	if r.Code != 0 || r.Notes != "" {
		t.Errorf("exit code %d: %s", r.Code, r.Notes)
	}
	clitest.Golden(t, "register.yaml", strings.ReplaceAll(r.Out, base64.StdEncoding.EncodeToString(certificate), "AUTHORITY"))
}

func TestClusterRegisterPrintsJSONAsAList(t *testing.T) {
	dir := configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": registeredMesh})
	r := register(t, "prod-1", "--config", dir, "--url", "https://mesh.example.com:8443", "-o", "json",
		"--name", "mesh", "--own-namespace", "", "--validate-timeout", "2s")
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal([]byte(r.Out), &list); err != nil || list.APIVersion != "v1" || list.Kind != "List" || len(list.Items) != 2 {
		t.Fatalf("%v: %+v", err, r)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	if err := json.Unmarshal(list.Items[1], &validating); err != nil {
		t.Fatal(err)
	}
	w := validating.Webhooks[0]
	if validating.Name != "mesh" || *w.TimeoutSeconds != 3 || len(w.ClientConfig.CABundle) > 0 || len(w.NamespaceSelector.MatchExpressions) != 1 {
		t.Errorf("the flags are not followed: %+v", validating)
	}
	for _, want := range []string{"(timeout-budget)", "(danger-own-namespace)"} {
		if !strings.Contains(r.Notes, want) {
			t.Errorf("no %s in %q", want, r.Notes)
		}
	}
}

// TestClusterRegisterKeepsTheAuthoritiesOfADocument has documents whose entries trust authorities that no flag names.
func TestClusterRegisterKeepsTheAuthoritiesOfADocument(t *testing.T) {
	entries := func(registration string, more ...string) clitest.Result {
		mesh := strings.Replace(registeredMesh, "namespaces: {static: {default: {}}}",
			"kubeconfig: /absent, registration: {url: 'https://mesh', "+registration+"}", 1)
		dir := configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": mesh})
		return register(t, append([]string{"prod-1", "--config", dir, "--url", "https://mesh"}, more...)...)
	}
	entries("caFile: /etc/ca.crt").Ends(t, cli.ExitError, "--ca is missing", "/etc/ca.crt of the dispatchers")
	certificate := authority(t)
	bundle := base64.StdEncoding.EncodeToString(certificate)
	ca := clitest.Write(t, "ca.crt", string(certificate))
	for name, r := range map[string]clitest.Result{
		"the bundle of the document": entries("caBundle: " + bundle),
		"--ca for the file":          entries("caFile: /etc/ca.crt", "--ca", ca),
	} {
		if r.Code != 0 || !strings.Contains(r.Out, "caBundle: "+bundle) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestClusterRegisterSaysWhenNoHookIsInForce(t *testing.T) {
	dir := configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": registeredMesh})
	r := register(t, "prod-2", "--config", dir, "--url", "https://mesh")
	if r.Code != 0 || !strings.Contains(r.Notes, "no hook is in force") || strings.Count(r.Out, "kind: ") != 2 || strings.Contains(r.Out, "webhooks:") {
		t.Errorf("%+v", r)
	}
}

func TestClusterRegisterPassesOnWhatTheConfigurationWarnsOf(t *testing.T) {
	unused := strings.Replace(registeredMesh, "configuration: imagepolicy", "configuration: other", 1)
	hooks := strings.Replace(registeredHooks, "  rules:", "  clientConfig: {url: \"https://old.example.com\"}\n  rules:", 1)
	r := register(t, "prod-1", "--config", configuration(t, map[string]string{"hooks.yaml": hooks, "mesh.yaml": unused}), "--url", "https://mesh")
	if r.Code != 0 || !strings.Contains(r.Notes, "warning: ") || !strings.Contains(r.Notes, "mesh.yaml:4") {
		t.Errorf("%+v", r)
	}
}

func TestClusterRegisterSaysWhatIsProbablyNotMeant(t *testing.T) {
	hooks := strings.Replace(registeredHooks, "resources: [pods]", "resources: [Pods]", 1)
	r := register(t, "prod-1", "--config", configuration(t, map[string]string{"hooks.yaml": hooks, "mesh.yaml": registeredMesh}), "--url", "https://mesh")
	if !strings.Contains(r.Notes, `warning: `) || !strings.Contains(r.Notes, `never called for "Pods"`) {
		t.Errorf("%+v", r)
	}
}

func TestClusterRegisterSaysThatNobodyTellsTheNamespaces(t *testing.T) {
	mesh := strings.Replace(registeredMesh, ", namespaces: {static: {default: {}}}", "", 1)
	hooks := strings.Replace(registeredHooks, "kubernetes.io/metadata.name", "env", 1) // the name of a namespace need not be told
	dir := configuration(t, map[string]string{"hooks.yaml": hooks, "mesh.yaml": mesh})
	r := register(t, "prod-1", "--config", dir, "--url", "https://mesh")
	r.Ends(t, 0, "warning: ", "hooks.yaml:5", "webhooks[0].namespaceSelector", "no source has the namespace labels of cluster prod-1: each review", "spec.kubeconfig or spec.namespaces")
}

func TestClusterRegisterNamesTheDocumentOfAFinding(t *testing.T) {
	const external = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: old}
externalAdmissionHooks:
- name: old.example.com
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [pods]}]
`
	r := register(t, "prod-1", "--config", configuration(t, map[string]string{"old.yaml": external, "mesh.yaml": registeredMesh}), "--url", "https://mesh")
	if want := `old.yaml:1: ExternalAdmissionHookConfiguration/old webhook "old.example.com": a rule covers`; r.Code != 0 || !strings.Contains(r.Notes, want) {
		t.Errorf("no %q in %+v", want, r)
	}
}

func TestClusterRegisterSaysWhatIsWrong(t *testing.T) {
	good := configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": registeredMesh})
	twice := configuration(t, map[string]string{"a.yaml": registeredHooks, "b.yaml": registeredHooks, "mesh.yaml": registeredMesh})
	broken := configuration(t, map[string]string{"hooks.yaml": strings.Replace(registeredHooks, "rules:", "rulez:", 1), "mesh.yaml": registeredMesh})
	tests := map[string]struct {
		args []string
		want []string
	}{
		"the name is needed":                       {[]string{"--config", good}, []string{"name one cluster"}},
		"the configuration is needed":              {[]string{"prod-1", "--url", "https://mesh"}, []string{"--config PATH", "--ready-file"}},
		"a path that is not there":                 {[]string{"prod-1", "--config", "/nowhere", "--url", "https://mesh"}, []string{"/nowhere"}},
		"the URL is needed":                        {[]string{"prod-1", "--config", good}, []string{"url: say where"}},
		"the URL is https":                         {[]string{"prod-1", "--config", good, "--url", "http://mesh"}, []string{"must be https"}},
		"a CA file that is not there":              {[]string{"prod-1", "--config", good, "--url", "https://mesh", "--ca", "/nowhere"}, []string{"--ca", "/nowhere"}},
		"a cluster that nobody may speak for":      {[]string{"prod-3", "--config", good, "--url", "https://mesh"}, []string{`no Cluster "prod-3"`, "prod-1, prod-2"}},
		"a document with a mistake, with its line": {[]string{"prod-1", "--config", broken, "--url", "https://mesh"}, []string{"hooks.yaml:6", "rulez"}},
		"the same object in two files":             {[]string{"prod-1", "--config", twice, "--url", "https://mesh"}, []string{"b.yaml:1", "a.yaml:1", "remove either"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := register(t, tt.args...)
			r.Fails(t, tt.want...)
			if r.Out != "" {
				t.Errorf("something is printed for kubectl: %s", r.Out)
			}
		})
	}
}

const versionedHooks = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: versions}
webhooks:
- name: closed.example.com
  clientConfig: {}
  rules:
  - {apiGroups: [policy], apiVersions: [v1beta1], operations: [CREATE], resources: [poddisruptionbudgets]}
  - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
- name: open.example.com
  clientConfig: {}
  rules:
  - {apiGroups: [policy], apiVersions: [v1], operations: [CREATE], resources: [poddisruptionbudgets]}
  - {apiGroups: [example.com], apiVersions: [v2], operations: [CREATE], resources: [widgets]}
  failurePolicy: Ignore
  sideEffects: None
  admissionReviewVersions: [v1]
`

// TestClusterRegisterPlansByWhatTheClusterServes has a fail-closed and a fail-open hook in different versions: where both are
// served they meet in one entry.
func TestClusterRegisterPlansByWhatTheClusterServes(t *testing.T) {
	served := func(paths map[string]string) string {
		mux := http.NewServeMux()
		for path, body := range paths {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(body))
			})
		}
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return "kubeconfig: " + clitest.Write(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "`+s.URL+`"}}], contexts: [{name: c, context: {cluster: c}}]}`)
	}
	const core = `{"kind": "APIVersions", "versions": []}`
	group := func(versions ...string) string {
		return `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "policy", "versions": [` + strings.Join(versions, ", ") + `]}]}`
	}
	const v1, v1beta1 = `{"groupVersion": "policy/v1", "version": "v1"}`, `{"groupVersion": "policy/v1beta1", "version": "v1beta1"}`
	resources := func(version string) string {
		return `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "policy/` + version + `", "resources": [
{"name": "poddisruptionbudgets", "kind": "PodDisruptionBudget", "namespaced": true, "verbs": ["create"]}]}`
	}
	tests := map[string]struct {
		spec  string
		meet  bool // both hooks are called by one entry
		notes string
	}{
		"nothing is said: all that Kubernetes ever served": {"", true, ""},
		"the document lists both":                          {"apiVersions: [policy/v1, policy/v1beta1]", true, ""},
		"the document lists one":                           {"apiVersions: [policy/v1]", false, ""},
		"the cluster says both": {served(map[string]string{
			"/api": core, "/apis": group(v1, v1beta1), "/apis/policy/v1": resources("v1"), "/apis/policy/v1beta1": resources("v1beta1"),
		}), true, ""},
		"the cluster says one": {served(map[string]string{
			"/api": core, "/apis": group(v1), "/apis/policy/v1": resources("v1"),
		}), false, ""},
		"the cluster does not answer": {served(nil), true, "does not state its resources"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			mesh := "apiVersion: portcullis.dev/v1\nkind: Cluster\nmetadata: {name: prod-1}\nspec:\n  identities: [kube-apiserver]\n  " + tt.spec + "\n"
			dir := configuration(t, map[string]string{"hooks.yaml": versionedHooks, "mesh.yaml": mesh})
			r := register(t, "prod-1", "--config", dir, "--url", "https://mesh.example.com:8443", "-o", "json", "--mutate-timeout", "12s")
			if r.Code != 0 || tt.notes == "" && strings.Contains(r.Notes, "does not say") || !strings.Contains(r.Notes, tt.notes) {
				t.Fatalf("%+v", r)
			}
			want := "v1beta1"
			if tt.meet {
				want = "v1,v1beta1"
			}
			if got := failClosedVersions(t, r.Out); got != want {
				t.Errorf("the fail-closed entry takes versions %s, want %s", got, want)
			}
		})
	}
}

// failClosedVersions are the versions of poddisruptionbudgets that the fail-closed mutating entry takes.
func failClosedVersions(t *testing.T, out string) string {
	t.Helper()
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(list.Items[0], &mutating); err != nil {
		t.Fatal(err)
	}
	for _, r := range mutating.Webhooks[0].Rules {
		if r.APIGroups[0] == "policy" {
			return strings.Join(r.APIVersions, ",")
		}
	}
	return ""
}

func TestTheResourcesOfAClusterAreThoseOfItsDocument(t *testing.T) {
	c := &kinds.Cluster{Spec: kinds.ClusterSpec{APIVersions: []string{"policy/v1"}}}
	c.Spec.CustomResourceDefinitions = []apiextensionsv1.CustomResourceDefinition{{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}},
			{Name: "v2", Served: true},
		},
	}}}
	families, err := familiesOf(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, ways := range families.Families() {
		for _, w := range ways {
			got[w.Resource.Resource+"/"+w.Subresource] += " " + w.Resource.GroupVersion().String()
		}
	}
	want := map[string]string{
		"poddisruptionbudgets/": " policy/v1", "poddisruptionbudgets/status": " policy/v1",
		"widgets/": " example.com/v1 example.com/v2", "widgets/status": " example.com/v1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}
}

// authority is a CA certificate in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	ca, err := certs.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca.CA().CertPEM
}

// TestRegistrationsBesideAHostileAPIServer writes entries into the cluster, and asks it which resources it serves.
func TestRegistrationsBesideAHostileAPIServer(t *testing.T) {
	dir := configuration(t, map[string]string{"hooks.yaml": registeredHooks, "mesh.yaml": registeredMesh})
	clitest.BesideAHostileAPIServer(t, func(kubeconfig string) clitest.Result {
		return register(t, "prod-1", "--apply", "--config", dir, "--url", "https://mesh", "--kubeconfig", kubeconfig)
	})
	clitest.BesideAHostileAPIServer(t, func(kubeconfig string) clitest.Result {
		c := &kinds.Cluster{Spec: kinds.ClusterSpec{Kubeconfig: kubeconfig}}
		if _, err := familiesOf(t.Context(), c); err != nil {
			return clitest.Result{Notes: err.Error(), Code: 1}
		}
		return clitest.Result{}
	})
}
