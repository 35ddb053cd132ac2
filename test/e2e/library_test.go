package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/portcullis-mesh/portcullis/internal/citest"

	"github.com/portcullis-mesh/portcullis/test/e2e/kube"
	"github.com/portcullis-mesh/portcullis/test/e2e/mesh"
)

const (
	// library is the directory of the policies to begin with.
	library = "../../policies"
	// judgedIn is the extra field of a user that names the cluster whose policy judges the requests of the user.
	judgedIn = "cluster"
)

// refusedRequests are cases, by POLICY/CASE, whose requests kube-apiserver refuses before it asks any policy, with a part of its reason.
var refusedRequests = map[string]string{
	"no-token-mounts/A service account of its own is allowed":       `serviceaccount "web" not found`,
	"pod-security-baseline/An open /proc is denied":                 "`hostUsers` must be false",
	"pod-security-baseline/A process of a Windows node is denied":   "hostNetwork must be true if pod contains any hostProcess containers",
	"pod-security-restricted/A process of a Windows node is denied": "hostNetwork must be true if pod contains any hostProcess containers",
}

// libraryCase is a case of a policy, as `portcullis test` has judged it.
type libraryCase struct {
	Name    string                      `json:"name"`
	Passed  bool                        `json:"passed"`
	Verdict string                      `json:"verdict"`
	Review  admissionv1.AdmissionReview `json:"review"`

	parameters map[string]any
	cluster    string // where the policy has these parameters
}

// TestTheLibraryJudgesInAClusterAsInItsCases makes the requests of the cases of all policies in the library. kube-apiserver gives them the answers that
// `portcullis test` has: the verdict, the message, the code and the reason. `portcullis replay` has the same verdicts on the audit log.
func TestTheLibraryJudgesInAClusterAsInItsCases(t *testing.T) {
	citest.Gate(t, "makes the requests of the cases of thirty policies: 15 s")
	policies := libraryCases(t)
	installLibrary(t, policies)
	answered := 0
	for name, all := range policies {
		t.Run(name, func(t *testing.T) {
			judged := map[string]int{}
			for _, c := range all {
				reason := c.isAnswered(t)
				expected, listed := refusedRequests[name+"/"+c.Name]
				if listed != (reason != "") || !strings.Contains(reason, expected) {
					t.Errorf("%s: kube-apiserver refuses the request itself with the reason %q, want %q", c.Name, reason, expected)
				}
				if reason == "" {
					judged[c.Verdict]++
					answered++
				}
			}
			if judged["allowed"] == 0 || judged["denied"] == 0 {
				t.Errorf("requests by verdict: %v, want some that are allowed and some that are denied", judged)
			}
		})
	}
	t.Logf("%d policies have answered %d requests", len(policies), answered)

	logs := creates(t, policies)
	for name, all := range policies {
		if logs[name] != nil {
			t.Run("replay of "+name, func(t *testing.T) { replayed(t, enforcedIn(t, name, all), all, logs) })
		}
	}
}

// creates are the events in the audit log of kube-apiserver about objects that cases create, by the cluster of the case.
func creates(t *testing.T, policies map[string][]*libraryCase) (logs map[string][]byte) {
	t.Helper()
	want := 0
	for _, all := range policies {
		for _, c := range all {
			if c.Review.Request.Operation == admissionv1.Create {
				want++
			}
		}
	}
	eventually(t, "the audit log has all creates", func() error {
		events, err := cluster.AuditEvents(func(e *auditv1.Event) bool {
			return e.Verb == "create" && e.ObjectRef.Subresource == "" && e.ImpersonatedUser != nil && len(e.ImpersonatedUser.Extra[judgedIn]) == 1
		})
		if err != nil || len(events) != want {
			return errors.Join(err, fmt.Errorf("%d events, want %d", len(events), want))
		}
		logs = map[string][]byte{}
		for i := range events {
			line, err := json.Marshal(&events[i])
			if err != nil {
				return err
			}
			name := events[i].ImpersonatedUser.Extra[judgedIn][0]
			logs[name] = append(append(logs[name], line...), '\n')
		}
		return nil
	})
	delete(logs, "no-sessions")          // about connections, whose options no event has
	delete(logs, "required-annotations") // about a namespace that exists, as all events of allowed requests say
	return logs
}

// replayed replays the audit logs of the requests of a policy. Each request has the verdict that it had.
func replayed(t *testing.T, policy string, all []*libraryCase, logs map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	config, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(config, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	alreadyDenied, same := 0, 0
	for name := range clustersOf(all) {
		if logs[name] == nil {
			continue
		}
		if err := os.WriteFile(file, logs[name], 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), portcullis, "replay", file, "--config", config, "--cluster", name, "-o=json").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var report struct {
			Denied        int `json:"denied"`
			Allowed       int `json:"allowed"`
			AlreadyDenied int `json:"alreadyDenied"`
			Same          int `json:"same"`
		}
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatal(err)
		}
		if report.Denied+report.Allowed > 0 {
			t.Errorf("cluster %s: %+v, want the verdicts that they had:\n%s", name, report, out)
		}
		alreadyDenied, same = alreadyDenied+report.AlreadyDenied, same+report.Same
	}
	if alreadyDenied == 0 || same == 0 {
		t.Errorf("%d stay denied, and %d allowed, want some of both", alreadyDenied, same)
	}
}

