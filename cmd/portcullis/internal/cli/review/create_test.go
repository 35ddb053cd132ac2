package review

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli"
	"github.com/portcullis-mesh/portcullis/cmd/portcullis/internal/cli/clitest"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// TestManifestsBecomeCreations: a manifest in a file is sent as an API server would send it.
func TestManifestsBecomeCreations(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: \"1\"}}\nspec: {priority: 9007199254740993}\n"
	for name, tt := range map[string]struct {
		documents string
		want      []string // kind, resource, namespace and name of the request, and the object
	}{
		"a Pod":                      {pod, []string{`/v1/Pod /v1/pods shop/web {"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"1"},"name":"web","namespace":"shop"},"spec":{"priority":9007199254740993}}`}},
		"a Pod as JSON":              {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"own"}}`, []string{`/v1/Pod /v1/pods own/web {"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"own"}}`}},
		"a name that is generated":   {"apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: web-}\n", []string{`batch/v1/Job batch/v1/jobs shop/ {"apiVersion":"batch/v1","kind":"Job","metadata":{"generateName":"web-","namespace":"shop"}}`}},
		"a resource in no namespace": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a, namespace: slip}\n", []string{`rbac.authorization.k8s.io/v1/ClusterRole rbac.authorization.k8s.io/v1/clusterroles /a {"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a"}}`}},
		"a Namespace":                {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", []string{`/v1/Namespace /v1/namespaces a/a {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`}},
		"a plural of its own":        {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n", []string{`networking.k8s.io/v1/NetworkPolicy networking.k8s.io/v1/networkpolicies shop/a {"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"a","namespace":"shop"}}`}},
		"several documents and a List": {
			pod + "---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- {apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n" +
				"uid: u1\nkind: {version: v1, kind: Pod}\nresource: {version: v1, resource: pods}\noperation: DELETE\nname: gone\n",
			[]string{
				`/v1/Pod /v1/pods shop/web {"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"1"},"name":"web","namespace":"shop"},"spec":{"priority":9007199254740993}}`,
				`/v1/Secret /v1/secrets shop/s {"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"shop"}}`,
				`/v1/Pod /v1/pods shop/p {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"shop"}}`,
				"/v1/Pod /v1/pods /gone ",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests, err := readReviews(strings.NewReader(tt.documents), creator{user: "jane", groups: []string{"g"}, namespace: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range requests {
				k, v := r.GetKind(), r.GetResource()
				got = append(got, fmt.Sprintf("%s/%s/%s %s/%s/%s %s/%s %s", k.GetGroup(), k.GetVersion(), k.GetKind(), v.GetGroup(), v.GetVersion(), v.GetResource(),
					r.GetNamespace(), r.GetName(), strings.TrimSpace(string(r.GetObject().GetRaw()))))
				if r.GetUid() == "" || r.GetOperation() == "CREATE" && (r.GetUserInfo().GetUsername() != "jane" || len(r.GetUserInfo().GetGroups()) != 1) {
					t.Errorf("request %v", r)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAFileWithSeveralObjects prints the verdict of each, and ends by the worst.
func TestAFileWithSeveralObjects(t *testing.T) {
	t.Setenv("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	mesh := clitest.StartMesh(t, clitest.Sample).File(t)
	const documents = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Pod\nmetadata: {generateName: job-, namespace: shop}\n"
	r := clitest.Execute(t, NewCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", mesh)
	if r.Code != cli.ExitDenied || !strings.HasPrefix(r.Out, "Pod default/web\nmutate: ") || !strings.Contains(r.Out, "\n\nPod shop/job-*\nmutate: ") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	r = clitest.Execute(t, NewCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", mesh, "-o", "json")
	var all struct {
		Reviews []struct {
			Object string `json:"object"`
		} `json:"reviews"`
	}
	if err := json.Unmarshal([]byte(r.Out), &all); err != nil || len(all.Reviews) != 2 || all.Reviews[1].Object != "Pod shop/job-*" {
		t.Errorf("%v: %s", err, r.Out)
	}
}

// TestWhatWasJudgedIsPrinted although a later review has no verdict, or the trace of one cannot be exported.
func TestWhatWasJudgedIsPrinted(t *testing.T) {
	const documents = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: two}\n"
	mesh := clitest.StartMesh(t, func(r *admissionv1.ReviewRequest) (*admissionv1.ReviewResponse, error) {
		if r.GetRequest().GetName() == "two" {
			return nil, status.Error(codes.Unavailable, "connection refused")
		}
		return &admissionv1.ReviewResponse{Response: &admissionv1.AdmissionResponse{Uid: r.GetRequest().GetUid(), Allowed: true}}, nil
	}).File(t)
	r := clitest.Execute(t, NewCommand(), strings.NewReader(documents), "-f", "-", "--ready-file", mesh, "--stage", "validate")
	if r.Code != cli.ExitError || !strings.HasPrefix(r.Out, "Pod default/one\nvalidate: allowed\n") || !strings.Contains(r.Notes, "no mesh answers") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // nothing listens there
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	one, _, _ := strings.Cut(documents, "---")
	if r = clitest.Execute(t, NewCommand(), strings.NewReader(one), "-f", "-", "--ready-file", mesh, "--stage", "validate"); !strings.HasPrefix(r.Out, "validate: allowed\n") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Out, r.Notes)
	}
}
