package policy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	cliconfig "github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/config"
	"github.com/portcullis-mesh/portcullis/internal/config"
)

// fromCluster are a policy and its binding as kubectl get prints them, the binding first.
const fromCluster = `apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicyBinding
  metadata: {name: teams, resourceVersion: "12", uid: 0c8b1b8e-5f4d-4a5e-8b4e-2d8c9f4f6a11, generation: 2}
  spec: {policyName: teams, validationActions: [Deny]}
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicy
  metadata:
    name: teams
    labels: {team: platform}
    annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
    creationTimestamp: "2026-11-29T09:00:00Z"
    generation: 1
    resourceVersion: "11"
    uid: 0c8b1b8e-5f4d-4a5e-8b4e-2d8c9f4f6a10
    managedFields: [{manager: kubectl, operation: Apply, apiVersion: admissionregistration.k8s.io/v1, fieldsType: FieldsV1, fieldsV1: {}}]
    ownerReferences: [{apiVersion: templates.gatekeeper.sh/v1beta1, kind: ConstraintTemplate, name: teams, uid: 0c8b1b8e-5f4d-4a5e-8b4e-2d8c9f4f6a12}]
  spec:
    failurePolicy: Ignore
    matchConstraints:
      matchPolicy: Equivalent
      namespaceSelector: {}
      objectSelector: {}
      resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: '*'}]
    validations: [{expression: "'team' in object.metadata.labels", message: set the label team}]
  status: {observedGeneration: 1, typeChecking: {}}
`

func TestImportPrintsPoliciesAsPeopleWriteThem(t *testing.T) {
	got := clitest.Execute(t, NewCommand(), strings.NewReader(fromCluster), "import", "-")

	if want := "2 objects, 0 errors, 0 warnings\n"; got.Code != 0 || got.Notes != want {
		t.Fatalf("%+v", got)
	}
	clitest.Golden(t, "import.yaml", got.Out)
	if again := clitest.Execute(t, NewCommand(), strings.NewReader(got.Out), "import", "-"); again.Out != got.Out {
		t.Errorf("a second import prints\n%s", again.Out)
	}
}

func TestImportPutsPoliciesIntoShadow(t *testing.T) {
	got := clitest.Execute(t, NewCommand(), strings.NewReader(fromCluster), "import", "-", "--shadow", "--cluster", "prod-1", "-o", "json")

	objects, problems := cliconfig.NewDecoder().Decode("out", []byte(got.Out))
	if len(objects) != 3 || len(problems) > 0 || got.Code != 0 {
		t.Fatalf("%d objects, %v, %+v", len(objects), problems, got)
	}
	r := objects[0].Route
	if r == nil || r.Spec.Configuration != "ValidatingAdmissionPolicy/teams" || !r.Spec.Shadow || len(r.Spec.Clusters) != 1 || r.Spec.Clusters[0] != "prod-1" {
		t.Errorf("route %+v", r)
	}
	snapshot, _ := config.Compile("", objects)
	if hooks := snapshot.Hooks(); len(hooks) != 1 || !hooks[0].Route.Shadow {
		t.Errorf("hooks %+v", hooks)
	}
}

