package registration_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/portcullis-mesh/portcullis/conversion"
	"github.com/portcullis-mesh/portcullis/dispatcher/match"
	admissionv1 "github.com/portcullis-mesh/portcullis/gen/portcullis/admission/v1"
	"github.com/portcullis-mesh/portcullis/internal/cluster/registration"
	"github.com/portcullis-mesh/portcullis/internal/config/kinds"
)

// failingOpen compiles hooks for a cluster in which some resources always fail open, as rule reads them.
func failingOpen(t *testing.T, failOpen string, list ...hook) *match.Snapshot {
	t.Helper()
	in := match.Input{Bypasses: map[string]*match.Bypass{"prod-1": {}}}
	for _, h := range list {
		in.Objects = append(in.Objects, *h.document())
	}
	for _, r := range strings.Fields(failOpen) {
		in.Bypasses["prod-1"].FailOpen = append(in.Bypasses["prod-1"].FailOpen, rule("*:"+strings.Replace(r, ":", ":*:", 1)))
	}
	return compile(t, in)
}

func TestRequestsThatAlwaysFailOpenHaveAnEntryOfTheirOwn(t *testing.T) {
	const never, always = "not-always-fail-open", "always-fail-open"
	for name, tt := range map[string]struct {
		failOpen string
		hooks    []hook
		want     map[string][]string
	}{
		"of some rules": {
			"coordination.k8s.io:leases", []hook{{name: "a", exact: true, rules: "UPDATE::v1:configmaps UPDATE:coordination.k8s.io:v1:leases"}},
			map[string][]string{
				"fail-closed.validate.portcullis":      {"UPDATE::v1:configmaps:*", "UPDATE:coordination.k8s.io:v1:leases:*", never},
				"always-fail-open.validate.portcullis": {"UPDATE:coordination.k8s.io:v1:leases:*", always},
			},
		},
		"that no hook judges": {
			"coordination.k8s.io:leases", []hook{{name: "a", exact: true, rules: "UPDATE::v1:configmaps"}},
			map[string][]string{"fail-closed.validate.portcullis": {"UPDATE::v1:configmaps:*"}},
		},
		"that fail-open hooks judge": {
			":configmaps", []hook{{name: "a", policy: "Ignore", rules: "UPDATE::v1:configmaps"}},
			map[string][]string{"fail-open.validate.portcullis": {"UPDATE::v1:configmaps:*"}},
		},
		"that hooks of both policies judge": {
			":configmaps", []hook{
				{name: "a", exact: true, rules: "UPDATE::v1:configmaps"}, {name: "b", exact: true, policy: "Ignore", rules: "UPDATE::v1:configmaps"},
			},
			map[string][]string{
				"fail-closed.validate.portcullis":      {"UPDATE::v1:configmaps:*", never},
				"always-fail-open.validate.portcullis": {"UPDATE::v1:configmaps:*", always},
				"fail-open.validate.portcullis":        {"UPDATE::v1:configmaps:*"},
			},
		},
		"of a wildcard, which covers no leases": {
			"coordination.k8s.io:leases", []hook{{name: "a", rules: "UPDATE:*:v1:pods/* CREATE::v1:*"}},
			map[string][]string{"fail-closed.validate.portcullis": {
				"CREATE::v1:*:*", "UPDATE:*:v1:pods/*:*", "not-events",
			}},
		},
		"by a name that may be the same in another group": {
			"extensions:deployments", []hook{{name: "a", rules: "UPDATE:apps:v1:deployments,daemonsets"}},
			map[string][]string{
				"fail-closed.validate.portcullis":      {"UPDATE:apps:v1:daemonsets,deployments:*", never},
				"always-fail-open.validate.portcullis": {"UPDATE:apps:v1:deployments:*", always},
			},
		},
		"of a mutating chain, which is whole in each entry": {
			":configmaps", []hook{
				{kind: "mutating", name: "a", exact: true, rules: "UPDATE::v1:configmaps,pods", reinvocation: "IfNeeded"},
				{kind: "mutating", name: "b", exact: true, policy: "Ignore", rules: "UPDATE::v1:configmaps,secrets"},
			},
			map[string][]string{
				"fail-closed.mutate.portcullis":        {"UPDATE::v1:configmaps,pods:*", never},
				"always-fail-open.mutate.portcullis":   {"UPDATE::v1:configmaps:*", always},
				"fail-open.mutate.portcullis":          {"UPDATE::v1:secrets:*"},
				"fail-closed.reinvoke.portcullis":      {"UPDATE::v1:configmaps,pods:*", never},
				"always-fail-open.reinvoke.portcullis": {"UPDATE::v1:configmaps:*", always},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := plan(t, failingOpen(t, tt.failOpen, tt.hooks...), options())
			if diff := cmp.Diff(tt.want, entries(r)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			for _, h := range asHooks(t, r).Hooks() {
				if h.FailsClosed() != strings.HasPrefix(h.ID.Name, "fail-closed.") {
					t.Errorf("%s has failurePolicy %s", h.ID.Name, h.FailurePolicy)
				}
			}
		})
	}
}

// withoutConditions is a registration as an API server takes it that knows no matchConditions.
func withoutConditions(r *registration.Registration) *registration.Registration {
	r = &registration.Registration{Objects: registration.Objects{Mutating: r.Mutating.DeepCopy(), Validating: r.Validating.DeepCopy()}}
	for i := range r.Mutating.Webhooks {
		r.Mutating.Webhooks[i].MatchConditions = nil
	}
	for i := range r.Validating.Webhooks {
		r.Validating.Webhooks[i].MatchConditions = nil
	}
	return r
}

// TestAnOldAPIServerMakesNoHookMissARequestThatAlwaysFailsOpen has an API server that drops matchConditions, as those before 1.28
// do. Each hook is called as often as if nothing always failed open. The fail-closed entry calls no hook and refuses while the mesh
// is dead.
func TestAnOldAPIServerMakesNoHookMissARequestThatAlwaysFailsOpen(t *testing.T) {
	now, _, _ := served()
	random(t, now, func(s scene) {
		with, without := s, s
		with.entries = asHooks(t, withoutConditions(plan(t, s.hooks, s.options)))
		without.hooks, without.entries = s.without, asHooks(t, withoutConditions(plan(t, s.without, s.options)))
		s.each(func(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind) {
			want, _ := without.called(stage, operation, namespace, asked)
			got, names := with.called(stage, operation, namespace, asked)
			if !maps.Equal(times(want), times(got)) {
				t.Errorf("%v %s %s %q: without the list %v, by entries %q %v", stage, operation, asked, namespace, want, names, got)
			}
		})
	})
}

// TestNoHookMissesARequestWhileTheEntriesHaveAnotherListThanTheMesh changes the list of always fail-open resources, and does not make
// the entries again. Each hook is called once, and with an API server that drops matchConditions at least once.
func TestNoHookMissesARequestWhileTheEntriesHaveAnotherListThanTheMesh(t *testing.T) {
	now, _, _ := served()
	random(t, now, func(s scene) {
		r := plan(t, s.hooks, s.options)
		for _, mesh := range []*match.Snapshot{s.other, s.without} {
			changed, old := s, s
			changed.hooks, old.hooks = mesh, mesh
			old.entries = asHooks(t, withoutConditions(r))
			s.each(func(stage admissionv1.Stage, operation, namespace string, asked conversion.ResourceKind) {
				want := times(changed.native(stage, operation, namespace, asked))
				got, names := changed.called(stage, operation, namespace, asked)
				if !maps.Equal(want, times(got)) {
					t.Errorf("%v %s %s %q: alone %v, by entries %q %v", stage, operation, asked, namespace, want, names, got)
				}
				atLeast, names := old.called(stage, operation, namespace, asked)
				for h := range want {
					if times(atLeast)[h] == 0 {
						t.Errorf("%v %s %s %q: %s is not called by entries %q without conditions", stage, operation, asked, namespace, h, names)
					}
				}
			})
		}
	})
}

// TestTheLargestListThatAlwaysFailsOpenIsTaken sends it through the validation of kube-apiserver, which bounds expressions.
func TestTheLargestListThatAlwaysFailsOpenIsTaken(t *testing.T) {
	of := admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}}
	of.APIVersions = []string{"*"}
	for i := range kinds.MaxFailOpenNames {
		half := strings.Repeat("r", kinds.MaxFailOpenResource/2-2)
		of.APIGroups = append(of.APIGroups, fmt.Sprintf("%02d.%s.io", i, strings.Repeat("g", 247)))
		of.Resources = append(of.Resources, fmt.Sprintf("%02d%s/%02d%s", i, half, i, half))
	}
	b := &match.Bypass{}
	for range kinds.MaxFailOpen {
		b.FailOpen = append(b.FailOpen, of)
	}
	in := match.Input{Bypasses: map[string]*match.Bypass{"prod-1": b}}
	for _, kind := range []string{"validating", "mutating"} {
		in.Objects = append(in.Objects, *hook{kind: kind, name: kind, rules: "*:*:*:*/*", reinvocation: "IfNeeded"}.document())
	}
	r := plan(t, compile(t, in), options())
	longest := 0
	for _, c := range r.Validating.Webhooks[0].MatchConditions {
		longest = max(longest, len(c.Expression))
	}
	t.Logf("%d characters; the objects have %d and %d bytes", longest, r.Mutating.Size(), r.Validating.Size())
	if len(r.Mutating.Webhooks) != 4 || len(r.Validating.Webhooks) != 2 || r.Mutating.Size() > 1<<20 {
		t.Errorf("%d and %d entries, %d bytes", len(r.Mutating.Webhooks), len(r.Validating.Webhooks), r.Mutating.Size())
	}
}
