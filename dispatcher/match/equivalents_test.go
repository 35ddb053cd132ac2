package match_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

// deployments are the ways to deployments that the proposal names, in the order in which API servers tried them.
func deployments() []conversion.ResourceKind {
	return []conversion.ResourceKind{
		way("extensions", "v1beta1", "deployments", "Deployment"), way("apps", "v1", "deployments", "Deployment"),
		way("apps", "v1beta2", "deployments", "Deployment"), way("apps", "v1beta1", "deployments", "Deployment"),
	}
}

// scales are the ways to their subresource, whose kinds are of three groups.
func scales() []conversion.ResourceKind {
	ways := deployments()
	for i := range ways {
		ways[i].Subresource, ways[i].Kind.Kind = "scale", "Scale"
	}
	ways[1].Kind.Group = "autoscaling"
	return ways
}

// requestBy is an update by a client that reaches a resource in the way w.
func requestBy(w conversion.ResourceKind) *admissionv1.AdmissionRequest {
	req := createPod()
	req.Operation, req.SubResource = "UPDATE", w.Subresource
	req.Kind = &admissionv1.GroupVersionKind{Group: w.Kind.Group, Version: w.Kind.Version, Kind: w.Kind.Kind}
	req.Resource = &admissionv1.GroupVersionResource{Group: w.Resource.Group, Version: w.Resource.Version, Resource: w.Resource.Resource}
	req.OldObject = req.GetObject()
	return req
}

// hookWith is a snapshot of one hook with a policy.
func hookWith(t *testing.T, policy admissionregistrationv1.MatchPolicyType, rules ...admissionregistrationv1.RuleWithOperations) *match.Snapshot {
	t.Helper()
	o := validating("", "a", "hook.io")
	o.Validating.Webhooks[0].MatchPolicy, o.Validating.Webhooks[0].Rules = &policy, rules
	return compile(t, match.Input{Objects: []match.Object{o}})
}

// decide is the decision for the only hook: "no candidate", an outcome, or the kind that it sees.
func decide(t *testing.T, s *match.Snapshot, a *match.Attributes) string {
	t.Helper()
	hooks := s.Candidates("c", validate, a)
	if len(hooks) == 0 {
		return "no candidate"
	}
	d := hooks[0].ShouldCall(t.Context(), a)
	switch {
	case !d.Match:
		return outcome(d)
	case d.As == nil:
		return "as it came"
	}
	return fmt.Sprintf("%s %s", d.As.Kind.GroupVersion(), d.As.Kind.Kind)
}

// TestTheProposalsDeploymentsAreTheSame is its first example: each resource "is also available via" all others.
func TestTheProposalsDeploymentsAreTheSame(t *testing.T) {
	for what, ways := range map[string][]conversion.ResourceKind{"deployments": deployments(), "deployments/scale": scales()} {
		for _, named := range ways {
			rules := rule("*", named.Resource.Group, named.Resource.Version, what)
			for _, asked := range ways {
				t.Run(fmt.Sprintf("hooks that name %v of a request for %v", named.Resource, asked.Resource), func(t *testing.T) {
					wantExact, wantEquivalent := "no candidate", fmt.Sprintf("%s %s", named.Kind.GroupVersion(), named.Kind.Kind)
					if named == asked {
						wantExact, wantEquivalent = "as it came", "as it came"
					}
					a := match.NewAttributes(requestBy(asked), &laboratory{ways: ways})
					if got := decide(t, hookWith(t, admissionregistrationv1.Exact, rules...), a); got != wantExact {
						t.Errorf("Exact: %s, want %s", got, wantExact)
					}
					if got := decide(t, hookWith(t, admissionregistrationv1.Equivalent, rules...), a); got != wantEquivalent {
						t.Errorf("Equivalent: %s, want %s", got, wantEquivalent)
					}
				})
			}
		}
	}
}

// TestTheProposalsHookOfOneVersionSeesTheOther: "if an object can be modified via API versions v1 and v2, and rules only
// includes v1, a request to v2 should be converted to v1 and sent to the webhook".
func TestTheProposalsHookOfOneVersionSeesTheOther(t *testing.T) {
	v1, v2 := way("example.com", "v1", "widgets", "Widget"), way("example.com", "v2", "widgets", "Widget")
	c := &laboratory{ways: []conversion.ResourceKind{v1, v2}}
	rules := rule("*", "example.com", "v1", "widgets")
	a := match.NewAttributes(requestBy(v2), c)
	if got := decide(t, hookWith(t, admissionregistrationv1.Equivalent, rules...), a); got != "example.com/v1 Widget" {
		t.Errorf("Equivalent: %s", got)
	}
	if got := decide(t, hookWith(t, admissionregistrationv1.Exact, rules...), a); got != "no candidate" {
		t.Errorf("Exact: %s", got)
	}
}

