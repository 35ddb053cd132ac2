package match_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
)

func TestReviewsOfIdentitiesAndPermissionsAreSentToNobody(t *testing.T) {
	snapshot := compile(t, match.Input{Objects: []match.Object{validating("", "a", "hook.io")}})
	for resource, exempt := range map[string]bool{
		"authentication.k8s.io/tokenreviews": true, "authentication.k8s.io/selfsubjectreviews": true,
		"authorization.k8s.io/subjectaccessreviews": true, "authorization.k8s.io/selfsubjectaccessreviews": true,
		"authorization.k8s.io/localsubjectaccessreviews": true, "authorization.k8s.io/selfsubjectrulesreviews": true,
		"authorization.k8s.io/others": false, "authentication.k8s.io/others": false, "example.com/tokenreviews": false,
	} {
		group, name, _ := strings.Cut(resource, "/")
		a := match.NewAttributes(&admissionv1.AdmissionRequest{
			Operation: "CREATE", Resource: &admissionv1.GroupVersionResource{Group: group, Version: "v1", Resource: name},
		}, match.Unknown{})
		if got := len(snapshot.Candidates("", validate, a)) == 0; got != exempt || a.Exempt() != exempt {
			t.Errorf("%s: exempt %v, want %v", resource, got, exempt)
		}
	}
}

func TestMutatedObjectsAreSelectedByWhatTheyAreNow(t *testing.T) {
	o := mutating("", "a", "hook.io")
	o.Mutating.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	o.Mutating.Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: `object.metadata.name == "q"`}}
	hook := compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0]

	before := match.NewAttributes(createPod(), match.Unknown{})
	if d := hook.ShouldCall(t.Context(), before); d.Skip != match.SkipObjectSelector {
		t.Errorf("before: %+v", d)
	}
	labelled := before.WithObject([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"env":"prod"}}}`))
	if d := hook.ShouldCall(t.Context(), labelled); d.Skip != match.SkipConditions {
		t.Errorf("labelled: %+v", d)
	}
	named := labelled.WithObject([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"q","labels":{"env":"prod"}}}`))
	if d := hook.ShouldCall(t.Context(), named); !d.Match {
		t.Errorf("named: %+v", d)
	}
	if d := hook.ShouldCall(t.Context(), before); d.Skip != match.SkipObjectSelector {
		t.Errorf("the first object has changed: %+v", d)
	}
}

func TestAnObjectWhoseLabelsCannotBeReadRefusesTheReview(t *testing.T) {
	o := validating("", "a", "hook.io")
	o.Validating.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	hook := compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0]
	for _, raw := range []string{"", "not JSON", `{"metadata":`} {
		req := createPod()
		req.Object = &admissionv1.Object{Raw: []byte(raw)}
		if d := hook.ShouldCall(t.Context(), match.NewAttributes(req, match.Unknown{})); d.Err == nil || d.Err.ErrStatus.Code != 400 {
			t.Errorf("%q: %+v", raw, d)
		}
	}
}

func TestNamespacesAreAskedForOnlyWhenASelectorNeedsThem(t *testing.T) {
	o := validating("", "a", "hook.io")
	hook := compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0]
	if d := hook.ShouldCall(t.Context(), match.NewAttributes(createPod(), match.Unknown{})); !d.Match {
		t.Errorf("%+v", d)
	}
	o.Validating.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}
	hook = compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0]
	if d := hook.ShouldCall(t.Context(), match.NewAttributes(createPod(), namespaces{})); !d.Match {
		t.Errorf("%+v", d)
	}
	if d := hook.ShouldCall(t.Context(), match.NewAttributes(createPod(), match.Unknown{})); d.Err == nil || d.Err.ErrStatus.Code != 500 {
		t.Errorf("without a source of namespaces: %+v", d)
	}
}

