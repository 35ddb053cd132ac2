package match_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	mutatingplugin "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/oracle"
)

// clusterNamespaces are the namespaces of the test cluster. "broken" cannot be read, all others are missing.
func clusterNamespaces() map[string]map[string]string {
	return map[string]map[string]string{"dev": {"env": "dev"}, "prod": {"env": "prod", "tier": "dev"}, "bare": nil}
}

// errBroken has a status of its own, which the client must not get to see as the status of its write.
func errBroken() error {
	return apierrors.NewForbidden(corev1.Resource("namespaces"), "broken", errors.New("not for you"))
}

// namespaces is a cluster of which the namespaces are known.
type namespaces struct{ match.Unknown }

func (namespaces) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	if name == "broken" {
		return nil, errBroken()
	}
	set, ok := clusterNamespaces()[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return set, nil
}

// kubernetes is the original.
type kubernetes struct {
	plugin  *mutatingplugin.Plugin
	objects admission.ObjectInterfaces
	oracle  *oracle.Oracle
}

func newKubernetes(t testing.TB) *kubernetes {
	t.Helper()
	plugin, err := mutatingplugin.NewMutatingWebhook(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleClientset()
	client.PrependReactor("get", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if get, ok := a.(clienttesting.GetAction); ok && get.GetName() == "broken" {
			return true, nil, errBroken()
		}
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	for name, set := range clusterNamespaces() {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	return &kubernetes{
		plugin: plugin, objects: admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme), oracle: oracle.New(t, oracle.Options{}),
	}
}

// shouldCall asks the original about one hook and one request.
func (k *kubernetes) shouldCall(t *testing.T, w webhook.WebhookAccessor, a admission.Attributes) match.Decision {
	t.Helper()
	invocation, err := k.plugin.ShouldCallHook(t.Context(), w, a, k.objects, versions{a, k.objects})
	switch {
	case err != nil:
		return match.Decision{Err: err}
	case invocation == nil:
		return match.Decision{Skip: "skipped"} // the original does not say why
	}
	return match.Decision{Match: true}
}

// versions makes the objects of a request in the version that a hook takes.
type versions struct {
	admission.Attributes
	objects admission.ObjectInterfaces
}

func (v versions) VersionedAttribute(kind schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	return admission.NewVersionedAttributes(v.Attributes, kind, v.objects)
}

// sent is the request as the API server sends it, with its objects defaulted and encoded anew.
func (k *kubernetes) sent(t *testing.T, req *admissionv1.AdmissionRequest, a admission.Attributes) *admissionv1.AdmissionRequest {
	t.Helper()
	versioned, err := admission.NewVersionedAttributes(a, a.GetKind(), k.objects)
	if err != nil {
		t.Fatal(err)
	}
	req.Object, req.OldObject = encode(t, versioned.VersionedObject), encode(t, versioned.VersionedOldObject)
	req.RequestKind, req.RequestResource, req.RequestSubResource = req.GetKind(), req.GetResource(), req.GetSubResource()
	return req
}

func encode(t *testing.T, o runtime.Object) *admissionv1.Object {
	t.Helper()
	if o == nil {
		return nil
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return &admissionv1.Object{Raw: raw}
}

func TestEveryDecisionIsThatOfKubernetes(t *testing.T) {
	const hooks, requests = 400, 60
	k := newKubernetes(t)
	r := newRandom(1)
	seen := map[string]int{}
	for range hooks {
		w := r.webhook("hook.io")
		w.MatchConditions = r.conditions()
		accessor := webhook.NewMutatingWebhookAccessor("c/hook.io/0", "c", &w)
		hook := compileOne(t, w)
		for range requests {
			req := r.request()
			a, err := k.oracle.Attributes(req)
			if err != nil {
				t.Fatal(err)
			}
			want := k.shouldCall(t, accessor, a)
			got := hook.Matches(t.Context(), match.NewAttributes(k.sent(t, req, a), namespaces{}))
			if diff := differ(want, got); diff != "" {
				t.Fatalf("hook %+v\nrequest %v\ndecision (-want +got):\n%s", w, req, diff)
			}
			seen[outcome(got)]++
		}
	}
	t.Log(seen)
	for _, o := range []string{"match", match.SkipRules, match.SkipNamespaceSelector, match.SkipObjectSelector, match.SkipConditions, "403", "404", "500"} {
		if seen[o] < 20 {
			t.Errorf("only %d cases end in %q: the test does not see enough of them", seen[o], o)
		}
	}
}

// differ compares decisions; the original does not tell why it skips.
func differ(want, got match.Decision) string {
	if want.Match == got.Match && (want.Skip != "") == (got.Skip != "") {
		return cmp.Diff(want.Err, got.Err)
	}
	return cmp.Diff(want, got, cmp.AllowUnexported(match.Decision{}))
}

func outcome(d match.Decision) string {
	switch {
	case d.Match:
		return "match"
	case d.Err != nil:
		return map[int32]string{403: "403", 404: "404", 500: "500"}[d.Err.ErrStatus.Code]
	}
	return d.Skip
}

func compileOne(t *testing.T, w admissionregistrationv1.MutatingWebhook) *match.Hook {
	t.Helper()
	snapshot, _ := match.Compile(match.Input{Objects: []match.Object{{Mutating: &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionregistrationv1.MutatingWebhook{w},
	}}}})
	if len(snapshot.Hooks()) != 1 {
		t.Fatalf("hooks: %v", snapshot.Hooks())
	}
	return snapshot.Hooks()[0]
}

// TestTheIndexFindsExactlyWhatAScanWithKubernetesOwnRulesFinds has many hooks of both stages, of several clusters.
func TestTheIndexFindsExactlyWhatAScanWithKubernetesOwnRulesFinds(t *testing.T) {
	k := newKubernetes(t)
	for seed := range uint64(8) {
		r := newRandom(seed)
		snapshot, originals := r.snapshot(t)
		found := 0
		for range 500 {
			req := r.request()
			a, err := k.oracle.Attributes(req)
			if err != nil {
				t.Fatal(err)
			}
			cluster := pick(r, "a", "b", "c")
			stage := pick(r, admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_REINVOKE)
			want := scan(snapshot, originals, cluster, stage, a)
			got := snapshot.Candidates(cluster, stage, match.NewAttributes(req, match.Unknown{}))
			if diff := cmp.Diff(ids(want), ids(got)); diff != "" {
				t.Fatalf("seed %d, cluster %s, stage %s, request %v\ncandidates (-want +got):\n%s", seed, cluster, stage, req, diff)
			}
			found += len(got)
		}
		if found < 500 {
			t.Errorf("seed %d: only %d candidates in 500 requests", seed, found)
		}
	}
}

// scan looks at every hook.
func scan(
	s *match.Snapshot, originals map[match.HookID][]admissionregistrationv1.RuleWithOperations, cluster string, stage admissionv1.Stage, a admission.Attributes,
) []*match.Hook {
	var found []*match.Hook
	for _, h := range s.Hooks() {
		inStage := h.ID.Stage == stage ||
			(stage == admissionv1.Stage_STAGE_REINVOKE && h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy)
		routed := len(h.Route.Clusters) == 0 || strings.Contains(strings.Join(h.Route.Clusters, " "), cluster)
		if !inStage || !routed || (h.ID.Scope != "" && h.ID.Scope != cluster) {
			continue
		}
		for _, rule := range originals[h.ID] {
			if m := (&rules.Matcher{Rule: rule, Attr: a}); m.Matches() {
				found = append(found, h)
				break
			}
		}
	}
	return found
}

func ids(hooks []*match.Hook) []match.HookID {
	var out []match.HookID
	for _, h := range hooks {
		out = append(out, h.ID)
	}
	return out
}

// snapshot compiles a few hundred random hooks, and remembers their rules.
func (r random) snapshot(t *testing.T) (*match.Snapshot, map[match.HookID][]admissionregistrationv1.RuleWithOperations) {
	t.Helper()
	originals := map[match.HookID][]admissionregistrationv1.RuleWithOperations{}
	var in match.Input
	for i := range 60 {
		o := match.Object{Scope: pick(r, "", "", "a", "b")}
		name := string(rune('a'+r.IntN(26))) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if r.maybe(2) {
			o.Mutating = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for j := range 1 + r.IntN(4) {
				w := r.webhook("hook.io")
				reinvocation := pick(r, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)
				w.ReinvocationPolicy = &reinvocation
				o.Mutating.Webhooks = append(o.Mutating.Webhooks, w)
				originals[match.HookID{Scope: o.Scope, Stage: admissionv1.Stage_STAGE_MUTATE, Configuration: name, Name: "hook.io", Index: j}] = w.Rules
			}
		} else {
			o.Validating = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for j := range 1 + r.IntN(4) {
				w := admissionregistrationv1.ValidatingWebhook{Name: "hook.io", Rules: r.rules()}
				o.Validating.Webhooks = append(o.Validating.Webhooks, w)
				originals[match.HookID{Scope: o.Scope, Stage: admissionv1.Stage_STAGE_VALIDATE, Configuration: name, Name: "hook.io", Index: j}] = w.Rules
			}
		}
		in.Objects = append(in.Objects, o)
		if r.maybe(3) {
			in.Routes = append(in.Routes, match.RouteBinding{Configuration: name, Route: match.Route{Clusters: some(r, "a", "b")}})
		}
	}
	snapshot, _ := match.Compile(in)
	if len(snapshot.Hooks()) != len(originals) {
		t.Fatalf("%d hooks of %d", len(snapshot.Hooks()), len(originals))
	}
	return snapshot, originals
}

func TestWhatIsExemptIsWhatKubernetesExempts(t *testing.T) {
	for _, group := range []string{"", "admissionregistration.k8s.io", "example.com"} {
		for _, kind := range []string{
			"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
			"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Pod",
		} {
			want := rules.IsExemptAdmissionConfigurationResource(admission.NewAttributesRecord(nil, nil,
				schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, "", "", schema.GroupVersionResource{}, "", "", nil, false, nil))
			a := match.NewAttributes(&admissionv1.AdmissionRequest{
				Kind: &admissionv1.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Operation: "CREATE",
				Resource: &admissionv1.GroupVersionResource{Group: group, Version: "v1", Resource: "whatever"},
			}, match.Unknown{})
			if a.Exempt() != want {
				t.Errorf("%s/%s: exempt %v, want %v", group, kind, a.Exempt(), want)
			}
		}
	}
}
