package match_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/citest"
)

// TestEveryDecisionIsThatOfKubernetes asks the original about random hooks and requests. Each request is also sent as the
// API server does it for an entry that names another version of its resource: that must not make a difference.
func TestEveryDecisionIsThatOfKubernetes(t *testing.T) {
	const requests, enough = 60, 800
	hooks := citest.Cases(enough, enough, 10*enough)
	k := newKubernetes(t)
	r := newRandom(1)
	seen := map[string]int{}
	for range hooks {
		w := r.webhook("hook.io")
		w.MatchConditions = r.conditions()
		accessor := webhook.NewMutatingWebhookAccessor("c/hook.io/0", "c", &w)
		hook := compileOne(t, w)
		c := cluster{served: r.serve(), authorizer: pick(r, permissions(), nil)}
		k.in(c)
		for range requests {
			req := r.request()
			a, err := k.oracle.Attributes(req)
			if err != nil {
				t.Fatal(err)
			}
			want := k.shouldCall(t, accessor, a)
			for _, came := range c.entries(r, a) {
				sent, ok := k.sent(t, req, a, came)
				if !ok {
					continue
				}
				attributes := match.NewAttributes(sent, c)
				got := hook.ShouldCall(t.Context(), attributes)
				if diff := differ(seenFrom(came, want), got); diff != "" {
					t.Fatalf("hook %+v\nrequest %v\ndecision (-want +got):\n%s", w, sent, diff)
				}
				if got.Match {
					k.compareObjects(t, attributes, a, came, got.As)
				}
				seen[outcome(got)]++
				seen[detail(a, came, got)]++
			}
		}
	}
	seen["unconverted"] = k.unconverted
	t.Log(seen)
	for _, o := range []string{
		"match", match.SkipRules, match.SkipNamespaceSelector, match.SkipObjectSelector, match.SkipConditions, "403", "404", "500",
		"by an equivalent", "as it came", "converted back", "converted further", "unknown kind", "no conversion", "unconverted",
	} {
		if hooks >= enough && seen[o] < 20 {
			t.Errorf("only %d cases end in %q: the test does not see enough of them", seen[o], o)
		}
	}
}

// entries are the ways in which a request is sent: as the client made it, and perhaps in another version.
func (c cluster) entries(r random, a admission.Attributes) []conversion.ResourceKind {
	entries := []conversion.ResourceKind{{Resource: a.GetResource(), Subresource: a.GetSubresource(), Kind: a.GetKind()}}
	ways, _ := c.Equivalents(a.GetResource(), a.GetSubresource())
	if other := pick(r, append(ways, entries[0])...); other.Resource != a.GetResource() && !other.Kind.Empty() {
		entries = append(entries, other)
	}
	return entries
}

// seenFrom is a decision about a request that came in a version: that version goes without saying.
func seenFrom(came conversion.ResourceKind, d match.Decision) match.Decision {
	if d.As != nil && d.As.Resource == came.Resource {
		d.As = nil
	}
	return d
}

// compareObjects compares the objects that a hook sees.
func (k *kubernetes) compareObjects(
	t *testing.T, got *match.Attributes, a admission.Attributes, came conversion.ResourceKind, as *conversion.ResourceKind,
) {
	t.Helper()
	kind := came.Kind
	if as != nil {
		kind = as.Kind
	}
	want, wantErr := admission.NewVersionedAttributes(a, kind, k.objects)
	object, old, err := got.In(t.Context(), as)
	if wantErr != nil || err != nil {
		if diff := cmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(err)); diff != "" {
			t.Fatalf("error of the conversion (-want +got):\n%s", diff)
		}
		return
	}
	for what, pair := range map[string][2][]byte{
		"object": {encode(t, want.VersionedObject).GetRaw(), object}, "old object": {encode(t, want.VersionedOldObject).GetRaw(), old},
	} {
		if diff := cmp.Diff(decoded(t, pair[0]), decoded(t, pair[1])); diff != "" {
			t.Fatalf("%s of %v as %v (-want +got):\n%s", what, came, as, diff)
		}
	}
}

func decoded(t *testing.T, raw []byte) any {
	t.Helper()
	if raw == nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// differ compares decisions; the original does not tell why it skips.
func differ(want, got match.Decision) string {
	if want.Match == got.Match && (want.Skip != "") == (got.Skip != "") {
		return cmp.Diff(want.Err, got.Err) + cmp.Diff(want.As, matching(got))
	}
	return cmp.Diff(want, got, cmp.AllowUnexported(match.Decision{}))
}

// matching is Decision.As of hooks that are called.
func matching(d match.Decision) *conversion.ResourceKind {
	if d.Match {
		return d.As
	}
	return nil
}

func outcome(d match.Decision) string {
	switch {
	case d.Match:
		return "match"
	case d.Err != nil:
		return strconv.Itoa(int(d.Err.ErrStatus.Code))
	}
	return d.Skip
}

// detail names the special case of a decision.
func detail(a admission.Attributes, came conversion.ResourceKind, d match.Decision) string {
	converted := came.Resource != a.GetResource()
	switch {
	case d.Err != nil && strings.Contains(d.Err.Error(), "unknown kind"):
		return "unknown kind"
	case d.Err != nil && strings.Contains(d.Err.Error(), errLarge.Error()):
		return "no conversion"
	case !d.Match || !converted && d.As == nil:
		return ""
	case !converted:
		return "by an equivalent"
	case d.As == nil:
		return "as it came"
	case d.As.Resource == a.GetResource():
		return "converted back"
	}
	return "converted further"
}

func compileOne(t testing.TB, w admissionregistrationv1.MutatingWebhook) *match.Hook {
	t.Helper()
	snapshot, _ := match.Compile(match.Input{Objects: []match.Object{{Mutating: &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionregistrationv1.MutatingWebhook{w},
	}}}})
	if len(snapshot.Hooks()) != 1 {
		t.Fatalf("hooks: %v", snapshot.Hooks())
	}
	return snapshot.Hooks()[0]
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
