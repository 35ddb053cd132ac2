package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func decoded(t *testing.T, data string) []Object {
	t.Helper()
	objects, problems := decode("f.yaml", []byte(data))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestARouteBindsItsHook(t *testing.T) {
	snapshot, problems := Compile("r1", decoded(t, goodHook+"---\n"+goodRoute+"---\n"+goodCluster))
	if len(problems) > 0 {
		t.Errorf("problems %q", lines(problems))
	}
	if snapshot.Revision() != "r1" || len(snapshot.Hooks()) != 1 {
		t.Fatalf("revision %s, %d hooks", snapshot.Revision(), len(snapshot.Hooks()))
	}
	h := snapshot.Hooks()[0]
	want := match.Route{Stream: true, Hosts: []string{"spiffe://mesh/imagepolicy"}, Clusters: []string{"prod-1"}, Timeout: 250 * time.Millisecond}
	if diff := cmp.Diff(want, h.Route); diff != "" {
		t.Error("route (-want +got):\n" + diff)
	}
	if id := (match.HookID{Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: "imagepolicy", Name: "imagepolicy.example.com"}); h.ID != id {
		t.Errorf("hook %+v", h.ID)
	}
}

func TestARouteSaysHowItsHookIsCalled(t *testing.T) {
	const mutating = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: m}\n" +
		"webhooks:\n- {name: m.example.com, admissionReviewVersions: [v1], sideEffects: None}\n---\n" +
		"apiVersion: portcullis.dev/v1\nkind: HookRoute\nmetadata: {name: m}\nspec:\n  configuration: m\n  stream: {}\n  hosts: [h]\n"
	for said, want := range map[string]match.Route{
		"":                                        {},
		"  speculate: true\n":                     {Speculate: true},
		"  shadow: true\n":                        {Shadow: true},
		"  allDenials: true\n":                    {AllDenials: true},
		"  hedge: {}\n":                           {Hedge: match.Hedge{Enabled: true}},
		"  hedge: {after: 20ms, percent: 7}\n":    {Hedge: match.Hedge{Enabled: true, After: 20 * time.Millisecond, Percent: 7}},
		"  speculate: false\n  shadow: false\n":   {},
		"  hedge: {percent: 50}\n  stage: mutate": {Hedge: match.Hedge{Enabled: true, Percent: 50}},
	} {
		want.Stream, want.Hosts = true, []string{"h"}
		snapshot, _ := Compile("r1", decoded(t, mutating+said))
		if diff := cmp.Diff(want, snapshot.Hooks()[0].Route); diff != "" {
			t.Errorf("%q (-want +got):\n%s", said, diff)
		}
	}
}

func TestProblemsOfFit(t *testing.T) {
	withURL := goodHook + "  clientConfig: {url: \"https://example.com/\"}\n"
	for _, tc := range []struct {
		name string
		data string
		want []string
	}{
		{name: "A hook with an address needs no route.", data: withURL},
		{
			name: "A hook that says streams and has no route is served by nobody.", data: "---\n" + goodHook,
			want: []string{`f.yaml:7: ValidatingWebhookConfiguration "imagepolicy": webhooks[0]: the hook is served over streams and no host may serve it, ` +
				`so every call fails: name the host identities in spec.hosts of a HookRoute`},
		},
		{
			name: "The second hook of the second item of a list.",
			data: "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: MutatingWebhookConfigurationList\nitems:\n- metadata: {name: a}\n" +
				"- metadata: {name: b}\n  webhooks:\n  - name: a.example.com\n    clientConfig: {url: 'https://example.com'}\n  - name: b.example.com\n",
			want: []string{`f.yaml:9: MutatingWebhookConfiguration "b": webhooks[1]: the hook is served over streams and no host may serve it, ` +
				`so every call fails: name the host identities in spec.hosts of a HookRoute`},
		},
		{
			name: "A route that names no hook is not used.", data: withURL + "---\n" + strings.Replace(goodRoute, "imagepolicy.example.com", "other.example.com", 1),
			want: []string{`f.yaml:18: HookRoute "imagepolicy": spec.hook: configuration "imagepolicy" has no hook "other.example.com": ` +
				`mend the name, or remove the route`},
		},
		{
			name: "What a route asks of a hook in vain stands on its line.", data: withURL + "---\n" + goodRoute + "  shadow: true\n  speculate: true\n",
			want: []string{`f.yaml:25: HookRoute "imagepolicy": spec.speculate: hook "imagepolicy.example.com" validates, and such hooks are ` +
				`called at the same time anyway: this has no effect`},
		},
		{
			name: "... also in an item of a list.",
			data: withURL + "---\napiVersion: v1\nkind: List\nitems:\n" +
				"- apiVersion: portcullis.dev/v1\n  kind: HookRoute\n  metadata: {name: a}\n  spec:\n    configuration: imagepolicy\n    speculate: true\n" +
				"- {apiVersion: portcullis.dev/v1, kind: HookRoute, metadata: {name: b}, spec: {configuration: other}}\n",
			want: []string{
				`f.yaml:21: HookRoute "a": spec.speculate: hook "imagepolicy.example.com" validates, and such hooks are ` +
					`called at the same time anyway: this has no effect`,
				`f.yaml:22: HookRoute "b": spec.configuration: there is no configuration "other" with a hook: ` +
					`mend the name, or remove the route`,
			},
		},
		{
			name: "A cluster without identities has no callers.", data: strings.Replace(goodCluster, "  identities: [kube-apiserver]\n", "", 1),
			want: []string{`f.yaml:1: Cluster "prod-1": spec.identities: no caller may send reviews of this cluster: name the identities of its API servers, or capabilities if they have no client certificate`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, problems := Compile("r", decoded(t, tc.data))
			if tc.want == nil {
				tc.want = []string{}
			}
			if diff := cmp.Diff(tc.want, lines(problems)); diff != "" {
				t.Error("(-want +got):\n" + diff)
			}
		})
	}
}

func TestAFindingIsAProblemOfItsDocument(t *testing.T) {
	o := decoded(t, "---\n"+goodRoute)[0]
	o.Source = "s"
	objects := []Object{o}
	problems := ProblemsOf([]match.Finding{
		{Severity: match.SeverityWarning, Code: "c", Path: "HookRoute/imagepolicy spec.hook", Message: "m"},
		{Severity: match.SeverityError, Code: "c", Source: "x.yaml:3", Path: "HookRoute/other", Message: "m"},
	}, objects)
	if diff := cmp.Diff(o.Problem(match.SeverityWarning, "c", "spec.hook", "m"), problems[0]); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
	if got := problems[1].String(); got != `x.yaml:3: HookRoute "other": m` {
		t.Error(got)
	}
}
