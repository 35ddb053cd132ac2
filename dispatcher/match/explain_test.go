package match_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestExplainSaysWhyEachHookIsNotCalled(t *testing.T) {
	o := validating("", "a", "called.io", "rules.io", "namespace.io", "object.io", "condition.io", "failed.io", "missing.io")
	w := o.Validating.Webhooks
	ignore := admissionregistrationv1.Ignore
	w[1].Rules = append(rule("UPDATE", "*", "*", "*"), rule("*", "apps", "*", "*")...)
	w[2].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	w[3].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	w[4].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "1 > 2"}}
	w[5].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "fails", Expression: "object.missing.missing == 1"}}
	w[5].FailurePolicy = &ignore
	in := match.Input{
		Objects: []match.Object{o, validating("other", "b", "scope.io"), validating("", "c", "route.io"), mutating("", "d", "stage.io")},
		Routes:  []match.RouteBinding{{Configuration: "c", Route: match.Route{Clusters: []string{"x", "y"}}}},
	}
	got := explain(t, compile(t, in), createPod())
	want := map[string]string{
		"rules.io":     `rules: no rule covers CREATE of v1 pods; rules[0] does not by its operations; rules[1] does not by its apiGroups`,
		"namespace.io": `namespaceSelector: namespaceSelector "env=prod" does not match the labels "env=dev" of namespace "dev"`,
		"object.io":    `objectSelector: objectSelector "env=prod" matches neither the object nor the old one`,
		"condition.io": `matchConditions: matchCondition "never" is false`,
		"failed.io":    `matchConditions: a matchCondition failed to evaluate, and failurePolicy Ignore leaves the hook out`,
		"scope.io":     `cluster: its configuration is for cluster "other"`,
		"route.io":     `cluster: its route is for clusters ["x" "y"]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestExplainSaysThatAHookIsPending(t *testing.T) {
	o := validating("", "a", "hook.io", "rules.io")
	o.Validating.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	o.Validating.Webhooks[1].Rules = rule("UPDATE", "*", "*", "*")
	o.Pending = []string{"hook.io", "rules.io"}
	req := createPod()
	req.Namespace = "missing" // which would refuse the review
	got := explain(t, compile(t, match.Input{
		Objects: []match.Object{o}, Routes: []match.RouteBinding{{Configuration: "a", Route: match.Route{Stream: true, Hosts: []string{"h"}}}},
	}), req)
	want := map[string]string{
		"hook.io":  `pending: it is pending: no host has answered its probe yet`,
		"rules.io": `rules: no rule covers CREATE of v1 pods; rules[0] does not by its operations`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestExplainSaysWhichHookWouldRefuseTheReview(t *testing.T) {
	o := validating("", "a", "hook.io")
	o.Validating.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	req := createPod()
	req.Namespace = "missing"
	got := explain(t, compile(t, match.Input{Objects: []match.Object{o}}), req)
	want := map[string]string{"hook.io": `: the review is refused: namespaces "missing" not found`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestExplainSaysThatNobodySeesConfigurationAboutAdmission(t *testing.T) {
	req := createPod()
	req.Kind = &admissionv1.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}
	req.Resource = &admissionv1.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	got := explain(t, compile(t, match.Input{Objects: []match.Object{validating("", "a", "hook.io")}}), req)
	want := map[string]string{"hook.io": "exempt: requests about mutatingwebhookconfigurations.admissionregistration.k8s.io are never sent to hooks"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestExplainSaysWhatBecameOfEquivalents(t *testing.T) {
	o := validating("", "a", "called.io", "exact.io", "further.io", "exactly-further.io", "condition.io")
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	w := o.Validating.Webhooks
	for i := range w {
		w[i].MatchPolicy, w[i].Rules = &equivalent, rule("*", "apps", "v1", "deployments")
	}
	w[1].MatchPolicy = &exact
	w[2].Rules = rule("*", "apps", "v9", "deployments")
	w[3].MatchPolicy, w[3].Rules = &exact, w[2].Rules
	w[4].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "object == null"}}
	snapshot := compile(t, match.Input{Objects: []match.Object{o}})
	request := func(c *laboratory) *match.Attributes {
		req := requestBy(deployments()[3])
		c.ways = deployments()[1:]
		return match.NewAttributes(req, c)
	}
	const missed = "rules: no rule covers UPDATE of apps/v1beta1 deployments; rules[0] does not by its apiVersions"
	want := map[string]string{
		"exact.io":           missed + "; the rules cover the equivalent apps/v1 deployments, but matchPolicy is Exact",
		"further.io":         missed + "; nor does any cover the equivalent apps/v1 deployments, apps/v1beta2 deployments",
		"exactly-further.io": missed,
		"condition.io":       `: the review is refused: Internal error occurred: an object of the request is not JSON: invalid character '-' after top-level value`,
	}
	if diff := cmp.Diff(want, reasons(t, snapshot, request(&laboratory{}))); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	want = map[string]string{"exact.io": missed, "exactly-further.io": missed}
	for _, hook := range []string{"called.io", "further.io", "condition.io"} {
		want[hook] = fmt.Sprintf(": the review is refused: Internal error occurred: hook %q has matchPolicy Equivalent, "+
			"and the equivalents of apps/v1beta1, Resource=deployments are not known: too old", hook)
	}
	if diff := cmp.Diff(want, reasons(t, snapshot, request(&laboratory{equivalentError: errors.New("too old")}))); diff != "" {
		t.Errorf("reasons if nothing is known (-want +got):\n%s", diff)
	}
}

func explain(t *testing.T, s *match.Snapshot, req *admissionv1.AdmissionRequest) map[string]string {
	t.Helper()
	return reasons(t, s, match.NewAttributes(req, namespaces{}))
}

func reasons(t *testing.T, s *match.Snapshot, a *match.Attributes) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	for _, skipped := range s.Explain(t.Context(), "c", validate, a) {
		reasons[skipped.Hook.ID.Name] = skipped.Skip + ": " + skipped.Reason
	}
	return reasons
}