// libraryCases are the cases by policy.
func libraryCases(t *testing.T) map[string][]*libraryCase {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), portcullis, "test", library, "--verbose", "-o=json").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var report struct {
		Files []struct {
			File  string         `json:"file"`
			Cases []*libraryCase `json:"cases"`
		} `json:"files"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	policies := map[string][]*libraryCase{}
	for _, f := range report.Files {
		name := filepath.Base(filepath.Dir(f.File))
		placeInClusters(t, name, f.Cases)
		policies[name] = append(policies[name], f.Cases...)
	}
	return policies
}

// placeInClusters gives cases their parameters, and a cluster for each set of these. The cluster of cases without parameters has the name of the policy.
func placeInClusters(t *testing.T, policy string, all []*libraryCase) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(library, policy, "cases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name   string         `json:"name"`
			Params map[string]any `json:"params"`
		} `json:"cases"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	clusters := map[string]string{"map[]": policy}
	for i, c := range all {
		if file.Cases[i].Name != c.Name {
			t.Fatalf("%s: case %d is %q in the report, and %q in the file", policy, i, c.Name, file.Cases[i].Name)
		}
		c.parameters = file.Cases[i].Params
		key := fmt.Sprint(c.parameters)
		if clusters[key] == "" {
			clusters[key] = fmt.Sprintf("%s-%d", policy, len(clusters))
		}
		c.cluster = clusters[key]
	}
}

// clustersOf are the clusters of cases, and the parameters there.
func clustersOf(all []*libraryCase) map[string]map[string]any {
	clusters := map[string]map[string]any{}
	for _, c := range all {
		clusters[c.cluster] = c.parameters
	}
	return clusters
}

// installLibrary starts a mesh in which each policy is enforced in the clusters of its cases, all of which are the one kube-apiserver: it asks about the
// requests of users who name the cluster.
func installLibrary(t *testing.T, policies map[string][]*libraryCase) {
	t.Helper()
	var documents, clusters []string
	namespaces, users := map[string]bool{}, map[string]bool{}
	for name, all := range policies {
		documents = append(documents, enforcedIn(t, name, all))
		for name := range clustersOf(all) {
			documents, clusters = append(documents, mesh.Cluster(name, kube.WebhookClientName, "")), append(clusters, name)
		}
		for _, c := range all {
			namespaces[c.Review.Request.Namespace], users[c.Review.Request.UserInfo.Username] = true, true
		}
	}
	delete(namespaces, "") // of objects in none
	m := newMesh(t, mesh.Options{Documents: documents})
	bridge := m.Serve(t).Bridge
	var hooks []kube.Hook
	for _, name := range clusters {
		hooks = append(hooks, kube.Hook{
			Name: entryOf(name), URL: bridge + "/v1/clusters/" + name + "/validate", CABundle: m.Authority().PEM(),
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}, Group: "*", Resources: []string{"*/*"},
		})
	}
	entries := kube.Validating("library", hooks...)
	for i := range entries.Webhooks {
		name, _, _ := strings.Cut(entries.Webhooks[i].Name, ".")
		entries.Webhooks[i].MatchConditions = []admissionregistrationv1.MatchCondition{
			{Name: judgedIn, Expression: fmt.Sprintf("%q in request.userInfo.?extra[?%q].orValue([])", name, judgedIn)},
		}
	}
	for namespace := range namespaces {
		prepareNamespace(t, namespace)
	}
	permit(t, users)
	cluster.InstallValidating(t, entries)
}

// entryOf is the name of the webhook of a cluster.
func entryOf(cluster string) string { return cluster + ".e2e.portcullis.dev" }

// enforcedIn is a policy in mode enforce, for the clusters of its cases.
func enforcedIn(t *testing.T, name string, all []*libraryCase) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(library, name, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var policy map[string]any
	if err := yaml.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	clusters := clustersOf(all)
	declared, _, err := unstructured.NestedSlice(policy, "spec", "parameters")
	for _, one := range declared {
		parameter, byCluster := one.(map[string]any), map[string]any{}
		for cluster, values := range clusters {
			if value, ok := values[parameter["name"].(string)]; ok {
				byCluster[cluster] = value
			}
		}
		parameter["byCluster"] = byCluster
	}
	err = errors.Join(err, unstructured.SetNestedField(policy, "enforce", "spec", "mode"),
		unstructured.SetNestedStringSlice(policy, slices.Sorted(maps.Keys(clusters)), "spec", "clusters"))
	if declared != nil {
		err = errors.Join(err, unstructured.SetNestedSlice(policy, declared, "spec", "parameters"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return mesh.Document(t, policy)
}

// prepareNamespace makes a namespace and its service account, unless they are there.
func prepareNamespace(t *testing.T, name string) {
	t.Helper()
	core, options := cluster.Client().CoreV1(), metav1.CreateOptions{}
	_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, options)
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = core.ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, options)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// permit grants users all rights until the end of the test.
func permit(t *testing.T, users map[string]bool) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "library-users"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	for user := range users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	bindings := cluster.Client().RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, bindings.Delete, binding.Name) })
	for user := range users {
		config := cluster.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		eventually(t, user+" may read namespaces", func() error {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			_, err = client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
			return err
		})
	}
}

