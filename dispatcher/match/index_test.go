package match_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// apiOf is a cluster that knows its served resources alone.
type apiOf struct {
	match.Unknown
	served

	stale bool
}

func (c apiOf) Equivalents(resource schema.GroupVersionResource, subresource string) ([]conversion.ResourceKind, error) {
	if c.stale {
		return nil, errors.New("what is known is too old")
	}
	return c.served.Equivalents(resource, subresource)
}

// redirected is a request as the API server sends it to an entry of the cluster, perhaps in another version.
func (r random) redirected(req *admissionv1.AdmissionRequest, c apiOf) *admissionv1.AdmissionRequest {
	resource := schema.GroupVersionResource{
		Group: req.GetResource().GetGroup(), Version: req.GetResource().GetVersion(), Resource: req.GetResource().GetResource(),
	}
	ways, _ := c.served.Equivalents(resource, req.GetSubResource())
	req.RequestResource, req.RequestKind = req.GetResource(), req.GetKind()
	if len(ways) > 0 && r.maybe(3) {
		to := pick(r, ways...)
		req.Resource = &admissionv1.GroupVersionResource{Group: to.Resource.Group, Version: to.Resource.Version, Resource: to.Resource.Resource}
		req.Kind = &admissionv1.GroupVersionKind{Group: to.Kind.Group, Version: to.Kind.Version, Kind: to.Kind.Kind}
	}
	return req
}

// TestTheIndexFindsExactlyWhatAScanWithKubernetesOwnRulesFinds has many hooks of both stages, of several clusters.
func TestTheIndexFindsExactlyWhatAScanWithKubernetesOwnRulesFinds(t *testing.T) {
	k := newKubernetes(t)
	for seed := range uint64(8) {
		r := newRandom(seed)
		snapshot, originals := r.snapshot(t)
		api := apiOf{served: r.serve()}
		found := 0
		for range 500 {
			req := r.request()
			a, err := k.oracle.Attributes(req)
			if err != nil {
				t.Fatal(err)
			}
			cluster := pick(r, "a", "b", "c")
			stage := pick(r, admissionv1.Stage_STAGE_MUTATE, admissionv1.Stage_STAGE_VALIDATE, admissionv1.Stage_STAGE_REINVOKE)
			want := scan(snapshot, originals, cluster, stage, a, api)
			got := snapshot.Candidates(cluster, stage, match.NewAttributes(r.redirected(req, api), api))
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

// TestNothingIsSkippedAndNothingMatchesWhereEquivalentsAreNotKnown: the discovery of a cluster may be too old.
func TestNothingIsSkippedAndNothingMatchesWhereEquivalentsAreNotKnown(t *testing.T) {
	k := newKubernetes(t)
	r := newRandom(3)
	snapshot, originals := r.snapshot(t)
	api := apiOf{served: r.serve()}
	refused, matching := 0, 0
	for range 500 {
		req := r.request()
		a, err := k.oracle.Attributes(req)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range scan(snapshot, originals, "a", validate, a, api) {
			if !exactly(originals[h.ID], a) {
				matching++
			}
		}
		wanted := ids(scan(snapshot, originals, "a", validate, a, api))
		attributes := match.NewAttributes(req, apiOf{stale: true})
		found := snapshot.Candidates("a", validate, attributes)
		for _, h := range found {
			d := h.ShouldCall(t.Context(), attributes)
			if exact := exactly(originals[h.ID], a); d.Match != exact || exact == (d.Err != nil) {
				t.Fatalf("hook %v, request %v: %+v", h.ID, req, d)
			}
			if d.Err != nil {
				refused++
			}
		}
		for _, id := range wanted {
			if !slices.Contains(ids(found), id) {
				t.Fatalf("hook %v is skipped for request %v", id, req)
			}
		}
	}
	t.Logf("%d calls refused, of which %d would have been made", refused, matching)
	if matching == 0 || refused < matching {
		t.Error("the test does not see enough")
	}
}

// scan looks at every hook.
func scan(
	s *match.Snapshot, originals map[match.HookID][]admissionregistrationv1.RuleWithOperations,
	cluster string, stage admissionv1.Stage, a admission.Attributes, api apiOf,
) []*match.Hook {
	var found []*match.Hook
	for _, h := range s.Hooks() {
		inStage := h.ID.Stage == stage ||
			(stage == admissionv1.Stage_STAGE_REINVOKE && h.Reinvocation == admissionregistrationv1.IfNeededReinvocationPolicy)
		routed := len(h.Route.Clusters) == 0 || strings.Contains(strings.Join(h.Route.Clusters, " "), cluster)
		if !inStage || !routed || (h.ID.Scope != "" && h.ID.Scope != cluster) {
			continue
		}
		reached := exactly(originals[h.ID], a)
		if h.MatchPolicy == admissionregistrationv1.Equivalent {
			for _, equivalent := range api.EquivalentResourcesFor(a.GetResource(), a.GetSubresource()) {
				reached = reached || exactly(originals[h.ID], override{a, equivalent})
			}
		}
		if reached {
			found = append(found, h)
		}
	}
	return found
}

// exactly reports whether Kubernetes' own rules cover a request.
func exactly(all []admissionregistrationv1.RuleWithOperations, a admission.Attributes) bool {
	return slices.ContainsFunc(all, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: rule, Attr: a}).Matches()
	})
}

// override is a request on another resource.
type override struct {
	admission.Attributes
	resource schema.GroupVersionResource
}

func (o override) GetResource() schema.GroupVersionResource { return o.resource }

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
				w := admissionregistrationv1.ValidatingWebhook{Name: "hook.io", Rules: r.rules(), MatchPolicy: r.matchPolicy()}
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
