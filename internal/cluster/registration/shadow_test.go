package registration_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/dispatcher/match"
)

// withShadow compiles hooks, of which those named s are in shadow.
func withShadow(t *testing.T, list ...hook) *match.Snapshot {
	t.Helper()
	in := match.Input{
		Routes: []match.RouteBinding{{Configuration: "s", Route: match.Route{Stream: true, Hosts: []string{"h"}, Shadow: true}}},
	}
	for _, h := range list {
		in.Objects = append(in.Objects, *h.document())
	}
	return compile(t, in)
}

// TestAHookInShadowMakesNoEntryFailClosed has a hook in shadow that would fail closed: a request of its own goes to the
// fail-open entry, and a request that another hook refuses stays with the fail-closed one.
func TestAHookInShadowMakesNoEntryFailClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		hooks []hook
		want  map[string][]string
	}{
		"alone": {
			[]hook{{name: "s", rules: "CREATE::v1:pods"}},
			map[string][]string{"fail-open.validate.portcullis": {"CREATE::v1:pods:*"}},
		},
		"beside a hook that fails closed": {
			[]hook{{name: "s", rules: "CREATE::v1:pods"}, {name: "a", rules: "CREATE::v1:pods"}},
			map[string][]string{
				"fail-closed.validate.portcullis": {"CREATE::v1:pods:*"}, "fail-open.validate.portcullis": {"CREATE::v1:pods:*"},
			},
		},
		"with rules that no other hook has": {
			[]hook{{name: "s", rules: "CREATE::v1:secrets"}, {name: "a", policy: "Ignore", rules: "CREATE::v1:pods"}},
			map[string][]string{"fail-open.validate.portcullis": {"CREATE::v1:pods,secrets:*"}},
		},
		"mutating, alone": {
			[]hook{{kind: "mutating", name: "s", rules: "CREATE::v1:pods"}},
			map[string][]string{"fail-open.mutate.portcullis": {"CREATE::v1:pods:*"}},
		},
		"mutating, which nobody asks again": {
			[]hook{{kind: "mutating", name: "s", reinvocation: "IfNeeded", rules: "CREATE::v1:pods"}},
			map[string][]string{"fail-open.mutate.portcullis": {"CREATE::v1:pods:*"}},
		},
		"mutating, beside a hook that fails closed": {
			[]hook{{kind: "mutating", name: "s", rules: "CREATE::v1:pods,secrets"}, {kind: "mutating", name: "a", rules: "CREATE::v1:pods"}},
			map[string][]string{
				"fail-closed.mutate.portcullis": {"CREATE::v1:pods:*"}, "fail-open.mutate.portcullis": {"CREATE::v1:secrets:*"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := entries(plan(t, withShadow(t, tt.hooks...), options()))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyWaitsForAHookInShadow(t *testing.T) {
	snapshot := withShadow(t,
		hook{kind: "mutating", name: "s", timeout: 9, rules: "CREATE::v1:pods"},
		hook{kind: "mutating", name: "a", timeout: 2, policy: "Ignore", rules: "CREATE::v1:pods"},
		hook{name: "s", timeout: 9, rules: "CREATE::v1:pods"})
	r := plan(t, snapshot, options())
	got := []int32{*r.Mutating.Webhooks[0].TimeoutSeconds, *r.Validating.Webhooks[0].TimeoutSeconds}
	if diff := cmp.Diff([]int32{3, 1}, got); diff != "" {
		t.Errorf("timeouts (-want +got):\n%s", diff)
	}
}

func TestAHookInShadowIsNotCritical(t *testing.T) {
	r := plan(t, withShadow(t, hook{name: "s", rules: "CREATE::v1:nodes:Cluster"}), options())
	if len(r.Findings) > 0 {
		t.Errorf("findings %v", r.Findings)
	}
	if policy := *r.Validating.Webhooks[0].FailurePolicy; policy != admissionregistrationv1.Ignore {
		t.Errorf("failurePolicy %s", policy)
	}
}