// isAnswered makes the request of a case as its user, and fails the test if the case has another answer. If kube-apiserver refuses the request before the
// policy judges it, the result is the reason.
func (c *libraryCase) isAnswered(t *testing.T) (refused string) {
	t.Helper()
	if !c.Passed {
		t.Errorf("%s: the case fails in `portcullis test`", c.Name)
		return ""
	}
	request := c.Review.Request
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: request.UserInfo.Username, Groups: request.UserInfo.Groups, Extra: map[string][]string{judgedIn: {c.cluster}},
	}
	err := c.request(t, config)
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		t.Errorf("%s: %v", c.Name, err)
		return ""
	}
	prefix := fmt.Sprintf("admission webhook %q denied the request: ", entryOf(c.cluster))
	want := c.Review.Response
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), request.Operation == admissionv1.Connect && !strings.HasPrefix(err.Error(), prefix):
		if !want.Allowed { // an object with the name, or a Pod without a node, is found out after admission
			t.Errorf("%s: the answer is %v, want a denial: %s", c.Name, err, want.Result.Message)
		}
	case !strings.HasPrefix(err.Error(), prefix):
		return err.Error()
	case want.Allowed:
		t.Errorf("%s: %v, want it allowed", c.Name, err)
	default:
		got := status.Status()
		if message := strings.TrimPrefix(got.Message, prefix); message != want.Result.Message || got.Code != want.Result.Code || got.Reason != want.Result.Reason {
			t.Errorf("%s: %d %s: %s, want %d %s: %s", c.Name, got.Code, got.Reason, message, want.Result.Code, want.Result.Reason, want.Result.Message)
		}
	}
	return ""
}

// request makes the request of a case, which changes nothing.
func (c *libraryCase) request(t *testing.T, config *rest.Config) error {
	t.Helper()
	r := c.Review.Request
	dry := []string{metav1.DryRunAll}
	var subresources []string
	if r.SubResource != "" {
		subresources = []string{r.SubResource}
	}
	switch r.Operation {
	case admissionv1.Create:
		_, err := objectsOf(t, config, r).Create(t.Context(), decoded(t, r.Object), metav1.CreateOptions{DryRun: dry}, subresources...)
		return err
	case admissionv1.Update:
		remove := store(t, r)
		defer remove()
		_, err := objectsOf(t, config, r).Patch(t.Context(), r.Name, types.StrategicMergePatchType, difference(t, r), metav1.PatchOptions{DryRun: dry}, subresources...)
		return err
	case admissionv1.Connect:
		return connect(t, config, r)
	case admissionv1.Delete:
	}
	t.Fatalf("%s: no test makes a request of the operation %s", c.Name, r.Operation)
	return nil
}

// objectsOf are the objects of the resource of a request.
func objectsOf(t *testing.T, config *rest.Config, r *admissionv1.AdmissionRequest) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(schema.GroupVersionResource(r.Resource))
	if r.Namespace == "" || r.Kind.Kind == "Namespace" {
		return resource
	}
	return resource.Namespace(r.Namespace)
}

func decoded(t *testing.T, object runtime.RawExtension) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(object.Raw); err != nil {
		t.Fatal(err)
	}
	return u
}

// store makes the old object of an update, which no policy judges, and returns its removal. A namespace that is there becomes the old object, and stays.
func store(t *testing.T, r *admissionv1.AdmissionRequest) (remove func()) {
	t.Helper()
	objects := objectsOf(t, cluster.Config(), r)
	_, err := objects.Create(t.Context(), decoded(t, r.OldObject), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) && r.Kind.Kind == "Namespace" {
		_, err = objects.Patch(t.Context(), r.Name, types.MergePatchType, r.OldObject.Raw, metav1.PatchOptions{})
		remove = func() {}
	} else {
		remove = func() {
			if err := objects.Delete(t.Context(), r.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
				t.Error(err)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return remove
}

// difference is the patch that makes the object of an update.
func difference(t *testing.T, r *admissionv1.AdmissionRequest) []byte {
	t.Helper()
	kind, err := scheme.Scheme.New(schema.GroupVersionKind(r.Kind))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(r.OldObject.Raw, r.Object.Raw, kind)
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// connect connects to a Pod.
func connect(t *testing.T, config *rest.Config, r *admissionv1.AdmissionRequest) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	options, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Object.Raw, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client.CoreV1().RESTClient().Post().Namespace(r.Namespace).Resource(r.Resource.Resource).Name("web").SubResource(r.SubResource).
		VersionedParams(options, scheme.ParameterCodec).Do(t.Context()).Error()
}
