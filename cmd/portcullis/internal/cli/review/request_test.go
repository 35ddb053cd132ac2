package review

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestManifestsBecomeCreations: a manifest in a file is sent as an API server would send it.
func TestManifestsBecomeCreations(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: \"1\"}}\nspec: {priority: 7}\n"
	for name, tt := range map[string]struct {
		documents string
		want      []string // kind, resource, namespace and name of the request, and the object
	}{
		"a Pod":                      {pod, []string{"/v1/Pod /v1/pods shop/web"}},
		"a Pod as JSON":              {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"own"}}`, []string{"/v1/Pod /v1/pods own/web"}},
		"a name that is generated":   {"apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: web-}\n", []string{"batch/v1/Job batch/v1/jobs shop/"}},
		"a resource in no namespace": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a, namespace: slip}\n", []string{"rbac.authorization.k8s.io/v1/ClusterRole rbac.authorization.k8s.io/v1/clusterroles /a"}},
		"a Namespace":                {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", []string{"/v1/Namespace /v1/namespaces a/a"}},
		"a plural of its own":        {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n", []string{"networking.k8s.io/v1/NetworkPolicy networking.k8s.io/v1/networkpolicies shop/a"}},
		"a kind that nobody knows":   {"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {n: 9007199254740993}\n", []string{"example.com/v1/Widget example.com/v1/widgets shop/a"}},
		"several documents and a List": {
			pod + "---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- {apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n" +
				"uid: u1\nkind: {version: v1, kind: Pod}\nresource: {version: v1, resource: pods}\noperation: DELETE\nname: gone\n",
			[]string{
				"/v1/Pod /v1/pods shop/web",
				"/v1/Secret /v1/secrets shop/s",
				"/v1/Pod /v1/pods shop/p",
				"/v1/Pod /v1/pods /gone",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests, err := requestsIn(strings.NewReader(tt.documents), client{user: "jane", groups: []string{"g"}, namespace: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range requests {
				k, v := r.GetKind(), r.GetResource()
				got = append(got, fmt.Sprintf("%s/%s/%s %s/%s/%s %s/%s", k.GetGroup(), k.GetVersion(), k.GetKind(), v.GetGroup(), v.GetVersion(), v.GetResource(),
					r.GetNamespace(), r.GetName()))
				object := string(r.GetObject().GetRaw())
				if k.GetKind() == "Pod" && object != "" && !strings.Contains(object, `"restartPolicy":"Always"`) || k.GetKind() == "Widget" && !strings.Contains(object, "9007199254740993") {
					t.Errorf("an object without its defaults, or with another number: %s", object)
				}
				if r.GetUid() == "" || r.GetOperation() == "CREATE" && (r.GetUserInfo().GetUsername() != "jane" || len(r.GetUserInfo().GetGroups()) != 2) {
					t.Errorf("request %v", r)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRequestsOfOperations: which objects and options a request has.
func TestRequestsOfOperations(t *testing.T) {
	const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}`
	before := map[objectKey][]byte{{schema.GroupKind{Kind: "Pod"}, "shop", "web"}: []byte(pod)}
	for name, tt := range map[string]struct {
		document, operation string
		before              map[objectKey][]byte
		want                string
	}{
		"a CREATE":                         {pod, "", nil, "CREATE pods/ object CreateOptions"},
		"an object that was there before":  {pod, "", before, "UPDATE pods/ object old UpdateOptions"},
		"a CREATE although it was there":   {pod, "CREATE", before, "CREATE pods/ object CreateOptions"},
		"an UPDATE without the old object": {pod, "UPDATE", nil, "name its file with --old"},
		"a DELETE":                         {pod, "DELETE", before, "DELETE pods/ old DeleteOptions"},
		"a CONNECT":                        {"apiVersion: v1\nkind: PodExecOptions\ncommand: [sh]\n", "", nil, "CONNECT pods/exec object"},
	} {
		t.Run(name, func(t *testing.T) {
			requests, err := requestsIn(strings.NewReader(tt.document), client{operation: tt.operation, namespace: "shop", before: tt.before})
			if err != nil {
				if !strings.Contains(err.Error(), tt.want) {
					t.Error(err)
				}
				return
			}
			r := requests[0]
			got := r.GetOperation() + " " + r.GetResource().GetResource() + "/" + r.GetSubResource()
			if r.GetObject() != nil {
				got += " object"
			}
			if r.GetOldObject() != nil {
				got += " old"
			}
			if options := string(r.GetOptions().GetRaw()); options != "" {
				got += " " + strings.Trim(options[strings.LastIndex(options, ":"):], `:"}`)
			}
			if got != tt.want || r.GetSubResource() != r.GetRequestSubResource() {
				t.Errorf("got %q, want %q: %v", got, tt.want, r)
			}
		})
	}
}

func TestGroupsOfAUser(t *testing.T) {
	for _, tt := range []struct {
		user   string
		given  []string
		groups string
	}{
		{"jane", nil, "system:authenticated"},
		{"jane", []string{"a", "system:authenticated"}, "a system:authenticated"},
		{"jane", []string{"a"}, "a system:authenticated"},
		{"system:serviceaccount:shop:web", nil, "system:serviceaccounts system:serviceaccounts:shop system:authenticated"},
		{"system:serviceaccount:shop:web", []string{"a"}, "a system:authenticated"},
		{"system:anonymous", nil, "system:unauthenticated"},
	} {
		if got := strings.Join(groupsOf(tt.user, tt.given), " "); got != tt.groups {
			t.Errorf("%s in %v has %q, want %q", tt.user, tt.given, got, tt.groups)
		}
	}
}