func TestImportLeavesOutWhatTheMeshRefuses(t *testing.T) {
	bad := strings.Replace(fromCluster, "'team' in object.metadata.labels", "object.metadata.labels.team ==", 1)
	foreign := "---\napiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\n"

	got := clitest.Execute(t, NewCommand(), strings.NewReader(bad+foreign), "import", "-")

	if got.Code != cli.ExitError || strings.Contains(got.Out, "kind: ValidatingAdmissionPolicy\n") || !strings.Contains(got.Out, "policyName: teams") {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{
		`-:28: error: ValidatingAdmissionPolicy/teams: items[1].spec.validations[0].expression: `,
		`-:31: error: ClusterPolicy/a: apiVersion: ClusterPolicy of kyverno.io/v1 belongs to Kyverno and is not judged here`,
	} {
		if !strings.Contains(got.Notes, want) {
			t.Errorf("%s\nis not in\n%s", want, got.Notes)
		}
	}
	dangerous := strings.Replace(fromCluster, "failurePolicy: Ignore", "failurePolicy: Fail", 1)
	if got := clitest.Execute(t, NewCommand(), strings.NewReader(dangerous), "import", "-"); got.Code != cli.ExitDenied || !strings.Contains(got.Notes, "danger-kube-system") {
		t.Errorf("a danger: %+v", got)
	}
	if twice := clitest.Execute(t, NewCommand(), strings.NewReader(fromCluster+"---\n"+fromCluster), "import", "-"); twice.Code != cli.ExitError || twice.Out != "" {
		t.Errorf("each document twice: %+v", twice)
	}
}

func TestImportIsCalledWrongly(t *testing.T) {
	for _, args := range [][]string{{}, {"a.yaml", "--kube-context", "prod-1"}} {
		clitest.Execute(t, NewCommand(), nil, append([]string{"import"}, args...)...).Fails(t, "name files with policies")
	}
	got := clitest.Execute(t, NewCommand(), strings.NewReader(""), "import", "-")
	if got.Code != cli.ExitDenied || got.Out != "" || !strings.Contains(got.Notes, "there is no admission policy and no binding") {
		t.Errorf("%+v", got)
	}
}

// oldAPIServer serves policies in pages, as v1beta1, and no mutating policies. It returns the kubeconfig of it.
func oldAPIServer(t *testing.T, policies, perPage int) (kubeconfig string) {
	t.Helper()
	const root = "/apis/admissionregistration.k8s.io/v1beta1/"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case root + "validatingadmissionpolicies":
			begin, _ := strconv.Atoi(r.URL.Query().Get("continue")) // empty is 0
			end, next := min(begin+perPage, policies), ""
			if end < policies {
				next = strconv.Itoa(end)
			}
			var items []string
			for i := begin; i < end; i++ {
				items = append(items, fmt.Sprintf(`{"metadata": {"name": "p%d", "resourceVersion": "7"}, "spec": {"validations": [{"expression": "object != null"}],
					"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}}}`, i))
			}
			fmt.Fprintf(w, `{"kind": "List", "metadata": {"continue": %q}, "items": [%s]}`, next, strings.Join(items, ","))
		case root + "validatingadmissionpolicybindings":
			fmt.Fprint(w, `{"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "b"}, "spec": {"policyName": "p0", "validationActions": ["Warn"]}}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
		}
	}))
	t.Cleanup(server.Close)
	return clitest.Write(t, "kubeconfig", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "c", "user": {}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, server.URL))
}

func TestImportReadsTheCluster(t *testing.T) {
	got := clitest.Execute(t, NewCommand(), nil, "import", "--kubeconfig", oldAPIServer(t, 5, 2), "-o", "json")

	objects, problems := cliconfig.NewDecoder().Decode("out", []byte(got.Out))
	var names []string
	for _, o := range objects {
		names = append(names, o.APIVersion+" "+o.Kind+" "+o.Name)
	}
	want := "[admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicy p0"
	if len(names) != 6 || len(problems) > 0 || !strings.HasPrefix(fmt.Sprint(names), want) ||
		names[5] != "admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicyBinding b" {
		t.Errorf("%v, %v", names, problems)
	}
	if want := `validatingadmissionpolicies: warning: ValidatingAdmissionPolicy/p1: no ValidatingAdmissionPolicyBinding puts the policy into force`; got.Code != 0 ||
		!strings.Contains(got.Notes, want) {
		t.Errorf("%+v", got)
	}
}

func TestImportBoundsTheList(t *testing.T) {
	got := clitest.Execute(t, NewCommand(), nil, "import", "--kubeconfig", oldAPIServer(t, config.MaxDocuments+1, config.MaxDocuments+1))
	got.Fails(t, "validatingadmissionpolicies of the cluster: the list of the API server: the cluster has more than 5000 policies and bindings")
}

func TestImportBesideAHostileAPIServer(t *testing.T) {
	clitest.BesideAHostileAPIServer(t, func(kubeconfig string) clitest.Result {
		return clitest.Execute(t, NewCommand(), nil, "import", "--kubeconfig", kubeconfig)
	})
}
