package match_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	if d := hook.Matches(t.Context(), before); d.Skip != match.SkipObjectSelector {
		t.Errorf("before: %+v", d)
	}
	labelled := before.WithObject([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"env":"prod"}}}`))
	if d := hook.Matches(t.Context(), labelled); d.Skip != match.SkipConditions {
		t.Errorf("labelled: %+v", d)
	}
	named := labelled.WithObject([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"q","labels":{"env":"prod"}}}`))
	if d := hook.Matches(t.Context(), named); !d.Match {
		t.Errorf("named: %+v", d)
	}
	if d := hook.Matches(t.Context(), before); d.Skip != match.SkipObjectSelector {
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
		if d := hook.Matches(t.Context(), match.NewAttributes(req, match.Unknown{})); d.Err == nil || d.Err.ErrStatus.Code != 400 {
			t.Errorf("%q: %+v", raw, d)
		}
	}
}

func TestNamespacesAreAskedForOnlyWhenASelectorNeedsThem(t *testing.T) {
	o := validating("", "a", "hook.io")
	hook := compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0]
	if d := hook.Matches(t.Context(), match.NewAttributes(createPod(), match.Unknown{})); !d.Match {
		t.Errorf("%+v", d)
	}
	o.Validating.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}
	hook = compile(t, match.Input{Objects: []match.Object{o}}).Hooks()[0]
	if d := hook.Matches(t.Context(), match.NewAttributes(createPod(), namespaces{})); !d.Match {
		t.Errorf("%+v", d)
	}
	if d := hook.Matches(t.Context(), match.NewAttributes(createPod(), match.Unknown{})); d.Err == nil || d.Err.ErrStatus.Code != 500 {
		t.Errorf("without a source of namespaces: %+v", d)
	}
}

// The client asked for apps/v1beta1, and the cluster's entry made the API server convert the object to apps/v1.
func TestAConvertedObjectReachesHooksByWhatTheClientAskedFor(t *testing.T) {
	exact, equivalent := admissionregistrationv1.Exact, admissionregistrationv1.Equivalent
	for name, tc := range map[string]struct {
		policy   *admissionregistrationv1.MatchPolicyType
		versions []string
		want     string
	}{
		"Exact hooks of the version that the client asked for alone cannot be served": {&exact, []string{"v1beta1"}, "500"},
		"Exact hooks of another version do not see it":                                {&exact, []string{"v1"}, "none"},
		"Exact hooks of both see it":                                                  {&exact, []string{"v1", "v1beta1"}, "match"},
		"Equivalent hooks of the version that came see it":                            {&equivalent, []string{"v1"}, "match"},
		"Equivalent hooks of the version that the client asked for cannot be served":  {&equivalent, []string{"v1beta1"}, "500"},
		"Equivalent hooks of neither do not see it":                                   {&equivalent, []string{"v1beta2"}, "none"},
		"hooks of every version see it":                                               {&exact, []string{"*"}, "match"},
	} {
		t.Run(name, func(t *testing.T) {
			o := validating("", "a", "hook.io")
			o.Validating.Webhooks[0].MatchPolicy = tc.policy
			o.Validating.Webhooks[0].Rules = rule("*", "apps", "*", "deployments")
			o.Validating.Webhooks[0].Rules[0].APIVersions = tc.versions
			snapshot, _ := match.Compile(match.Input{Objects: []match.Object{o}})
			req := createPod()
			req.Resource = &admissionv1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
			req.RequestResource = &admissionv1.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"}
			a := match.NewAttributes(req, match.Unknown{})
			got := "none"
			for _, h := range snapshot.Candidates("c", validate, a) {
				got = outcome(h.Matches(t.Context(), a))
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
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
				if d := h.Matches(t.Context(), a); !d.Match {
					t.Errorf("%+v", d)
				}
			}
			clear(hooks) // the slice is the caller's own
		})
	}
	all.Wait()
}