func TestTheVersionThatAHookSeesIsTheFirstOfItsFirstRule(t *testing.T) {
	extensions, v1, v1beta2, v1beta1 := deployments()[0], deployments()[1], deployments()[2], deployments()[3]
	in := func(w ...conversion.ResourceKind) admissionregistrationv1.RuleWithOperations {
		r := rule("*", "", "", "deployments")[0]
		r.APIGroups, r.APIVersions = nil, nil
		for _, w := range w {
			r.APIGroups, r.APIVersions = append(r.APIGroups, w.Resource.Group), append(r.APIVersions, w.Resource.Version)
		}
		return r
	}
	type rules = []admissionregistrationv1.RuleWithOperations
	created := in(v1beta2)
	created.Operations = []admissionregistrationv1.OperationType{"CREATE"}
	for name, tc := range map[string]struct {
		asked conversion.ResourceKind
		rules rules
		want  string
	}{
		"an earlier rule beats an earlier way":                        {v1beta1, rules{in(v1beta2), in(v1)}, "apps/v1beta2 Deployment"},
		"within a rule the earlier way counts, not how it is written": {v1beta1, rules{in(v1beta2, v1)}, "apps/v1 Deployment"},
		"groups come in the order of the ways too":                    {v1beta2, rules{in(v1, extensions)}, "extensions/v1beta1 Deployment"},
		"an exact match in the last rule beats every equivalent":      {v1beta1, rules{in(v1), in(v1beta2), in(v1beta1)}, "as it came"},
		"a rule for another operation does not count":                 {v1beta1, rules{created, in(v1)}, "apps/v1 Deployment"},
	} {
		t.Run(name, func(t *testing.T) {
			a := match.NewAttributes(requestBy(tc.asked), &laboratory{ways: deployments()})
			if got := decide(t, hookWith(t, admissionregistrationv1.Equivalent, tc.rules...), a); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestErrorsComeInKubernetesOrder: errors of selectors come only once a rule covers the request, and then in their turn.
func TestErrorsComeInKubernetesOrder(t *testing.T) {
	v1, v1beta1 := deployments()[1], deployments()[3]
	nameless := v1
	nameless.Kind = schema.GroupVersionKind{}
	old := errors.New("discovery is 10 minutes old")
	const missing, dev = "missing", "dev"
	for name, tc := range map[string]struct {
		namespace string // whose labels have to be env=dev
		rules     []admissionregistrationv1.RuleWithOperations
		policy    admissionregistrationv1.MatchPolicyType
		ways      []conversion.ResourceKind
		unknown   error
		want      string
	}{
		"no equivalent is reached, and nobody asks for the namespace": {namespace: missing, rules: rule("*", "apps", "v1beta2", "*"), ways: []conversion.ResourceKind{v1, v1beta1}, want: "no candidate"},
		"an equivalent is reached, in a namespace that is missing":    {namespace: missing, ways: []conversion.ResourceKind{v1, v1beta1}, want: "404"},
		"an equivalent is reached, and Exact is not for it":           {namespace: missing, policy: admissionregistrationv1.Exact, ways: []conversion.ResourceKind{v1, v1beta1}, want: "no candidate"},
		"a kind that is unknown comes before a missing namespace":     {namespace: missing, ways: []conversion.ResourceKind{nameless, v1beta1}, want: "500"},
		"a selector that selects others comes before an unknown kind": {namespace: "prod", ways: []conversion.ResourceKind{nameless, v1beta1}, want: match.SkipNamespaceSelector},
		"an unknown kind is nothing to those who name what was asked": {namespace: dev, rules: rule("*", "apps", "v1beta1", "*"), ways: []conversion.ResourceKind{nameless, v1beta1}, want: "as it came"},
		"what is not known refuses the review":                        {namespace: dev, unknown: old, want: "500"},
		"... but no other resource's":                                 {namespace: dev, unknown: old, rules: rule("*", "apps", "v1", "statefulsets"), want: "no candidate"},
		"... and no other operation's":                                {namespace: dev, unknown: old, rules: rule("CREATE", "apps", "v1", "deployments"), want: "no candidate"},
		"... and not for hooks with Exact":                            {namespace: dev, unknown: old, policy: admissionregistrationv1.Exact, want: "no candidate"},
		"... nor for those that select others":                        {namespace: "prod", unknown: old, want: match.SkipNamespaceSelector},
		"... nor for those that name what was asked":                  {namespace: dev, unknown: old, rules: rule("*", "apps", "v1beta1", "*"), want: "as it came"},
		"... nor for those of all versions":                           {namespace: dev, unknown: old, rules: rule("*", "*", "*", "*"), want: "as it came"},
		"it does for those of other groups":                           {namespace: dev, unknown: old, rules: rule("*", "extensions", "v1beta1", "deployments"), want: "500"},
	} {
		t.Run(name, func(t *testing.T) {
			o := validating("", "a", "hook.io")
			policy := cmp.Or(tc.policy, admissionregistrationv1.Equivalent)
			o.Validating.Webhooks[0].MatchPolicy = &policy
			o.Validating.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}
			o.Validating.Webhooks[0].Rules = tc.rules
			if tc.rules == nil {
				o.Validating.Webhooks[0].Rules = rule("*", "apps", "v1", "deployments")
			}
			req := requestBy(v1beta1)
			req.Namespace = tc.namespace
			a := match.NewAttributes(req, &laboratory{ways: tc.ways, equivalentError: tc.unknown})
			if got := decide(t, compile(t, match.Input{Objects: []match.Object{o}}), a); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestEquivalentsAreLookedUpOncePerReviewAndOnlyIfAHookCouldBeReachedByThem(t *testing.T) {
	rules := map[string]struct {
		policy admissionregistrationv1.MatchPolicyType
		rules  []admissionregistrationv1.RuleWithOperations
		want   int
	}{
		"hooks that are reached by them":            {admissionregistrationv1.Equivalent, rule("*", "apps", "v1", "deployments"), 1},
		"hooks that are not":                        {admissionregistrationv1.Equivalent, rule("*", "apps", "v9", "deployments"), 1},
		"hooks with Exact":                          {admissionregistrationv1.Exact, rule("*", "apps", "v1", "deployments"), 0},
		"hooks of other operations":                 {admissionregistrationv1.Equivalent, rule("CREATE", "apps", "v1", "deployments"), 0},
		"hooks that name nothing and see it anyway": {admissionregistrationv1.Equivalent, rule("*", "*", "*", "*", "*/*"), 0},
	}
	for name, tc := range rules {
		t.Run(name, func(t *testing.T) {
			o := validating("", "a", "one.io", "two.io", "three.io")
			for i := range o.Validating.Webhooks {
				o.Validating.Webhooks[i].MatchPolicy, o.Validating.Webhooks[i].Rules = &tc.policy, tc.rules
			}
			snapshot := compile(t, match.Input{Objects: []match.Object{o}})
			c := &laboratory{ways: deployments()}
			a := match.NewAttributes(requestBy(deployments()[3]), c)
			for _, h := range snapshot.Candidates("c", validate, a) {
				h.ShouldCall(t.Context(), a.WithObject([]byte(`{}`)))
			}
			if c.lookups != tc.want {
				t.Errorf("%d look-ups, want %d", c.lookups, tc.want)
			}
		})
	}
}

// TestConditionsSeeWhatTheHookSees checks that conditions also see the requested kind and resource.
func TestConditionsSeeWhatTheHookSees(t *testing.T) {
	v1, v1beta1 := deployments()[1], deployments()[3]
	for expression, want := range map[string]string{
		`object.apiVersion == "apps/v1" && oldObject.apiVersion == "apps/v1"`:                  "apps/v1 Deployment",
		`request.kind.version == "v1" && request.requestKind.version == "v1beta1"`:             "apps/v1 Deployment",
		`request.resource.version == "v1beta1" && request.resource == request.requestResource`: "apps/v1 Deployment",
		`object.apiVersion == "apps/v1beta1"`:                                                  match.SkipConditions,
	} {
		t.Run(expression, func(t *testing.T) {
			o := validating("", "a", "hook.io")
			equivalent := admissionregistrationv1.Equivalent
			o.Validating.Webhooks[0].MatchPolicy, o.Validating.Webhooks[0].Rules = &equivalent, rule("*", "apps", "v1", "*")
			o.Validating.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
			req := requestBy(v1beta1)
			req.Object = &admissionv1.Object{Raw: []byte(`{"kind":"Deployment","apiVersion":"apps/v1beta1","metadata":{"name":"d"}}`)}
			req.OldObject = req.GetObject()
			served := served{EquivalentResourceMapper: fixed{v1.Resource, v1beta1.Resource}}
			if got := decide(t, compile(t, match.Input{Objects: []match.Object{o}}), match.NewAttributes(req, cluster{served: served})); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// fixed are the ways to deployments.
type fixed []schema.GroupVersionResource

func (f fixed) EquivalentResourcesFor(schema.GroupVersionResource, string) []schema.GroupVersionResource {
	return f
}

func (f fixed) KindFor(resource schema.GroupVersionResource, _ string) schema.GroupVersionKind {
	return resource.GroupVersion().WithKind("Deployment")
}

// TestAConversionThatFailsIsNoMatterOfPolicy: it refuses the review even if the hook is Ignore (SEMANTICS C21).
func TestAConversionThatFailsIsNoMatterOfPolicy(t *testing.T) {
	o := validating("", "a", "hook.io")
	equivalent, ignore := admissionregistrationv1.Equivalent, admissionregistrationv1.Ignore
	o.Validating.Webhooks[0].MatchPolicy, o.Validating.Webhooks[0].FailurePolicy = &equivalent, &ignore
	o.Validating.Webhooks[0].Rules = rule("*", "apps", "v1", "*")
	o.Validating.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "object == null"}}
	a := match.NewAttributes(requestBy(deployments()[3]), &laboratory{ways: deployments(), convertError: errors.New("closed")})
	if got := decide(t, compile(t, match.Input{Objects: []match.Object{o}}), a); got != "500" {
		t.Errorf("got %s", got)
	}
}