// The client asked for apps/v1beta1, and the cluster's entry made the API server convert the object to apps/v1.
func TestAConvertedObjectReachesHooksByWhatTheClientAskedFor(t *testing.T) {
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	deployments := func(versions ...string) []conversion.ResourceKind {
		var ways []conversion.ResourceKind
		for _, v := range versions {
			ways = append(ways, way("apps", v, "deployments", "Deployment"))
		}
		return ways
	}
	known := deployments("v1", "v1beta1", "v1beta2")
	closed := errors.New("closed")
	for name, tc := range map[string]struct {
		policy   *admissionregistrationv1.MatchPolicyType
		versions []string
		ways     []conversion.ResourceKind
		way      error // back
		want     string
	}{
		"Exact hooks of the version that the client asked for see that":      {&exact, []string{"v1beta1"}, known, nil, "v1beta1"},
		"... and fail the review if there is no way back":                    {&exact, []string{"v1beta1"}, known, closed, "500"},
		"Exact hooks of another version do not see it":                       {&exact, []string{"v1"}, known, nil, "none"},
		"Exact hooks of both see what the client asked for":                  {&exact, []string{"v1", "v1beta1"}, known, nil, "v1beta1"},
		"... or what came, if there is no way back":                          {&exact, []string{"v1", "v1beta1"}, known, closed, "as it came"},
		"hooks of every version see what the client asked for":               {&exact, []string{"*"}, known, nil, "v1beta1"},
		"... as Kubernetes has it even if they are Equivalent":               {&equivalent, []string{"*"}, known, nil, "v1beta1"},
		"Equivalent hooks of the version that came see it":                   {&equivalent, []string{"v1"}, known, closed, "as it came"},
		"... even if nothing is known about the cluster":                     {&equivalent, []string{"v1"}, nil, closed, "as it came"},
		"... and if what is known is that it has other versions":             {&equivalent, []string{"v1"}, known[1:], closed, "as it came"},
		"Equivalent hooks of the version that the client asked for see that": {&equivalent, []string{"v1beta1"}, nil, nil, "v1beta1"},
		"Equivalent hooks of a third version see that":                       {&equivalent, []string{"v1beta2"}, known, nil, "v1beta2"},
		"... and fail the review if there is no way to it":                   {&equivalent, []string{"v1beta2"}, known, closed, "500"},
		"Equivalent hooks of a third version and of the one that came see the one that the cluster serves first": {
			&equivalent, []string{"v1", "v1beta2"}, deployments("v1beta2", "v1beta1", "v1"), nil, "v1beta2"},
		"... or what came, if there is no way to it": {
			&equivalent, []string{"v1", "v1beta2"}, deployments("v1beta2", "v1beta1", "v1"), closed, "as it came"},
		"Equivalent hooks of a version that the cluster does not have do not see it": {&equivalent, []string{"v1beta2"}, nil, nil, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			o := validating("", "a", "hook.io")
			o.Validating.Webhooks[0].MatchPolicy = tc.policy
			o.Validating.Webhooks[0].Rules = rule("*", "apps", "*", "deployments")
			o.Validating.Webhooks[0].Rules[0].APIVersions = tc.versions
			snapshot, _ := match.Compile(match.Input{Objects: []match.Object{o}})
			req := createPod()
			req.Kind = &admissionv1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
			req.Resource = &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
			req.RequestKind = &admissionv1.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "Deployment"}
			req.RequestResource = &admissionv1.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"}
			a := match.NewAttributes(req, &laboratory{ways: tc.ways, convertError: tc.way})
			got := "none"
			for _, h := range snapshot.Candidates("c", validate, a) {
				d := h.ShouldCall(t.Context(), a)
				if got = outcome(d); d.Match {
					got = version(d.As)
				}
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// A review that names the requested resource without its kind cannot be converted back.
func TestAConvertedObjectWithoutTheKindThatWasAskedForHasNoWayBack(t *testing.T) {
	o := validating("", "a", "hook.io")
	o.Validating.Webhooks[0].Rules = rule("*", "apps", "v1beta1", "deployments")
	snapshot := compile(t, match.Input{Objects: []match.Object{o}})
	req := createPod()
	req.Kind = &admissionv1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	req.Resource = &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	req.RequestResource = &admissionv1.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"}
	d := snapshot.Hooks()[0].ShouldCall(t.Context(), match.NewAttributes(req, &laboratory{}))
	if d.Err == nil || d.Err.ErrStatus.Code != 500 {
		t.Errorf("%+v", d)
	}
}

func TestReinvocationIsForHooksThatAskedForIt(t *testing.T) {
	ifNeeded := admissionregistrationv1.IfNeededReinvocationPolicy
	o := mutating("", "a", "one.io", "two.io")
	o.Mutating.Webhooks[1].ReinvocationPolicy = &ifNeeded
	snapshot := compile(t, match.Input{Objects: []match.Object{o, validating("", "a", "three.io")}})
	got := ids(snapshot.Candidates("c", reinvoke, match.NewAttributes(createPod(), match.Unknown{})))
	if diff := cmp.Diff([]match.HookID{{Stage: mutate, Configuration: "a", Name: "two.io"}}, got); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

// A rule may name more groups and resources than the index takes entries for.
func TestRulesOfAnySizeAreFound(t *testing.T) {
	for _, n := range []int{1, 31, 32, 33, 300} {
		o := validating("", "a", "hook.io")
		names := make([]string, n)
		for i := range names {
			names[i] = strings.Repeat("x", i+1)
		}
		o.Validating.Webhooks[0].Rules[0].APIGroups, o.Validating.Webhooks[0].Rules[0].Resources = names, names
		snapshot := compile(t, match.Input{Objects: []match.Object{o}})
		for group, want := range map[string]int{names[n-1]: 1, "other": 0} {
			req := createPod()
			req.Resource = &admissionv1.GroupVersionResource{Group: group, Version: "v1", Resource: names[n/2]}
			if got := snapshot.Candidates("", validate, match.NewAttributes(req, match.Unknown{})); len(got) != want {
				t.Errorf("%d groups and resources: %d candidates in group %s, want %d", n, len(got), group, want)
			}
		}
	}
}

func TestASnapshotAndItsAttributesMayBeUsedByManyAtOnce(t *testing.T) {
	o := validating("", "a", "one.io", "two.io", "three.io")
	for i := range o.Validating.Webhooks {
		o.Validating.Webhooks[i].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}
		o.Validating.Webhooks[i].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: `object.metadata.name == "p"`}}
	}
	snapshot := compile(t, match.Input{Objects: []match.Object{o}})
	a := match.NewAttributes(createPod(), match.Unknown{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			hooks := snapshot.Candidates("", validate, a)
			for _, h := range hooks {
				if d := h.ShouldCall(t.Context(), a); !d.Match {
					t.Errorf("%+v", d)
				}
			}
			clear(hooks) // the slice is the caller's own
		})
	}
	all.Wait()
}

func TestAPendingHookIsNotCalledWhateverItsFailurePolicy(t *testing.T) {
	for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		o := validating("", "a", "hook.io")
		o.Validating.Webhooks[0].FailurePolicy = &policy
		o.Pending = []string{"hook.io"}
		snapshot := compile(t, match.Input{
			Objects: []match.Object{o}, Routes: []match.RouteBinding{{Configuration: "a", Route: match.Route{Stream: true, Hosts: []string{"h"}}}},
		})
		if d := snapshot.Hooks()[0].ShouldCall(t.Context(), match.NewAttributes(createPod(), match.Unknown{})); d.Match || d.Skip != match.SkipPending {
			t.Errorf("%s: %+v", policy, d)
		}
	}
}
