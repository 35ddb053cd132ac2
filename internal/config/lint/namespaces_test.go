package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/config"
	"github.com/portcullis-mesh/portcullis/internal/config/lint"
	"github.com/portcullis-mesh/portcullis/internal/configtest"
)

const selective = "namespaceSelector: {matchLabels: {env: prod}}"

// withNamespaces is clusterNamed, with more fields of its spec.
func withNamespaces(name, more string) string {
	return strings.Replace(clusterNamed(name), "identities: [a]", "identities: [a], "+more, 1)
}

func TestHooksThatSelectNamespacesNobodyTells(t *testing.T) {
	policy := configuration("Validating", "p", hook("p", selective))
	const at = `no-namespaces: ValidatingWebhookConfiguration "p": webhooks[0].namespaceSelector: *`
	const refused = "refused with 500, whatever the failurePolicy; give the Cluster document spec.kubeconfig or spec.namespaces"
	for name, tt := range map[string]struct {
		documents []string
		want      []string
	}{
		"no cluster":                        {[]string{policy}, nil},
		"a cluster that says nothing":       {[]string{policy, clusterNamed("a")}, []string{at + "no source has the namespace labels of cluster a: *" + refused}},
		"several":                           {[]string{policy, clusterNamed("b"), withNamespaces("c", "namespaces: {static: {}}"), clusterNamed("a")}, []string{at + "of cluster a, b: "}},
		"a cluster that is asked":           {[]string{policy, withNamespaces("a", "kubeconfig: /a")}, nil},
		"a cluster that is asked for these": {[]string{policy, withNamespaces("a", "namespaces: {kubeconfig: /a}")}, nil},
		"a cluster that lists them":         {[]string{policy, withNamespaces("a", "namespaces: {static: {default: {}}}")}, nil},
		"a hook for another cluster": {
			[]string{policy, clusterNamed("a"), withNamespaces("b", "kubeconfig: /b"), route("r", "configuration: p, clusters: [b]")}, nil,
		},
		"a hook for that cluster too": {
			[]string{policy, clusterNamed("a"), withNamespaces("b", "kubeconfig: /b"), route("r", "configuration: p, clusters: [b, a]")}, []string{at + "of cluster a: "},
		},
		"a hook in shadow": {
			[]string{policy, clusterNamed("a"), route("r", "configuration: p, shadow: true")}, []string{at + "of cluster a: the hook is not called for such a request; give"},
		},
		"a hook that selects by name": {
			[]string{configuration("Validating", "p", hook("p", "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}")), clusterNamed("a")}, nil,
		},
		"no namespaceSelector": {[]string{configuration("Validating", "p", hook("p")), clusterNamed("a")}, nil},
		"an empty one":         {[]string{configuration("Validating", "p", hook("p", "namespaceSelector: {}")), clusterNamed("a")}, nil},
	} {
		t.Run(name, func(t *testing.T) { expect(t, found(t, tt.documents...), tt.want...) })
	}
}

// TestWhoAppliesTheClusterIsToldToo has a hook that was there before.
func TestWhoAppliesTheClusterIsToldToo(t *testing.T) {
	objects, problems := configtest.Decode("", []byte(strings.Join([]string{
		configuration("Validating", "p", hook("p", selective)), clusterNamed("a"), clusterNamed("b"),
	}, "\n---\n")))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := config.Compile("1", objects)
	for name, want := range map[string][]string{"b": {"*cluster b: "}, "p": {"*cluster a, b: "}, "other": nil} {
		var got []string
		only := func(key config.Key) bool { return key.Name == name }
		for _, p := range (lint.Options{}).InspectOnly(t.Context(), snapshot, objects, only) {
			got = append(got, p.String())
		}
		expect(t, got, want...)
	}
}

// TestWhatIsSaidOfNamespacesIsWhatReviewsMeet holds the finding against the code that matches reviews, for requests of all
// sorts: some request is refused exactly if there is a finding.
func TestWhatIsSaidOfNamespacesIsWhatReviewsMeet(t *testing.T) {
	requests := []*admissionv1.AdmissionRequest{
		asked("CREATE", "", "pods", "", "default"), asked("UPDATE", "apps", "deployments", "scale", "default"), asked("CREATE", "example.com", "widgets", "", "default"),
		asked("CREATE", "", "namespaces", "", "x"), asked("UPDATE", "", "namespaces", "", "x"), asked("DELETE", "", "namespaces", "", "x"), asked("UPDATE", "", "namespaces", "status", "x"),
		asked("CREATE", "rbac.authorization.k8s.io", "clusterroles", "", ""), asked("DELETE", "", "nodes", "", ""),
	}
	for rule, want := range map[string]bool{
		rule("CREATE", "", "pods", ""):                                  true,
		rule("CREATE", "", "pods", ", scope: Namespaced"):               true,
		rule("UPDATE", "apps", "deployments/*", ""):                     true,
		rule("UPDATE", "apps", "*/*", ""):                               true,
		rule("CREATE", "example.com", "widgets", ""):                    true,
		rule("CREATE", "example.com", "widgets", ", scope: Cluster"):    false,
		rule("CREATE", "*", "*", ""):                                    true,
		rule("CREATE", "*", "*", ", scope: Cluster"):                    false,
		rule("CREATE, DELETE", "*", "*", ", scope: Cluster"):            true,
		rule("CREATE, UPDATE", "", "namespaces", ""):                    false,
		rule("*", "", "namespaces", ", scope: Cluster"):                 true,
		rule("UPDATE", "", "namespaces/status", ""):                     true,
		rule("UPDATE", "", "*/status", ", scope: Cluster"):              true,
		rule("DELETE", "", "nodes", ""):                                 false,
		rule("CREATE", "rbac.authorization.k8s.io", "clusterroles", ""): false,
	} {
		documents := []string{configuration("Validating", "p", hook("p", "failurePolicy: Ignore", selective, rule)), clusterNamed("a")}
		said := strings.Contains(fmt.Sprint(found(t, documents...)), "no-namespaces")
		objects, _ := configtest.Decode("", []byte(documents[0]))
		snapshot, _ := config.Compile("1", objects)
		refused := false
		for _, q := range requests {
			refused = refused || snapshot.Hooks()[0].Matches(t.Context(), match.NewAttributes(q, match.Unknown{})).Err != nil
		}
		if refused != want || said != want {
			t.Errorf("%s\na review is refused: %t, there is a finding: %t, want %t", rule, refused, said, want)
		}
	}
}

// asked is a request as API servers send it: one about a namespace is in that.
func asked(operation, group, resource, subresource, namespace string) *admissionv1.AdmissionRequest {
	kind := &admissionv1.GroupVersionKind{Group: group, Version: "v1", Kind: "Any"}
	gvr := &admissionv1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	q := &admissionv1.AdmissionRequest{
		Uid: "1", Operation: operation, Kind: kind, RequestKind: kind, Resource: gvr, RequestResource: gvr, SubResource: subresource, RequestSubResource: subresource,
		Namespace: namespace, Name: "x", UserInfo: &admissionv1.UserInfo{Username: "u"},
	}
	object := &admissionv1.Object{Raw: []byte(`{"apiVersion":"v1","kind":"Any","metadata":{"name":"x","labels":{"env":"prod"}}}`)}
	if operation != "DELETE" {
		q.Object = object
	}
	if operation != "CREATE" {
		q.OldObject = object
	}
	return q
}
